"""The estimators on a Dask cluster: rows stay on the workers, sums travel.

See docs/dask.md.  Needs ``pip install 'drolearn[dask]'``.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drolearn.dask._classifier import RobustClassifier
    from drolearn.dask._engine import LostWorkersError
    from drolearn.dask._losses import worst_case
    from drolearn.dask._regressor import RobustRegressor
    from drolearn.dask._stress import stress_test

_missing = [library for library in ("dask", "distributed") if find_spec(library) is None]
if _missing:
    raise ImportError(
        f"drolearn.dask needs Dask, of which {_missing[0]!r} is not installed: "
        f"pip install 'drolearn[dask]'"
    )

__all__ = ["LostWorkersError", "RobustClassifier", "RobustRegressor", "stress_test", "worst_case"]

# Imported on first use: workers need neither the estimators nor scikit-learn.
_LATER = {
    "LostWorkersError": "_engine",
    "RobustClassifier": "_classifier",
    "RobustRegressor": "_regressor",
    "stress_test": "_stress",
    "worst_case": "_losses",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
