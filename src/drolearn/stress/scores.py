"""The losses of all models: each model predicts once, and every loss is computed from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drolearn._inner.worst_case import not_finite
from drolearn._validation import as_losses, as_vector, as_weights, refuse_not_finite
from drolearn.stress.models import (
    Loss,
    Predictions,
    all_losses,
    as_models,
    constant,
    loss_name,
    losses_of,
    predict,
    wrong_rows,
)
from drolearn.stress.worst_cases import refuse_huge

__all__ = ["Scored", "rows_losses", "score"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One loss of one model on all rows.

    Parameters
    ----------
    model, loss : str
        Their names.
    losses : array of shape (n,)
        The loss of each row.
    wrong : Boolean array of shape (n,) or None
        The rows of which the predicted label is wrong; None if labels are not known.
    baseline : array of shape (n,) or None
        The same loss of the baseline.
    """

    model: str
    loss: str
    losses: Array
    wrong: NDArray[np.bool_] | None = None
    baseline: Array | None = None


def score(
    model: Any,
    X: Any,
    y: Any,
    losses: Any,
    loss: Loss | Sequence[Loss],
    sample_weight: Any,
    baseline: Any,
) -> list[Scored]:
    """The losses of all models, model after model."""
    if (model is None) == (losses is None):
        got = "both" if losses is not None else "neither"
        raise ValueError(
            f"Pass either 'model' with X and y, or 'losses', to stress_test. Got {got} instead."
        )
    if losses is not None:
        return _given(losses, loss, baseline)
    if X is None or y is None:
        missing = "'X'" if X is None else "'y'"
        raise ValueError(f"The {missing} parameter must be given with a model. Got None instead.")
    target = np.asarray(y)
    if target.ndim != 1 or target.size == 0:
        raise ValueError(
            f"The 'y' parameter must be a vector with at least one row. "
            f"Got an array of shape {target.shape} instead."
        )
    weights = None if sample_weight is None else as_weights(sample_weight, target.size)
    asked = _as_list(loss)
    models = as_models(model)
    hint = "auto" if asked[0] == "all" else asked[0]
    found = {name: predict(name, each, X, target, hint) for name, each in models.items()}
    named = _names(list(found.values()), asked)
    other = _baseline(baseline, X, target, hint, len(named))
    scored = []
    for name, each in found.items():
        for kind, function in named.items():
            z = losses_of(each, target, function)
            refuse_not_finite("loss", z)
            refuse_huge("loss", z)
            compared = other
            if compared is None:
                compared = constant(each, target, weights, kind)
            if isinstance(compared, Predictions):
                compared = losses_of(compared, target, function)
            scored.append(Scored(name, kind, z, wrong_rows(each, target), compared))
    return scored


def rows_losses(parameter: str, values: Any, n: int | None = None) -> Array:
    """Finite losses, one for each of n rows."""
    z = as_vector(parameter, values) if parameter != "losses" else as_losses(values)
    if n is not None and z.size != n:
        raise ValueError(
            f"The '{parameter}' parameter must have one loss for each of the {n} rows. "
            f"Got {z.size} instead."
        )
    if not np.isfinite(z).all():
        raise ValueError(not_finite(z).replace("'losses'", f"'{parameter}'"))
    refuse_huge(parameter, z)
    return z


def _given(losses: Any, loss: Any, baseline: Any) -> list[Scored]:
    """Losses that the user computed, of one or several models."""
    if not isinstance(loss, str) or loss != "auto":
        raise ValueError(
            f"The 'loss' parameter must be 'auto' with losses=, which are used as they are. "
            f"Got {loss!r} instead."
        )
    named = losses if isinstance(losses, Mapping) else {"losses": losses}
    if not named:
        raise ValueError("The 'losses' parameter must hold at least one model. Got none.")
    vectors = {str(name): rows_losses("losses", each) for name, each in named.items()}
    n = next(iter(vectors.values())).size
    for each in vectors.values():
        rows_losses("losses", each, n)
    other = None if baseline is None else rows_losses("baseline", baseline, n)
    return [Scored(name, "given", each, None, other) for name, each in vectors.items()]


def _as_list(loss: Loss | Sequence[Loss]) -> list[Loss]:
    if isinstance(loss, str) or callable(loss):
        return [loss]
    asked = list(loss)
    if not asked:
        raise ValueError("The 'loss' parameter must hold at least one loss. Got none instead.")
    return asked


def _names(found: list[Predictions], asked: list[Loss]) -> dict[str, Loss]:
    """Losses by name: "all" is every loss that all models have, and a name occurs once."""
    named: dict[str, Loss] = {}
    for loss in asked:
        if isinstance(loss, str) and loss == "all":
            common = [
                kind for kind in all_losses(found[0]) if all(kind in all_losses(f) for f in found)
            ]
            if not common:
                raise ValueError(
                    "The models must all be classifiers or all be regressions. Got both with "
                    "loss='all' instead."
                )
            named.update({kind: kind for kind in common})
            continue
        kinds = list(dict.fromkeys(loss_name(each, loss) for each in found))
        if len(kinds) > 1:
            raise ValueError(
                f"The 'loss' parameter must be given for models of different kinds: 'auto' is "
                f"{kinds[0]!r} for one and {kinds[1]!r} for another."
            )
        name, k = kinds[0], 2
        while callable(loss) and name in named:
            name, k = f"{kinds[0]} {k}", k + 1
        named[name] = loss
    return named


def _baseline(
    baseline: Any, X: Any, y: NDArray[Any], loss: Loss, losses: int
) -> Predictions | Array | None:
    """The predictions of a baseline, or its losses; None for the best constant model."""
    if baseline is None:
        return None
    if hasattr(baseline, "predict") or callable(baseline):
        [one] = as_models([baseline]).values()
        return predict("baseline", one, X, y, loss)
    if losses > 1:
        raise ValueError(
            f"The 'baseline' parameter must be None or a fitted model for several losses: a vector "
            f"holds one loss only. Got a vector for {losses} losses instead."
        )
    return rows_losses("baseline", baseline, y.size)
