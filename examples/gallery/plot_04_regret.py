"""Regret: leave out losses that no model avoids
=============================================

Every fourth label is wrong, whatever the features are. A ball over rows gives most weight
to these rows, and the model is close to zero. Regret subtracts the losses of a flexible reference
model, which cannot predict wrong labels either.

**Lesson**: with a reference, large balls keep a useful model.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from drolearn import RobustClassifier, ZeroModelWarning, reference_losses

warnings.simplefilter("ignore", ZeroModelWarning)  # the picture shows it
rng = np.random.default_rng(0)
X = rng.normal(size=(4000, 2))
right = X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.5
y = np.where(rng.random(4000) < 0.25, ~right, right)

c = reference_losses("auto", X, y)
plain = np.linalg.norm(LogisticRegression().fit(X, y).coef_)
radii = np.array([0.03, 0.1, 0.2, 0.3, 1.0, 3.0])
rows = [RobustClassifier(rho=rho).fit(X, y) for rho in radii]
regret = [RobustClassifier(rho=rho).fit(X, y, reference_losses=c) for rho in radii]

figure, ax = plt.subplots(layout="constrained")
for name, models in (("ball over rows", rows), ("regret", regret)):
    ax.plot(radii, [np.linalg.norm(m.coef_) / plain for m in models], "o-", label=name)
ax.set_xscale("log")
ax.set(xlabel="radius ρ", ylabel="norm of the coefficients, relative to a plain model")
ax.set_ylim(0.0, None)
ax.legend(frameon=False)
plt.show()
