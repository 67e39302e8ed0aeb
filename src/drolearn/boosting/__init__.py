"""Robust boosted trees: objectives and metrics for LightGBM and XGBoost.

objective   robust_objective: gradients with damped worst-case weights
metric      robust_metric: the robust loss of validation rows, for early stopping
rows        labels, weights and balls, which both of these share
"""

from drolearn.boosting.metric import RobustMetric, robust_metric
from drolearn.boosting.objective import RobustObjective, robust_objective

__all__ = ["RobustMetric", "RobustObjective", "robust_metric", "robust_objective"]
