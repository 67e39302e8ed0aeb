"""The versions of dependencies that the package supports, and what differs between them."""

from __future__ import annotations

import tomllib
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from drolearn import RobustClassifier, RobustClassifierCV

ROOT = Path(__file__).parents[1]


def test_the_oldest_versions_are_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(requirement.split(">=") for requirement in project["dependencies"])
    lines = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    for name, bound in bounds.items():
        # SciPy 1.11.1 is the first release of 1.11.
        assert pins[name].startswith(f"{bound}."), name
        assert pins[name].removeprefix(f"{bound}.") in ("0", "1"), name


@pytest.mark.skipif(find_spec("sklearn.callback") is not None, reason="there are callbacks")
@pytest.mark.parametrize("cls", [RobustClassifier, RobustClassifierCV])
def test_without_callbacks_the_error_names_the_version(cls):
    X = np.random.default_rng(0).standard_normal((100, 2))
    model = cls().fit(X, X[:, 0] > 0)
    assert model.score(X, X[:, 0] > 0) > 0.9
    assert not hasattr(model, "set_callbacks")
    with pytest.raises(AttributeError, match=r"set_callbacks needs scikit-learn 1\.9 or later"):
        model.set_callbacks()


def test_folds_do_not_warn_of_zero_models():
    """The final fit does, once."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 3)), rng.choice([0, 1], 300)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf = RobustClassifierCV([5.0], cv=3).fit(X, y)
    assert not clf.coef_.any()
    assert ["zero model" in str(warning.message) for warning in caught] == [True]
