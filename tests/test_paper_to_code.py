"""docs/paper-to-code.md: what it names exists, and what it says about the paper's text is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import drolearn
import drolearn.nn
from drolearn import ChiSquare, Multilevel

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
NAMES = {name: getattr(drolearn, name) for name in drolearn.__all__} | {"drolearn": drolearn}


def file_of(path: str) -> Path:
    """A file of the repository; paths without `src/` may be in the package."""
    return next(f for f in (ROOT / path, ROOT / "src" / "drolearn" / path) if f.is_file())


def defines(text: str, name: str) -> bool:
    """Whether Python or C++ code defines a function or class of this name."""
    function = rf"^[ \w]*(?<!return )\b[\w:<>&*]+ {name}\((?!.*;$)"
    return bool(re.search(rf"\b(?:def|class|struct) {name}\b|{function}", text, re.MULTILINE))


def is_public(span: str) -> bool:
    """Whether a public name, an attribute of it or a call exists."""
    if "(" in span:
        return eval(span, dict(NAMES)) is not None
    owner, _, attribute = span.rpartition(".")
    if not owner:
        return span in NAMES
    found = eval(owner, dict(NAMES))
    annotated = getattr(found, "__annotations__", {})
    return hasattr(found, attribute) or attribute in annotated


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:30])
def test_everything_that_the_page_names_exists(row, protocol):
    for clause in re.split(r"[;|]", row):
        spans = re.findall(r"`([^`]+)`", clause)
        paths = [span for span in spans if re.fullmatch(r"[\w/-]+\.(?:py|hpp|toml)", span)]
        texts = [file_of(path).read_text(encoding="utf-8") for path in paths]
        for span in set(spans) - set(paths):
            if span.startswith("drolearn reproduce "):
                assert set(span.split()[2:]) <= set(protocol.artefacts), span
            elif texts:
                assert all(defines(text, span) for text in texts), f"{span} in {paths}"
            else:
                assert is_public(span), span


def test_all_numbered_parts_of_the_paper_are_on_the_page():
    numbers = [f"({k})" for k in range(1, 12)]
    theorems = ["Proposition 1", "Theorem 2", "Proposition 3", "Theorem 4", "Theorem 5"]
    others = ["Theorem 6", "Lemmas 7 and 8", "Assumption 1", "Assumption 2", "Algorithm 1"]
    floats = ["Figures 1 and 2", "Figures 3 and 4", "Table 1", "Table 2", "IM Procedure"]
    assert [part for part in (*numbers, *theorems, *others, *floats) if part not in PAGE] == []


def test_the_bound_of_theorem_4_lacks_a_factor():
    r, n = 0.3, 2**40
    q = Multilevel(n, r=r).level_probabilities
    cost = sum(share * k * 2.0**k for k, share in enumerate(q, 1))  # in units of C' log 2
    printed = 4 * r * (1 - r) / (1 - 2 * r) ** 2
    assert printed < cost <= printed / r


@pytest.mark.parametrize("n", [2, 10, 5830])
def test_assumption_1_of_chi2(n):
    phi = ChiSquare().phi([n / (n - 1), 0.0])
    assert (1 - 1 / n) * phi[0] + phi[1] / n == pytest.approx(1 / (n - 1))
