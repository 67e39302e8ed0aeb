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
from drolearn.gradient import Draw, Fixed, Full, Growing, Multilevel
from drolearn.loss import Loss
from drolearn.solver import Solution, solve
from drolearn.worst_case import WorstCase, worst_case

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
    "Solution",
    "TotalVariation",
    "WorstCase",
    "solve",
    "worst_case",
]

__version__ = "0.1.0"
