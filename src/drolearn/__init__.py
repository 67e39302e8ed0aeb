"""Distributionally robust learning: models that stay good when the data changes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drolearn._estimators.agreement import DomainAgreement, domain_agreement
    from drolearn._estimators.base import ZeroModelWarning
    from drolearn._estimators.boosting_classifier import RobustBoostingClassifier
    from drolearn._estimators.boosting_regressor import RobustBoostingRegressor
    from drolearn._estimators.classification import RobustClassifier
    from drolearn._estimators.classifier_cv import RobustClassifierCV
    from drolearn._estimators.ensemble_classifier import RobustEnsembleClassifier
    from drolearn._estimators.ensemble_regressor import RobustEnsembleRegressor
    from drolearn._estimators.reference import reference_losses
    from drolearn._estimators.regression import RobustRegressor
    from drolearn._estimators.regressor_cv import RobustRegressorCV
    from drolearn._files.errors import ModelFileError
    from drolearn._files.models import load, save
    from drolearn._inner.worst_case import WorstCase, worst_case
    from drolearn._solvers.descent import History
    from drolearn._solvers.draws import Draw, Fixed, Full, Growing
    from drolearn._solvers.ending import Ending
    from drolearn._solvers.gradient_report import GradientReport, gradient_report
    from drolearn._solvers.multilevel import Multilevel
    from drolearn._solvers.radius import rho_max
    from drolearn._solvers.solution import Solution
    from drolearn._solvers.solve import solve
    from drolearn._solvers.solvers import FSG, GSSG, LBFGS, PSSG, SGD, Exact, Newton
    from drolearn._solvers.step_sizes import Constant, Decay
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
        Triangular,
    )
    from drolearn.loss import Loss
    from drolearn.metrics import (
        absolute_losses,
        brier_losses,
        log_losses,
        squared_losses,
        zero_one_losses,
    )
    from drolearn.shifts.mix import Radii, WorstMix, radius_of, worst_mix
    from drolearn.shifts.samples import Shift, radius_between
    from drolearn.spectral import Exponential, Extremile, Spectral
    from drolearn.stress.analysis import stress_test
    from drolearn.stress.intervals import mean_upper_bound
    from drolearn.stress.report import StressReport

__all__ = [
    "FSG",
    "GSSG",
    "KL",
    "LBFGS",
    "PSSG",
    "SGD",
    "CVaR",
    "ChiSquare",
    "Constant",
    "CressieRead",
    "Decay",
    "Divergence",
    "DomainAgreement",
    "Draw",
    "Ending",
    "Exact",
    "Exponential",
    "Extremile",
    "Fixed",
    "Full",
    "GradientReport",
    "Growing",
    "Hellinger",
    "History",
    "JensenShannon",
    "Loss",
    "ModelFileError",
    "Multilevel",
    "Newton",
    "Radii",
    "ReverseKL",
    "RobustBoostingClassifier",
    "RobustBoostingRegressor",
    "RobustClassifier",
    "RobustClassifierCV",
    "RobustEnsembleClassifier",
    "RobustEnsembleRegressor",
    "RobustRegressor",
    "RobustRegressorCV",
    "Shift",
    "Solution",
    "Spectral",
    "StressReport",
    "TotalVariation",
    "Triangular",
    "WorstCase",
    "WorstMix",
    "ZeroModelWarning",
    "absolute_losses",
    "brier_losses",
    "domain_agreement",
    "gradient_report",
    "load",
    "log_losses",
    "mean_upper_bound",
    "radius_between",
    "radius_of",
    "reference_losses",
    "rho_max",
    "save",
    "solve",
    "squared_losses",
    "stress_test",
    "worst_case",
    "worst_mix",
    "zero_one_losses",
]

__version__ = "0.1.0"

# The modules of the public names, imported on first use: `worst_case` needs no solvers, solvers
# need no estimators, and the help of the command line needs none of them.
_LATER = {
    "DomainAgreement": "_estimators.agreement",
    "domain_agreement": "_estimators.agreement",
    "ZeroModelWarning": "_estimators.base",
    "RobustBoostingClassifier": "_estimators.boosting_classifier",
    "RobustBoostingRegressor": "_estimators.boosting_regressor",
    "RobustClassifier": "_estimators.classification",
    "RobustClassifierCV": "_estimators.classifier_cv",
    "RobustEnsembleClassifier": "_estimators.ensemble_classifier",
    "RobustEnsembleRegressor": "_estimators.ensemble_regressor",
    "reference_losses": "_estimators.reference",
    "RobustRegressorCV": "_estimators.regressor_cv",
    "RobustRegressor": "_estimators.regression",
    "ModelFileError": "_files.errors",
    "load": "_files.models",
    "save": "_files.models",
    "WorstCase": "_inner.worst_case",
    "worst_case": "_inner.worst_case",
    "Constant": "_solvers.step_sizes",
    "Decay": "_solvers.step_sizes",
    "History": "_solvers.descent",
    "Draw": "_solvers.draws",
    "Fixed": "_solvers.draws",
    "Full": "_solvers.draws",
    "Growing": "_solvers.draws",
    "Multilevel": "_solvers.multilevel",
    "Ending": "_solvers.ending",
    "GradientReport": "_solvers.gradient_report",
    "gradient_report": "_solvers.gradient_report",
    "rho_max": "_solvers.radius",
    "Solution": "_solvers.solution",
    "solve": "_solvers.solve",
    "FSG": "_solvers.solvers",
    "GSSG": "_solvers.solvers",
    "LBFGS": "_solvers.solvers",
    "PSSG": "_solvers.solvers",
    "SGD": "_solvers.solvers",
    "Exact": "_solvers.solvers",
    "Newton": "_solvers.solvers",
    "CVaR": "divergence",
    "ChiSquare": "divergence",
    "CressieRead": "divergence",
    "Divergence": "divergence",
    "Hellinger": "divergence",
    "JensenShannon": "divergence",
    "KL": "divergence",
    "ReverseKL": "divergence",
    "TotalVariation": "divergence",
    "Triangular": "divergence",
    "Loss": "loss",
    "absolute_losses": "metrics",
    "brier_losses": "metrics",
    "log_losses": "metrics",
    "squared_losses": "metrics",
    "zero_one_losses": "metrics",
    "Radii": "shifts.mix",
    "WorstMix": "shifts.mix",
    "radius_of": "shifts.mix",
    "worst_mix": "shifts.mix",
    "Shift": "shifts.samples",
    "radius_between": "shifts.samples",
    "Exponential": "spectral",
    "Extremile": "spectral",
    "Spectral": "spectral",
    "stress_test": "stress.analysis",
    "mean_upper_bound": "stress.intervals",
    "StressReport": "stress.report",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "divergence":  # users find it as an attribute since version 0.1
        return import_module(f"{__name__}.divergence")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found  # the next use is a plain look-up
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
