"""Whether scores on validation domains predict scores on test domains."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.model_selection import LeaveOneGroupOut, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB

from drolearn import (
    DomainAgreement,
    RobustClassifier,
    RobustClassifierCV,
    RobustRegressorCV,
    domain_agreement,
)

GRID = {"l2s": [1.0, 10.0, 100.0], "path_tol": 1e-9}


def example(validation, test, chosen=(0,), plain=(0,)):
    """Agreement of two balls with two penalties each."""
    candidates = {"rho": np.array([0.0, 0.0, 1.0, 1.0]), "l2": np.array([2.0, 1.0, 2.0, 1.0])}
    names = [f"site {k}" for k in range(len(chosen))]
    tables = np.array(validation), np.array(test)
    return DomainAgreement(names, candidates, *tables, np.array(chosen), np.array(plain))


@pytest.fixture
def sites(two_classes):
    """Rows of four sites."""
    X, y = two_classes
    return X, y, np.array(["a", "b", "c", "d"])[np.arange(600) % 4]


def test_scores_are_those_of_single_fits(sites):
    X, y, site = sites
    search = RobustClassifierCV([0.0, 0.3], cv=LeaveOneGroupOut(), scoring="worst-domain", **GRID)
    found = domain_agreement(search, X, y, site)
    assert not hasattr(search, "rho_")
    assert found.domains == ["a", "b", "c", "d"]
    assert found.candidates["rho"].tolist() == [0.0] * 3 + [0.3] * 3
    assert found.candidates["l2"].tolist() == [100.0, 10.0, 1.0] * 2
    for k, name in enumerate("abcd"):
        train = site != name
        alone = RobustClassifierCV([0.0, 0.3], cv=LeaveOneGroupOut(), scoring="loss", **GRID)
        alone.fit(X[train], y[train], split_groups=site[train])
        np.testing.assert_allclose(found.validation[k], alone.scores_.mean(axis=0).ravel())
        model = RobustClassifier(0.3, l2=10.0 / train.sum(), tol=1e-9).fit(X[train], y[train])
        expected = -model.losses(X[~train], y[~train]).mean()
        assert found.test[k, 4] == pytest.approx(expected, rel=1e-4)
        assert found.chosen[k] == found.validation[k].argmax()
        assert found.plain[k] == found.validation[k, :3].argmax()


def test_tests_in_time_use_the_past_only(sites):
    X, y, _ = sites
    month = np.arange(600) // 50
    tests = TimeSeriesSplit(2, test_size=100)
    search = RobustClassifierCV([0.0, 0.1], cv=TimeSeriesSplit(3), scoring="worst-domain", **GRID)
    found = domain_agreement(search, X, y, month, tests=tests)
    assert found.domains == ["8, 9", "10, 11"]
    train, test = next(tests.split(X))
    z = RobustClassifier(0.1, l2=1 / 400, tol=1e-9).fit(X[train], y[train]).losses(X[test], y[test])
    assert found.test[0, 5] == pytest.approx(-max(z[:50].mean(), z[50:].mean()), rel=1e-4)
    alone = RobustClassifierCV([0.0, 0.1], cv=TimeSeriesSplit(3), scoring="worst-domain", **GRID)
    alone.fit(X[train], y[train], domains=month[train])
    np.testing.assert_array_equal(found.validation[0], alone.cv_results_["mean_score"])
    changed = y.copy()
    changed[test] = np.roll(y, 1)[test]
    later = domain_agreement(search, X, changed, month, tests=[(train, test)])
    np.testing.assert_array_equal(later.validation[0], found.validation[0])
    assert not np.allclose(later.test[0], found.test[0])


def test_groups_weights_and_a_reference_are_used(regression, sites):
    (X, y), (_, labels, site) = regression, sites
    rng = np.random.default_rng(0)
    w, g = rng.integers(1, 3, 600).astype(float), rng.integers(2, size=600)
    reg = RobustRegressorCV([0.0, 5.0], cv=LeaveOneGroupOut(), l2s=[1.0])
    plain = domain_agreement(reg, X, y, site)
    weighted = domain_agreement(reg, X, y, site, sample_weight=w)
    repeated = domain_agreement(reg, *(np.repeat(v, w.astype(int), axis=0) for v in (X, y, site)))
    np.testing.assert_allclose(weighted.test[:, 0], repeated.test[:, 0], rtol=1e-6)
    assert not np.allclose(weighted.test, plain.test, rtol=1e-4)
    grouped = domain_agreement(reg, X, y, site, groups=g)
    np.testing.assert_allclose(grouped.test[:, 0], plain.test[:, 0], rtol=1e-4)
    assert not np.allclose(grouped.test[:, 1], plain.test[:, 1], rtol=1e-4)
    clf = RobustClassifierCV([5.0], cv=LeaveOneGroupOut(), l2s=[1.0], exclude_zero=False)
    regret = clf.set_params(reference=GaussianNB())
    assert (domain_agreement(regret, X, labels, site).test > -0.69).all()


def test_correlation_regret_and_gain_follow_their_definition():
    rng = np.random.default_rng(0)
    validation, test = rng.integers(5, size=(2, 3, 4)).astype(float)  # some are equal
    found = example(validation, test, chosen=(0, 1, 3), plain=(1, 1, 0))
    expected = [spearmanr(a, b).statistic for a, b in zip(validation, test, strict=True)]
    np.testing.assert_allclose(found.correlation, expected)
    np.testing.assert_allclose(
        found.regret, test.max(axis=1) - [test[0, 0], test[1, 1], test[2, 3]]
    )
    np.testing.assert_allclose(found.random_regret, test.max(axis=1) - test.mean(axis=1))
    np.testing.assert_allclose(found.gain, [test[0, 0] - test[0, 1], 0.0, test[2, 3] - test[2, 0]])


def test_equal_scores_have_no_correlation():
    found = example([[1.0, 1.0, 1.0, 1.0]], [[1.0, 2.0, 3.0, 4.0]])
    assert np.isnan(found.correlation[0])
    assert "mean correlation +nan" in str(found)


def test_the_table():
    found = example([[-0.5, -0.4, -0.3, -0.45]], [[-0.5, -0.4, -0.3, -0.2]], (2,), (1,))
    lines = repr(found).splitlines()
    assert lines[1].split() == ["site", "0", "1", "2", "-0.3", "-0.3", "-0.2", "+0.40", "+0.1000"]
    assert (
        "regret of the choice 0.1, of a random one 0.15, gain over the smallest ball +0.1"
        in (lines[-1])
    )


def test_errors(sites):
    X, y, site = sites
    search = RobustClassifierCV([0.0], l2s=[1.0], cv=LeaveOneGroupOut())
    with pytest.raises(ValueError, match="must be a RobustClassifierCV or RobustReg"):
        domain_agreement(RobustClassifier(), X, y, site)
    with pytest.raises(ValueError, match=r"at least 3 domains, .* Got 2 instead"):
        domain_agreement(search, X, y, site == "a")
    with pytest.raises(ValueError, match=r"at least 2 domains, .* Got 1 instead"):
        domain_agreement(search, X, y, ["a"] * 600, tests=TimeSeriesSplit(2))
    with pytest.raises(ValueError, match="Got domains that overlap instead"):
        domain_agreement(search, X, y, np.ones((600, 2), dtype=bool))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        domain_agreement(search, X, y, site[:5])
