"""Why a mini-batch is too optimistic
==================================

The worst case of a few rows is milder than the worst case of all. The robust loss of a batch is
therefore biased, and its gradient too. Multilevel draws remove the bias: most of them are small,
a few are large, and the signs of their blocks cancel the bias exactly.

**Lesson**: the bias of a fixed batch decreases only with its size. That of the multilevel
estimate is zero at the cost of about two batches.
"""

import matplotlib.pyplot as plt
import numpy as np

from drolearn import Multilevel, worst_case

rng = np.random.default_rng(0)
losses = rng.exponential(size=2**13)
rho, repetitions = 1.0, 4000
truth = worst_case(losses, rho=rho).value

sizes = 2 ** np.arange(2, 10)
fixed = [
    np.mean([worst_case(rng.choice(losses, size), rho=rho).value for _ in range(repetitions)])
    for size in sizes
]

method = Multilevel(losses.size, batch_size=16, rho=rho)
estimates, rows = [], []
for _ in range(repetitions):
    draw = method.draw(rng)
    z = losses[draw.indices]
    estimates.append(draw.weights(z) @ z)
    rows.append(z.size)
mean, error = np.mean(estimates), np.std(estimates) / np.sqrt(repetitions)

figure, ax = plt.subplots(layout="constrained")
ax.axhline(truth, color="black", label="robust loss of all rows")
ax.plot(sizes, fixed, "o-", color="tab:orange", label="mean over fixed batches")
ax.errorbar(
    np.mean(rows), mean, 2 * error, fmt="s", color="tab:blue", capsize=4,
    label=f"mean over multilevel draws of {np.mean(rows):.0f} rows on average",
)  # fmt: skip
ax.set_xscale("log", base=2)
ax.set(xlabel="rows of a draw", ylabel="robust loss")
ax.legend(frameon=False)
plt.show()
