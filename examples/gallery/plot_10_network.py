"""A network and a rare year
=========================

Bike rentals again, with 5% of the second year in training, and a small network. It minimises the
mean of its losses, a mean that gives both years the same weight, or the worst case over the
years.

**Lesson**: a robust criterion replaces one line of a training loop. Here it does about as much
for the rare year as equal weights do: a network fits both years, so there is less to trade than
in a linear model.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from drolearn.datasets import load_bike_hour
from drolearn.nn import RobustLoss

bikes = load_bike_hour()
rng = np.random.default_rng(0)
years, year = np.unique(bikes.year, return_inverse=True)
test = rng.random(bikes.y.size) < 0.3
train = ~test & ((year == 0) | (rng.random(bikes.y.size) < 0.05))
X = torch.tensor(StandardScaler().fit(bikes.X[train]).transform(bikes.X)).float()
y = torch.tensor(bikes.y / 100.0).float()
groups = torch.tensor(year[train])

equal = 1.0 / torch.bincount(groups)[groups] / 2.0
robust = RobustLoss(rho=100.0)
criteria = {
    "mean": torch.mean,
    "equal weights": lambda losses: (equal * losses).sum(),
    "worst case over years": lambda losses: robust(losses, groups=groups),
}


def errors(criterion):
    """Train a network; return its root mean square error in each year."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        criterion((network(X[train])[:, 0] - y[train]).square()).backward()
        optimizer.step()
    with torch.no_grad():
        squares = (network(X)[:, 0] - y).square().numpy() * 100.0**2
    return [np.sqrt(squares[test & (year == k)].mean()) for k in (0, 1)]


measured = np.array([errors(criterion) for criterion in criteria.values()])
figure, ax = plt.subplots(layout="constrained")
for k in (0, 1):
    ax.bar(np.arange(3) + 0.4 * k - 0.2, measured[:, k], 0.36, label=years[k])
ax.set_xticks(range(3), criteria)
ax.set_ylabel("root mean square error, test rows")
ax.legend(title="year", frameon=False)
plt.show()
