"""What pickle and skops store of a fitted estimator."""

from __future__ import annotations

from typing import Any

from drolearn._solvers.ending import Ending

__all__ = ["StateMixin"]


class StateMixin:
    """Store the ending of the fit by its value: skops knows no enums."""

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        if isinstance(state.get("ending_"), Ending):
            state = {**state, "ending_": state["ending_"].value}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("ending_"), str):
            state = {**state, "ending_": Ending(state["ending_"])}
        super().__setstate__(state)  # type: ignore[misc]
