"""Distributionally robust learning: models that stay good when the data changes."""

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

__all__ = [
    "KL",
    "CVaR",
    "ChiSquare",
    "CressieRead",
    "Divergence",
    "Hellinger",
    "JensenShannon",
    "ReverseKL",
    "TotalVariation",
    "WorstCase",
    "worst_case",
]

__version__ = "0.1.0"
