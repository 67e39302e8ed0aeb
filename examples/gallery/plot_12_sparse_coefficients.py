"""Sparse coefficients
===================

Thirty columns of which three matter. With an l1 penalty the exact solver sets coefficients to
exactly zero, and proves how far the model is from the optimum.

**Lesson**: the same penalty does not keep as many columns in a ball as at ρ = 0: here fewer at
strong penalties, more at weak ones. Compare models with equal numbers of columns.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import solve

rng = np.random.default_rng(0)
X = rng.standard_normal((500, 30))
y = X[:, :3].sum(axis=1) + rng.logistic(size=500) > 0
strengths = np.geomspace(0.2, 0.005, 15)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
for ax, rho in zip(axes, (0.0, 0.1), strict=True):
    path, start = [], None
    for l1 in strengths:
        solution = solve(X, y, rho=rho, l1=l1, start=start)
        path.append(solution.coef)
        start = solution.theta
    ax.semilogx(strengths, np.array(path)[:, 3:], color="0.8")
    ax.semilogx(strengths, np.array(path)[:, :3], color="C0")
    ax.set(title=f"ρ = {rho:g}", xlabel="l1 (blue: the columns that matter)")
    ax.invert_xaxis()
axes[0].set(ylabel="coefficient")
plt.show()
