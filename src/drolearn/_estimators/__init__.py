"""Estimators for scikit-learn.

classification      RobustClassifier
regression          RobustRegressor
cross_validation    the same with the radius chosen by cross-validation
path                fitting and scoring radii in folds, for both of these
base                what all estimators share
callbacks           callbacks, where the installed scikit-learn has them
"""
