"""A group that was rare in training
=================================

The bike rental data have two years. Training sees 5% of the second year, testing sees both years
in equal parts. Three linear models: a plain one, one with weights that give both years the same
total weight, and one that is trained against all mixes of the two years.

**Lesson**: reweighting aims at one mix, the ball over groups at the worst one. It lowers the
error of the worse year most.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from drolearn import RobustRegressor
from drolearn.datasets import load_bike_hour

bikes = load_bike_hour()
rng = np.random.default_rng(0)
later = bikes.year == np.unique(bikes.year)[1]
test = rng.random(bikes.y.size) < 0.3
train = ~test & (~later | (rng.random(bikes.y.size) < 0.05))
X = StandardScaler().fit(bikes.X[train]).transform(bikes.X)
y, year = bikes.y, bikes.year

_, number, counts = np.unique(year[train], return_inverse=True, return_counts=True)
models = {
    "plain": Ridge().fit(X[train], y[train]),
    "equal weights": Ridge().fit(X[train], y[train], sample_weight=1.0 / counts[number]),
    "ball over years": RobustRegressor(rho=np.inf).fit(X[train], y[train], groups=year[train]),
}

figure, ax = plt.subplots(layout="constrained")
for k, part in enumerate(np.unique(year)):
    rows = test & (year == part)
    errors = [np.sqrt(np.mean((m.predict(X[rows]) - y[rows]) ** 2)) for m in models.values()]
    ax.bar(np.arange(3) + 0.4 * k - 0.2, errors, 0.36, label=f"{part}")
ax.set_xticks(range(3), models)
ax.set_ylabel("root mean square error, test rows")
ax.legend(title="year", frameon=False)
plt.show()
