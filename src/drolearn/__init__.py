"""Distributionally robust learning: models that stay good when the data changes."""

from typing import TYPE_CHECKING, Any

from drolearn.divergence import (
    KL,
    ChiSquare,
    CressieRead,
    CVaR,
    Divergence,
    Hellinger,
    JensenShannon,
    ReverseKL,
    TotalVariation,
)
from drolearn.worst_case import WorstCase, worst_case

if TYPE_CHECKING:
    from drolearn.gradient import Draw, Fixed, Full, Growing, Multilevel
    from drolearn.linear import RobustClassifier, RobustRegressor
    from drolearn.loss import Loss
    from drolearn.path import RobustClassifierCV, RobustRegressorCV
    from drolearn.solver import Solution, solve

__all__ = [
    "KL",
    "CVaR",
    "ChiSquare",
    "CressieRead",
    "Divergence",
    "Draw",
    "Fixed",
    "Full",
    "Growing",
    "Hellinger",
    "JensenShannon",
    "Loss",
    "Multilevel",
    "ReverseKL",
    "RobustClassifier",
    "RobustClassifierCV",
    "RobustRegressor",
    "RobustRegressorCV",
    "Solution",
    "TotalVariation",
    "WorstCase",
    "solve",
    "worst_case",
]

__version__ = "0.1.0"

# Where the other names are: imported when they are used, so that a worst case does not wait for
# solvers, nor solvers for scikit-learn.
_LATER = {
    "Draw": "gradient",
    "Fixed": "gradient",
    "Full": "gradient",
    "Growing": "gradient",
    "Loss": "loss",
    "Multilevel": "gradient",
    "RobustClassifier": "linear",
    "RobustClassifierCV": "path",
    "RobustRegressor": "linear",
    "RobustRegressorCV": "path",
    "Solution": "solver",
    "solve": "solver",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
