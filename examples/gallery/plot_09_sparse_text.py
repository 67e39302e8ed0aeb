"""Sparse text
===========

20,000 generated documents of 5,000 words, as a CSR matrix. The exact solver and the unbiased
stochastic gradient read it without copying.

**Lesson**: for a rough answer, draws of rows are enough; the exact solver proves what it found.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import solve
from drolearn.datasets import text_like

X, y = text_like(20_000, 5_000)
rho, l2 = 0.1, 1e-4
exact = solve(X, y, rho=rho, l2=l2, tol=1e-8, callback=lambda history: False).history
optimum = exact.value[-1]
passes = [0.25, 0.5, 1, 2, 4, 8, 16]
stochastic = [
    solve(X, y, rho=rho, l2=l2, solver="gssg", max_iter=m, tol=None, random_state=0).value
    for m in passes
]

figure, ax = plt.subplots(layout="constrained")
ax.loglog(passes, np.array(stochastic) / optimum - 1.0, "o-", label="gssg")
above = np.maximum(np.array(exact.value) / optimum - 1.0, 1e-8)
ax.loglog(np.array(exact.samples) / X.shape[0], above, "s-", color="black", label="exact")
ax.set(xlabel="passes over the data", ylabel="robust loss, relative to the optimum, minus 1")
ax.legend(frameon=False)
plt.show()
