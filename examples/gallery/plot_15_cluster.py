"""Rows that stay on a cluster
===========================

Sensors in ten places, one partition each, and one place is unusual. The estimators of
`drolearn.dask` fit them on a cluster, here one of two workers in this process, and the worst case
of the losses is computed where the losses are.

**Lesson**: only sums travel, and the model is that of one machine. The weights of the worst case
say which partition it looks at.
"""

from typing import Any

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client

import drolearn
from drolearn.dask import RobustClassifier, worst_case

rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 5))
place = np.repeat(np.arange(10), 2_000)
slope = np.where(place == 7, -1.0, 1.0)  # one feature has the opposite effect in place 7
y = slope * X[:, 0] + X[:, 1] + rng.normal(size=place.size) > 0.0

client = Client(processes=False, n_workers=2, dashboard_address=":0")
chunks: Any = (2_000, 5)
X_parts, y_parts = da.from_array(X, chunks), da.from_array(y, chunks[:1])
model = RobustClassifier(rho=0.3, client=client).fit(X_parts, y_parts)
worst = worst_case(model.losses(X_parts, y_parts), rho=0.3)
weights: Any = worst.weights
shares = weights.compute().reshape(10, -1).sum(axis=1)
client.close()

local = drolearn.RobustClassifier(rho=0.3).fit(X, y)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
at = np.arange(X.shape[1])
left.bar(at - 0.2, model.coef_[0], 0.36, label="cluster")
left.bar(at + 0.2, local.coef_[0], 0.36, label="one machine")
left.set(xlabel="feature", ylabel="coefficient")
left.legend(frameon=False)
right.bar(np.arange(10), shares)
right.axhline(0.1, color="grey", linewidth=0.8)
right.set(xlabel="partition", ylabel="weight in the worst case")
plt.show()

# %%
# Largest difference between the coefficients:
print(f"{np.abs(model.coef_ - local.coef_).max():.1e}")
