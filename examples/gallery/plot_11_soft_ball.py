"""A price instead of a radius
===========================

A soft ball has a price τ for the divergence instead of a radius ρ. For KL its value is the tilted
loss τ log mean exp(z/τ), which goes from the largest loss (τ = 0) to the mean (τ = ∞).

**Lesson**: prices and radii describe the same worst cases. The radius of a soft ball is the
divergence of its weights, and the price of a ball is its multiplier α.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import worst_case

losses = np.random.default_rng(0).beta(2.0, 4.0, size=500)
prices = np.geomspace(0.01, 10.0, 40)
soft = [worst_case(losses, divergence="kl", tau=price) for price in prices]
balls = [worst_case(losses, rho=one.achieved, divergence="kl") for one in soft]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(prices, [one.value for one in soft], label="Σ p z − τ D, the tilted loss")
left.plot(prices, [one.value for one in balls], label="Σ p z, the ball with the same weights")
for level, name in ((losses.max(), "largest loss"), (losses.mean(), "mean")):
    left.axhline(level, color="grey", linewidth=0.8)
    left.annotate(name, (0.01, level), xytext=(0, 3), textcoords="offset points")
left.set(xlabel="price τ", xscale="log", title="Values")
left.legend(frameon=False, loc="center right")

right.loglog([one.achieved for one in soft], prices, label="price of the soft ball")
right.loglog(
    [one.rho for one in balls], [one.alpha for one in balls], "--", label="multiplier of the ball"
)
right.set(xlabel="radius ρ", ylabel="price τ", title="The path between both")
right.legend(frameon=False)
plt.show()
