"""Spectral risks
==============

A spectral risk is a mean of the sorted losses whose weights grow with the rank. The extremile of r
is the expected largest of r losses drawn at random, and CVaR the mean of the worst share.

**Lesson**: CVaR counts rows fully or not at all. Extremile and exponential spectra use all rows,
and go smoothly from the mean to the largest loss as r grows.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import CVaR, Exponential, Extremile, Spectral, worst_case

losses = np.sort(np.random.default_rng(0).beta(2.0, 4.0, size=500))
rank = (np.arange(losses.size) + 0.5) / losses.size
risks = {
    "CVaR(0.25)": CVaR(0.25),
    "Extremile(4)": Extremile(4),
    "Exponential(4)": Exponential(4),
    "Spectral([1, 1, 2, 4])": Spectral([1, 1, 2, 4]),
}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for name, risk in risks.items():
    worst = worst_case(losses, divergence=risk)
    left.plot(rank, losses.size * worst.weights, label=f"{name}: {worst.value:.2f}")
left.axhline(1.0, color="grey", linewidth=0.8)
left.set(xlabel="rank of the loss", ylabel="weight relative to the data", title="Spectra")
left.legend(frameon=False)

r = np.geomspace(1.0, 1000.0, 40)
right.plot(r, [worst_case(losses, divergence=Extremile(one)).value for one in r], label="extremile")
right.plot(
    r, [worst_case(losses, divergence=Exponential(one - 1.0)).value for one in r],
    label="exponential, r − 1",
)  # fmt: skip
for level, name in ((losses.max(), "largest loss"), (losses.mean(), "mean")):
    right.axhline(level, color="grey", linewidth=0.8)
    right.annotate(name, (1.0, level), xytext=(0, 3), textcoords="offset points")
right.set(xlabel="r", xscale="log", ylabel="risk", title="From the mean to the largest loss")
right.legend(frameon=False)
plt.show()
