"""Estimators for scikit-learn.

linear              RobustClassifier, RobustRegressor
cross_validation    the same with the radius chosen by cross-validation
"""
