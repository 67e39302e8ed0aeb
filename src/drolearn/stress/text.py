"""Numbers and names as text."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["confidence", "group_name", "interval", "number", "percent"]


def confidence(level: float) -> str:
    """A confidence level in percent, not rounded to 100%."""
    return f"{100.0 * level:.4g}%"


def group_name(name: Any) -> str:
    """The name of a group; that of a combination is a tuple."""
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def number(x: float) -> str:
    """Three significant digits, with a true minus sign; an en dash for no number."""
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0.0 else "−∞"
    return f"{x:.3g}".replace("-", "−")


def interval(low: float, high: float) -> str:
    """The two ends; an en dash if there is no interval."""
    return "–" if math.isnan(low) or math.isnan(high) else f"{number(low)} to {number(high)}"


def percent(share: float) -> str:
    """A share in percent, finer near 0% and 100%; an en dash for no number."""
    if math.isnan(share):
        return "–"
    text = f"{share:.0%}" if 0.0995 <= share < 0.995 else f"{share:.1%}"
    return text.replace(".0%", "%")
