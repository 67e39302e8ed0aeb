"""Choosing the radius
===================

A ball over rows, from ρ = 0 to the radius from which on the model is zero.

**Lesson**: the robust loss falls first, the mean loss rises, and confidence shrinks all the way.
`rho_max` is the radius at which nothing is left to learn; a useful radius is well below it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from drolearn import RobustClassifier, rho_max, worst_case
from drolearn.datasets import load_adult

adult = load_adult()
rows = np.random.default_rng(0).permutation(adult.y.size)[:8000]
scaler = StandardScaler().fit(adult.X[rows[:4000]])
X, X_test = scaler.transform(adult.X[rows[:4000]]), scaler.transform(adult.X[rows[4000:]])
y, y_test = adult.y[rows[:4000]], adult.y[rows[4000:]]

largest = rho_max(X, y)
radii = largest * np.linspace(0.0, 0.99, 12)
models = [RobustClassifier(rho=rho).fit(X, y) for rho in radii]
losses = [model.losses(X_test, y_test) for model in models]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(radii, [z.mean() for z in losses], label="mean loss")
left.plot(radii, [worst_case(z, rho=0.3).value for z in losses], label="robust loss at ρ = 0.3")
left.set(xlabel="radius ρ of training", ylabel="log loss of test rows")
left.legend(frameon=False)
right.plot(radii, [np.linalg.norm(model.coef_) for model in models], color="tab:green")
right.axvline(largest, color="grey", linestyle="dotted")
right.annotate("rho_max", (largest, 0.0), ha="right", va="bottom")
right.set(xlabel="radius ρ of training", ylabel="norm of the coefficients", ylim=(0, None))
plt.show()
