"""What the worst case does to the data
====================================

The worst case of a ball around the data gives rows with large losses more weight. How it does so
depends on the divergence. All balls here hold every subset of 80% of the rows.

**Lesson**: χ² moves weight in proportion to the loss and drops rows with small losses. CVaR only
asks which rows are among the worst. KL and Hellinger give the very largest losses the most
weight.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import CVaR, worst_case

losses = np.sort(np.random.default_rng(0).beta(2.0, 4.0, size=500))
share = 0.8
balls = {
    "χ²": worst_case(losses, rho=1.0 / share - 1.0),
    "KL": worst_case(losses, rho=-np.log(share), divergence="kl"),
    "Hellinger": worst_case(losses, rho=1.0 - np.sqrt(share), divergence="hellinger"),
    "CVaR": worst_case(losses, divergence=CVaR(share)),
}

figure, ax = plt.subplots(layout="constrained")
for name, worst in balls.items():
    ax.plot(losses, losses.size * worst.weights, label=f"{name}: robust loss {worst.value:.2f}")
ax.axhline(1.0, color="grey", linewidth=0.8)
ax.set(xlabel="loss of the row", ylabel="weight relative to the data")
ax.legend(frameon=False)
ax.set_title(f"The same losses, mean {losses.mean():.2f}, in four balls")
plt.show()
