"""Estimators for scikit-learn.

classification      RobustClassifier
regression          RobustRegressor
streaming           `partial_fit` of both
classifier_cv       RobustClassifierCV: radius and penalty chosen by cross-validation
regressor_cv        RobustRegressorCV, likewise
path                what both of these share: the grid, the choice, the plot
folds               fitting and scoring all candidates on one fold
ensemble_classifier RobustEnsembleClassifier: any classifier, in rounds of fits and worst cases
ensemble_regressor  RobustEnsembleRegressor, likewise
ensemble, rounds    what both of these share; averages of weights and the duality gap
boosting_classifier RobustBoostingClassifier: boosted trees of LightGBM or XGBoost
boosting_regressor  RobustBoostingRegressor, likewise
boosting            what both of these share
tree_libraries      how LightGBM and XGBoost differ
labels              checks of class labels
agreement           domain_agreement
reference           losses of a reference model
cross_fitting       folds, sample weights and probabilities of any estimator
training_data       validated arguments of `fit`, and sample weights
evaluation          the worst case of a fitted model on any data
base                what all linear estimators share; training_data: their rows and weights
baselines           Temperature, and weights of groups: models without a ball to compare with
callbacks           callbacks, where the installed scikit-learn has them
state               what pickle and skops store
"""
