"""Check an installed drolearn: load the core, compute worst cases, fit a model."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path

import numpy as np

import drolearn
from drolearn import CVaR, RobustClassifier, _core, worst_case


def main() -> None:
    losses = [0.1, 0.2, 0.3, 4.0]
    mean, largest = 1.15, 4.0
    for divergence in ("chi2", "kl", "reverse-kl", "hellinger", "jensen-shannon"):
        plain = worst_case(losses, rho=0.0, divergence=divergence)
        assert math.isclose(plain.value, mean), divergence
        found = worst_case(losses, rho=0.1, divergence=divergence)
        assert mean < found.value < largest, divergence
        assert found.gap < 1e-9, divergence
    assert math.isclose(worst_case(losses, divergence=CVaR(0.5)).value, 2.15)

    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 5))
    y = X[:, 0] + 0.1 * rng.standard_normal(500) > 0
    classifier = RobustClassifier(rho=0.1).fit(X, y)
    assert classifier.converged_
    assert classifier.score(X, y) > 0.9
    for name in ("template.html", "report.css", "report.js", "charts.js", "licences.txt"):
        assert (files("drolearn.stress") / "page" / name).is_file(), name
    place = Path(drolearn.__file__).parent
    print(f"drolearn {drolearn.__version__} works in {place} (kernels: {_core.target()})")


if __name__ == "__main__":
    main()
