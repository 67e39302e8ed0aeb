"""Changes of the mix of groups, and the divergence between two samples."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import KFold, StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import CVaR, radius_between, radius_of, worst_case, worst_mix
from drolearn.divergence import NAMES, as_divergence
from tests.examples import seeds

RADII = [name for name in NAMES if name != "cvar"]
PEOPLE = np.array(["men"] * 6 + ["women"] * 3 + ["unknown"])


# -- radius_of -----------------------------------------------------------------------------------


@st.composite
def mixes(draw):
    """Groups of rows, weights of rows, and another mix of all groups."""
    rng = np.random.default_rng(draw(seeds))
    k = draw(st.integers(2, 6))
    groups = np.append(np.arange(k), rng.integers(k, size=30))
    weights = rng.random(groups.size) + 0.1 if draw(st.booleans()) else None
    mix = rng.dirichlet(np.ones(k))
    if draw(st.booleans()):
        mix[0] = 0.0
        mix /= mix.sum()
    return groups, weights, mix, rng


@pytest.mark.parametrize("name", RADII)
@settings(max_examples=25, deadline=None)
@given(problem=mixes())
def test_the_ball_of_this_radius_holds_the_mix_and_a_smaller_one_does_not(name, problem):
    groups, weights, mix, rng = problem
    found = radius_of(groups, dict(enumerate(mix.tolist())), weights)
    radius, shares = found[name], found.shares
    np.testing.assert_allclose(found.mix, mix, rtol=1e-9)
    for _ in range(3):
        losses = rng.standard_normal(mix.size)
        worst = worst_case(losses, radius, name, shares)
        assert worst.value >= mix @ losses - 1e-8
    if math.isinf(radius):
        assert name == "reverse-kl"
        assert mix[0] == 0.0
        return
    # φ is convex, so D ≤ ρ lies on one side of the tangent at q: its slope are losses for which
    # q is the worst case.
    slope = gradient(as_divergence(name), mix, shares)
    assert worst_case(slope, 0.9 * radius, name, shares).value < mix @ slope - 1e-9


def gradient(divergence, mix, shares):
    """φ'(q/s), or a subgradient of it."""
    s = mix / shares
    if divergence.name == "total-variation":
        return 0.5 * np.sign(s - 1.0)
    h = 1e-6
    slope = (divergence.phi(s + h) - divergence.phi(np.maximum(s - h, 0.0))) / (
        h + np.minimum(s, h)
    )
    # Where q is zero, any slope of at most φ'(0) is normal to the set of mixes.
    return np.where(mix > 0.0, slope, slope[mix > 0.0].min() - 10.0)


@settings(max_examples=50, deadline=None)
@given(problem=mixes())
def test_the_level_of_cvar_is_the_largest_that_holds_the_mix(problem):
    groups, weights, mix, _ = problem
    found = radius_of(groups, dict(enumerate(mix.tolist())), weights)
    assert CVaR(found.cvar_level).between(found.mix, found.shares) == 0.0
    if found.cvar_level < 0.99:
        assert CVaR(1.01 * found.cvar_level).between(found.mix, found.shares) == math.inf


def test_groups_that_are_not_named_keep_their_proportions():
    found = radius_of(PEOPLE, {"women": 0.65})
    assert found.names.tolist() == ["men", "unknown", "women"]
    np.testing.assert_allclose(found.shares, [0.6, 0.1, 0.3])
    np.testing.assert_allclose(found.mix, [0.3, 0.05, 0.65])
    assert found["chi2"] == pytest.approx(0.09 / 0.6 + 0.0025 / 0.1 + 0.35**2 / 0.3)
    same = radius_of(PEOPLE, {"women": 0.65, "men": 0.3, "unknown": 0.05})
    assert dict(same) == pytest.approx(dict(found), rel=1e-12)
    assert list(found) == RADII


def test_no_change_has_radius_zero_and_level_one():
    found = radius_of(PEOPLE, {"women": 0.3})
    assert max(found.values()) < 1e-15
    assert found.cvar_level == pytest.approx(1.0)


def test_decimal_fractions_that_sum_to_one_leave_no_rest():
    found = radius_of(["a", "b", "c", "d"], {"a": 0.7, "b": 0.2, "c": 0.1})  # 1 − 1e-16
    assert found.mix[3] == 0.0
    assert found["reverse-kl"] == math.inf


def test_weights_of_rows_make_the_shares_and_several_columns_make_tuples():
    doubled = radius_of(["a", "a", "a", "b"], {"b": 0.5})
    weighted = radius_of(["a", "b"], {"b": 0.5}, sample_weight=[3.0, 1.0])
    assert dict(weighted) == pytest.approx(dict(doubled))
    frame = pd.DataFrame({"sex": ["m", "m", "f", "f"], "old": [True, False, True, True]})
    found = radius_of(frame, {("f", True): 0.2})
    np.testing.assert_allclose(found.mix.sum(), 1.0)
    assert repr(found.names.tolist()[0]) == "('f', True)"
    assert found.mix[found.names.tolist().index(("f", True))] == pytest.approx(0.2)
    assert radius_of([1, 2, 2], {1: 0.5}).cvar_level == pytest.approx(2 / 3)


def test_text_of_radii_has_every_group_and_divergence():
    text = str(radius_of(PEOPLE, {"women": 0.5}))
    for word in ["women", "unknown", *RADII, "CVaR"]:
        assert word in text
    many = str(radius_of(np.arange(50), {3: 0.5}))
    assert "and 30 more groups" in many


def test_cvar_has_no_radius():
    found = radius_of(PEOPLE, {"women": 0.5})
    assert "cvar" not in found
    with pytest.raises(KeyError, match="CVaR has no radius"):
        found["cvar"]


@pytest.mark.parametrize(
    ("groups", "shares", "weights", "words"),
    [
        (PEOPLE, {"woman": 0.5}, None, "Got 'woman' instead. Did you mean 'women'?"),
        (PEOPLE, {7: 0.5}, None, "name groups that have rows: 'men', 'unknown', 'women'. Got 7"),
        (PEOPLE, {"women": 1.5}, None, "numbers from 0 to 1. Got 1.5 for group 'women'"),
        (PEOPLE, {"women": -0.1}, None, "numbers from 0 to 1"),
        (PEOPLE, {"women": math.nan}, None, "Got nan for group 'women'"),
        (PEOPLE, {"women": "half"}, None, "Got 'half'"),
        (PEOPLE, {"women": 0.7, "men": 0.5}, None, "at most one. Got a sum of 1.2"),
        (PEOPLE, {"women": 0.7, "men": 0.1, "unknown": 0.1}, None, "one, because all groups"),
        (PEOPLE, {}, None, "a dict of at least one group"),
        (PEOPLE, [0.5, 0.5], None, "a dict of at least one group"),
        (PEOPLE, {"unknown": 0.5}, [1.0] * 9 + [0.0], "without weight"),
        (PEOPLE, {"women": 0.5}, [1.0] * 3, "one weight for each of the 10 rows"),
        ([], {"a": 1.0}, None, "Got an array of shape (0,)"),
        ("women", {"women": 1.0}, None, "Got an array of shape ()"),
        ([1.0, math.nan], {1.0: 0.5}, None, "missing values"),
        (["a", math.nan], {"a": 0.5}, None, "missing values"),
        (["a", None, "b"], {"a": 0.5}, None, "missing values"),
        (np.eye(3, dtype=bool), {0: 0.5}, None, "Got a Boolean matrix"),
    ],
)
def test_mixes_that_cannot_be(groups, shares, weights, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        radius_of(groups, shares, weights)
    assert words in str(error.value)


# -- worst_mix -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_worst_mix_is_the_worst_case_of_group_means(name, weighted):
    rng = np.random.default_rng(0)
    groups, losses = rng.choice(["a", "b", "c", "d"], 80), rng.exponential(size=80)
    weights = rng.random(80) if weighted else np.ones(80)
    rho = None if name == "cvar" else 0.2
    found = worst_mix(losses, groups, rho, name, weights if weighted else None)
    shares = np.array([weights[groups == g].sum() for g in "abcd"]) / weights.sum()
    means = [np.average(losses[groups == g], weights=weights[groups == g]) for g in "abcd"]
    expected = worst_case(means, rho, name, shares)
    assert found.names.tolist() == list("abcd")
    assert found.counts.tolist() == [int(np.sum(groups == g)) for g in "abcd"]
    np.testing.assert_allclose(found.shares, shares)
    np.testing.assert_allclose(found.losses, means)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
    assert found.value == pytest.approx(expected.value)
    assert found.mean == pytest.approx(np.average(losses, weights=weights))
    assert found.mean <= found.value <= max(means)


def test_groups_may_overlap():
    member = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=bool)
    found = worst_mix([1.0, 3.0, 5.0, 0.0], pd.DataFrame(member, columns=["x", "y"]), math.inf)
    assert found.names.tolist() == ["x", "y", "none"]
    assert found.counts.tolist() == [2, 2, 1]
    np.testing.assert_allclose(found.losses, [2.0, 4.0, 0.0])
    np.testing.assert_allclose(found.shares, [0.4, 0.4, 0.2])
    assert found.mean == pytest.approx(2.4)
    assert (found.value, found.weights.tolist()) == (4.0, [0.0, 1.0, 0.0])


def test_the_radius_of_a_mix_is_a_radius_of_the_worst_mix():
    losses = np.where(PEOPLE == "women", 2.0, 1.0)
    rho = radius_of(PEOPLE, {"women": 0.5})["kl"]
    found = worst_mix(losses, PEOPLE, rho, "kl")
    assert found.value == pytest.approx(1.5)
    lines = str(found).splitlines()
    assert lines[1].split() == ["women", "3", "2", "0.3", "0.5"]  # the largest loss is first
    assert "worst-case loss 1.5 (KL(), rho=" in lines[-1]


def test_a_group_without_weight_has_no_mean():
    found = worst_mix([1.0, 2.0, 9.0], ["a", "b", "c"], 0.1, sample_weight=[1.0, 1.0, 0.0])
    assert math.isnan(found.losses[2])
    assert found.weights[2] == 0.0
    assert found.value < 2.0
    assert "nan" in str(found).splitlines()[3]


@pytest.mark.parametrize(
    ("losses", "groups", "rho", "words"),
    [
        ([], [], 0.1, "at least one number"),
        ([1.0, math.nan], ["a", "b"], 0.1, "finite numbers. Got nan in row 1"),
        ([1.0, 2.0], ["a", "b", "c"], 0.1, "each of the 2 rows"),
        ([1.0, 2.0], ["a", "b"], -1.0, "at least 0"),
        ([1.0, 2.0], ["a", None], 0.1, "missing values"),
    ],
)
def test_losses_and_groups_that_do_not_fit(losses, groups, rho, words):
    with pytest.raises(ValueError, match=words):
        worst_mix(losses, groups, rho)


# -- radius_between ------------------------------------------------------------------------------


def normal(distance: float, n: int = 1500, d: int = 5, seed: int = 0, column: int = 0):
    """Two samples of normal rows, the second moved along one column."""
    rng = np.random.default_rng(seed)
    old, new = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    new[:, column] += distance
    return old, new


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("model", [LogisticRegression(), None])
def test_samples_of_one_distribution_have_no_shift(seed, model):
    old, new = normal(0.0, n=300, seed=seed)
    found = radius_between(old, new, model, random_state=seed, features=[0])
    for name in ("chi2", "kl", "total-variation"):
        low, high = found.intervals[name]
        assert low == 0.0
        assert low <= found[name] <= high < 0.2
    assert "no shift was found" in str(found)


@pytest.mark.parametrize("distance", [0.5, 1.0, 1.5])
def test_shifts_of_normal_distributions_are_estimated(distance):
    """KL within a fifth of the truth; χ², whose rarest rows matter most, within a factor of two."""
    old, new = normal(distance)
    found = radius_between(old, new, LogisticRegression(), random_state=0, features=[])
    kl, chi2 = distance**2 / 2, math.expm1(distance**2)
    variation = math.erf(distance / math.sqrt(8.0))
    assert found["kl"] == pytest.approx(kl, rel=0.2)
    assert 0.5 * chi2 < found["chi2"] < 1.2 * chi2
    assert found["total-variation"] == pytest.approx(variation, rel=0.15)
    for name in found:
        low, high = found.intervals[name]
        assert 0.0 < low < found[name] < high
    assert found.auc == pytest.approx(0.5 + 0.5 * math.erf(distance / 2), abs=0.02)
    assert found.features == []


def test_unequal_sizes_and_narrower_intervals():
    old, new = normal(0.7, n=2000)
    given = {"estimator": LogisticRegression(), "random_state": 0, "features": []}
    found = radius_between(old, new[:500], **given)
    assert found["kl"] == pytest.approx(0.245, rel=0.25)
    assert found.rows == (2000, 500)
    narrow = radius_between(old, new[:500], confidence=0.5, **given)
    assert dict(narrow) == dict(found)
    for name in found:
        assert found.intervals[name][0] < narrow.intervals[name][0]
        assert narrow.intervals[name][1] < found.intervals[name][1]


@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(20), None])
def test_samples_that_do_not_overlap_have_finite_estimates(model):
    old, new = normal(50.0, n=300)
    found = radius_between(old, new, model, random_state=0, features=[0])
    assert found.auc > 0.99
    assert 0.8 * 300 / 11 < found["chi2"] <= 300 / 11 * (1 + 1e-9)
    assert math.log(1 + 300 / 11) - 0.2 < found["kl"] <= math.log(1 + 300 / 11) + 1e-9
    assert found["total-variation"] > 0.9


@pytest.mark.parametrize("column", [0, 3])
@pytest.mark.parametrize("model", [LogisticRegression(), None])
def test_the_shift_of_one_feature_is_attributed_to_it(column, model):
    old, new = normal(1.0, n=400, column=column)
    found = radius_between(old, new, model, cv=3, random_state=0)
    assert found.features == [0, 1, 2, 3, 4]
    assert found.feature_shares.sum() == pytest.approx(1.0)
    assert found.feature_shares[column] > 0.85
    assert str(found).splitlines()[-5].split()[0] == str(column)


def test_a_classifier_that_is_too_sure_is_recalibrated():
    """Trees that are grown to single rows give 0 and 1; the ratio from these would be useless."""
    old, new = normal(1.0, n=600)
    sure = RandomForestClassifier(10, max_features=None)
    found = radius_between(old, new, sure, random_state=0, features=[])
    assert 0.25 < found["kl"] < 0.55
    assert 0.4 < found["chi2"] < 2.0


def mixed(n: int, share: float, seed: int, categories: list[str]):
    """A data frame with numbers that may be missing, categories, text and booleans."""
    rng = np.random.default_rng(seed)
    number = rng.standard_normal(n)
    number[:5] = np.nan
    return pd.DataFrame(
        {
            "number": number,
            "kind": pd.Categorical(rng.choice(categories, n)),
            "text": np.where(rng.random(n) < share, "x", "y"),
            "flag": rng.random(n) < 0.5,
        }
    )


def test_data_frames_of_mixed_types_need_no_preparation():
    old, new = mixed(400, 0.3, 0, ["a", "b"]), mixed(400, 0.7, 1, ["b", "a", "c"][:2])
    new["kind"] = new["kind"].cat.add_categories(["c"])
    new.loc[:3, "kind"] = "c"
    before = old.dtypes.to_dict()
    found = radius_between(old, new[["flag", "text", "kind", "number"]], cv=3, random_state=0)
    assert found.features == ["number", "kind", "text", "flag"]
    assert found.features[int(found.feature_shares.argmax())] == "text"
    assert found.intervals["chi2"][0] > 0.0
    assert old.dtypes.to_dict() == before
    only = radius_between(old, new, cv=3, random_state=0, features="text")
    assert (only.features, only.feature_shares.tolist()) == (["text"], [1.0])
    assert dict(only) == dict(found)


def test_polars_sparse_and_dense_give_the_same():
    old, new = normal(0.8, n=200, d=3)
    model = make_pipeline(StandardScaler(with_mean=False), LogisticRegression())
    expected = radius_between(old, new, model, random_state=0)
    frames = [pl.DataFrame(X, schema=["a", "b", "c"]) for X in (old, new)]
    found = radius_between(*frames, model, random_state=0)
    assert found.features == ["a", "b", "c"]
    for other in (
        found,
        radius_between(sp.csr_matrix(old), sp.csc_array(new), model, random_state=0),
    ):
        assert dict(other) == pytest.approx(dict(expected), rel=1e-6)
        np.testing.assert_allclose(other.feature_shares, expected.feature_shares, atol=1e-6)


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("model", [RandomForestClassifier(5), None])
def test_results_follow_from_the_random_state_for_any_number_of_processes(model):
    old, new = normal(0.5, n=120, d=2)
    found, again, parallel, other = (
        radius_between(old, new, model, cv=3, random_state=seed, n_jobs=jobs)
        for seed, jobs in ((0, None), (0, 1), (0, 2), (1, None))
    )
    for same in (again, parallel):
        assert dict(same) == dict(found)
        assert (same.intervals, same.auc) == (found.intervals, found.auc)
        np.testing.assert_array_equal(same.feature_shares, found.feature_shares)
    assert dict(other) != dict(found)


def test_rows_that_belong_together_stay_in_one_fold():
    """Copies of rows look like a shift unless a splitter keeps them together."""
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(60), 10)
    X = rng.standard_normal((60, 3))[day] + 0.01 * rng.standard_normal((600, 3))

    class ByDay:
        def split(self, X, y):
            splitter = StratifiedGroupKFold(4, shuffle=True, random_state=0)
            return splitter.split(X, y, groups=day)

    apart = radius_between(X[:300], X[300:], random_state=0, features=[])
    together = radius_between(X[:300], X[300:], cv=ByDay(), random_state=0, features=[])
    assert apart.auc > 0.95
    assert together.auc < 0.75


OLD, NEW = normal(1.0, n=20, d=2)
FRAME = pd.DataFrame(OLD, columns=["height", "weight"])
WITH_NAN = np.where(np.arange(20)[:, None] == 3, np.nan, OLD)


@pytest.mark.parametrize(
    ("old", "new", "options", "words"),
    [
        (OLD, NEW[:, :1], {}, "must have the 2 columns of 'X_old'. Got 1 columns"),
        (FRAME, FRAME.rename(columns={"height": "height_cm"}), {}, "Did you mean 'height_cm'?"),
        (FRAME, NEW, {}, "of the same kind as 'X_old', a data frame. Got an array"),
        (OLD, sp.csr_matrix(NEW), {}, "Got a sparse matrix"),
        (OLD, NEW[:3], {}, "Got 5 folds for a sample of 3 rows"),
        (OLD, NEW, {"cv": 1}, "'cv' parameter must be an integer of at least 2"),
        (OLD, NEW, {"cv": KFold(2)}, "train on rows of both samples"),
        (OLD, NEW[:0], {}, "'X_new' parameter must be a table with at least one row"),
        (OLD[:, 0], NEW, {}, "'X_old' parameter must be a table"),
        (OLD, NEW, {"estimator": RidgeClassifier()}, "predict_proba. Got RidgeClassifier()"),
        (OLD, NEW, {"estimator": LogisticRegression}, "classifier of scikit-learn"),
        (WITH_NAN, NEW, {"estimator": LogisticRegression()}, "does not: Input X contains NaN."),
        (OLD, NEW, {"features": [2]}, "columns of the samples: 0, 1. Got 2"),
        (OLD, NEW, {"confidence": 95}, "above 0 and below 1. Got 95"),
        (OLD, NEW, {"n_jobs": 0}, "'n_jobs'"),
        (OLD, NEW, {"random_state": "x"}, "'random_state'"),
    ],
)
def test_samples_that_cannot_be_compared(old, new, options, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        radius_between(old, new, **options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("model", [LogisticRegression(), None])
@pytest.mark.parametrize("table", [np.zeros, lambda shape: pd.DataFrame(np.zeros(shape))])
def test_constant_samples_have_no_shift(model, table):
    found = radius_between(table((20, 2)), table((30, 2)), model, random_state=0)
    assert dict(found) == pytest.approx({"chi2": 0.0, "kl": 0.0, "total-variation": 0.0})
    assert found.auc == 0.5


def test_a_classifier_that_knows_nothing_finds_nothing():
    found = radius_between(OLD, NEW, DummyClassifier(), cv=2, random_state=0)
    assert dict(found) == {"chi2": 0.0, "kl": 0.0, "total-variation": 0.0}
    assert found.auc == 0.5
    assert found.feature_shares.tolist() == [0.0, 0.0]
