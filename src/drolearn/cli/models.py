"""Pipelines and model files of the commands."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from drolearn.cli.running import InputError
from drolearn.cli.tables import Table

__all__ = ["as_divergence", "load_model", "prepared", "rows_for"]

# When it is imported, skrub makes a folder for data in the home folder, which may not exist.
os.environ.setdefault("SKB_DATA_DIRECTORY", str(Path(tempfile.gettempdir()).resolve() / "skrub"))

_PICKLES = (".pkl", ".pickle", ".joblib")


def as_divergence(text: str) -> Any:
    """A divergence by name, perhaps with numbers, as in "cvar:0.1" and "spectral:1,2,5"."""
    from drolearn.divergence import NAMES, CressieRead, CVaR
    from drolearn.divergence import as_divergence as by_name
    from drolearn.spectral import Exponential, Extremile, Spectral

    with_numbers: dict[str, tuple[Any, str]] = {
        "cressie-read": (CressieRead, "a number above 1, as cressie-read:1.5"),
        "cvar": (CVaR, "a level above 0 and at most 1, as cvar:0.1"),
        "extremile": (Extremile, "a number of at least 1, as extremile:3"),
        "exponential": (Exponential, "a number of at least 0, as exponential:2"),
        "spectral": (lambda *k: Spectral(k), "numbers that do not decrease, as spectral:1,2,5"),
    }
    name, _, numbers = text.partition(":")
    if name not in with_numbers or text in NAMES:
        return by_name(text)
    make, accepted = with_numbers[name]
    try:
        return make(*map(float, numbers.split(",")))
    except (TypeError, ValueError) as error:  # of another number of numbers
        raise InputError(
            f"--divergence must be a name, or {name} with {accepted}. Got {text!r} instead."
        ) from error


def prepared(estimator: Any, X: Any) -> Any:
    """A pipeline that prepares the columns of X for an estimator."""
    if not hasattr(X, "columns"):
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MaxAbsScaler

        return make_pipeline(MaxAbsScaler(), estimator)
    from skrub import tabular_pipeline

    return tabular_pipeline(estimator)


def load_model(path: Path, trust: bool) -> Any:
    """Load a model file; a pickle only if the user trusts it."""
    from drolearn._files.models import load

    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}: check the name of the model.")
    if path.suffix not in _PICKLES:
        return load(path)
    if not trust:
        raise InputError(
            f"{str(path)!r} is a pickle, and opening a pickle runs whatever code is in it: use "
            f"--trust only if you know who made it, or save the model with drolearn.save."
        )
    import joblib

    try:
        model = joblib.load(path)  # also reads files of pickle
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise InputError(f"{str(path)!r} is damaged or not a pickle: use another copy.") from error
    if not hasattr(model, "predict"):
        raise InputError(
            f"{str(path)!r} holds a {type(model).__name__}: give a fitted model with a method "
            f"predict."
        )
    return model


def rows_for(model: Any, table: Table) -> Any:
    """The columns of a table that a model was fitted to, in their order."""
    X, d = table.X, getattr(model, "n_features_in_", None)
    names = getattr(model, "feature_names_in_", None)
    if not hasattr(X, "columns"):
        if names is not None:
            raise InputError("The model needs columns with names: give a table, not a .svm file.")
        if d is not None and X.shape[1] < d:  # a file does not say how many columns there are
            X = X.copy()
            X.resize(X.shape[0], d)
        return _checked(X, d)
    if names is None:
        y = [name for name in X.columns if name == "y"]
        return _checked(X.drop(columns=y).to_numpy(), d)
    missing = [str(name) for name in names if name not in X.columns]
    if missing:
        raise InputError(
            f"The data lacks {len(missing)} of the {len(names)} columns of the model: "
            f"{', '.join(missing[:10])}{' …' if len(missing) > 10 else ''}."
        )
    return X[list(names)]


def _checked(X: Any, d: int | None) -> Any:
    if d is not None and X.shape[1] != d:
        raise InputError(
            f"The model was fitted to {d} columns. Got {X.shape[1]} instead: give the same columns."
        )
    return X
