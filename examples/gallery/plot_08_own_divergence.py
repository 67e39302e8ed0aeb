"""A divergence of your own
========================

φ(s) = (s − 1)²/(s + 1), the triangular discrimination, as three functions of arrays. The library
checks them, and everything that takes a divergence takes this one.

**Lesson**: φ, its derivative and the inverse of the derivative are all that is needed.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import Divergence, worst_case

triangular = Divergence.custom(
    phi=lambda s: (s - 1.0) ** 2 / (s + 1.0),
    dphi=lambda s: 1.0 - 4.0 / (s + 1.0) ** 2,
    dphi_inverse=lambda u: 2.0 / np.sqrt(1.0 - u) - 1.0,
    phi_zero=1.0,
    name="triangular",
)

losses = np.sort(np.random.default_rng(0).beta(2.0, 4.0, size=300))
figure, ax = plt.subplots(layout="constrained")
for rho in (0.02, 0.05, 0.1):
    worst = worst_case(losses, rho=rho, divergence=triangular)
    ax.plot(losses, losses.size * worst.weights, label=f"ρ = {rho}: gap {worst.gap:.0e}")
ax.set(xlabel="loss of the row", ylabel="weight relative to the data")
ax.legend(frameon=False)
plt.show()

# %%
# The library has this divergence by name, too. The largest difference of the weights:
named = worst_case(losses, rho=0.1, divergence="triangular")
print(f"{np.abs(named.weights - worst.weights).max():.0e}")
