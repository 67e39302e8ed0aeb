"""Trimming
========

A regression in which 10% of the rows are errors: far away in x, and wrong in y. A ball gives them
more weight, and the Huber loss does not help against rows that are far away in x.

**Lesson**: trim before you take the worst case if the largest losses are errors.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import RobustRegressor

rng = np.random.default_rng(0)
x = rng.uniform(-1.0, 1.0, 200)
y = x + 0.2 * rng.standard_normal(200)
x[:20], y[:20] = rng.uniform(3.0, 4.0, 20), rng.uniform(-2.0, -1.0, 20)

fits = {
    "ball": RobustRegressor(rho=0.3),
    "ball, Huber loss": RobustRegressor(rho=0.3, loss="huber"),
    "ball, trim = 0.1": RobustRegressor(rho=0.3, trim=0.1),
}
line = np.array([-1.0, 4.0])
figure, ax = plt.subplots(layout="constrained")
ax.plot(x, y, ".", color="0.7")
for label, model in fits.items():
    ax.plot(line, model.fit(x[:, None], y).predict(line[:, None]), label=label)
ax.set(xlabel="x", ylabel="y", ylim=(-3, 4))
ax.legend(frameon=False)
plt.show()
