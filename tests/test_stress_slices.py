"""Describable sub-populations of stress tests: features, search, bounds, tables and wrong input."""

from __future__ import annotations

import itertools
import json
import re
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression

from drolearn import CVaR, squared_losses, stress_test, worst_case
from drolearn.stress.conditions import conditions_of, describe, rows_of
from drolearn.stress.features import Numbers, as_features, bins, cuts
from drolearn.stress.search import find_slices, required_share
from drolearn.stress.slices import SHARES, judged_slices, split
from drolearn.stress.worst_cases import Sample

mpl.use("Agg")


def people(n=4000, seed=0):
    """Features and losses: those of young people with long hours are four times as large."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n).astype(float),
            "hours": rng.integers(10, 80, n),
            "job": rng.choice(["clerk", "cook", "nurse"], n, p=[0.5, 0.3, 0.2]),
            "vip": rng.random(n) < 0.3,
        }
    )
    hurt = (frame["age"] <= 30) & (frame["hours"] > 50)
    return frame, rng.exponential(np.where(hurt, 4.0, 1.0)), hurt.to_numpy()


def run(z, over, **options):
    return stress_test(losses=z, over=over, **{"rhos": [0.0], "random_state": 0, **options})


def half(n):
    return np.full(n, 1.0 / n)


# -- features ------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3)), min_size=2),
    st.sampled_from([2, 5, 20]),
)
def test_cuts_divide_the_numbers_near_their_quantiles(values, parts):
    numbers = np.array(values)
    found = cuts(numbers, parts)
    assert found.size < parts
    assert (np.diff(found) > 0.0).all()
    for cut in found:
        assert 0 < np.sum(numbers <= cut) < numbers.size
        # The share below is at most half a step above that of some quantile.
        above = np.sum(numbers < cut) / numbers.size * parts % 1.0
        below = np.sum(numbers <= cut) / numbers.size * parts
        assert above <= 0.5 + 1e-9 or np.floor(below) >= 1.0


def test_cuts_have_few_digits_and_ignore_missing_and_infinite_numbers():
    numbers = np.random.default_rng(0).normal(37.123, 5.0, 10_000)
    assert all(cut == round(cut, 1) for cut in cuts(numbers, 10))
    more = np.concatenate([numbers, [np.nan, np.inf, -np.inf]])
    np.testing.assert_array_equal(cuts(more, 10), cuts(numbers, 10))
    np.testing.assert_allclose(cuts(1e-9 * numbers, 10), 1e-9 * cuts(numbers, 10), rtol=1e-12)
    assert cuts(np.array([np.nan, 1.0, 1.0]), 5).size == 0
    assert cuts(np.array([0.0] * 9 + [7.0]), 5).tolist() == [0.0]


def test_features_of_frames_arrays_and_names_are_the_same():
    frame, _, _ = people(50)
    n = len(frame)
    expected = as_features(frame, None, n)
    assert [type(each).__name__ for each in expected] == [
        "Numbers", "Numbers", "Partition", "Partition",
    ]  # fmt: skip
    for over, X in (
        ("all", frame),
        (["age", "hours", "job", "vip"], frame),
        (pl.from_pandas(frame), None),
        ({name: frame[name].tolist() for name in frame}, None),
        (frame.to_numpy(dtype=object), None),
    ):
        for one, other in zip(expected, as_features(over, X, n), strict=True):
            if isinstance(one, Numbers):
                np.testing.assert_array_equal(one.values, other.values)
            else:
                assert one.names == other.names
                np.testing.assert_array_equal(one.codes, other.codes)
    [job] = as_features("job", frame, n)
    assert job.column == "job"


def test_numbers_with_two_values_and_categories_of_numbers_are_names():
    frame = pd.DataFrame(
        {
            "two": [0.0, 1.0, np.nan, 1.0],
            "code": pd.Categorical([30, 10, 20, 10]),
            "nullable": pd.array([1, None, 3, 4], dtype="Int64"),
            "nothing": [None] * 4,
        }
    )
    two, code, nullable, nothing = as_features(frame, None, 4)
    assert two.names == [0, 1, "missing"]
    assert two.codes.tolist() == [0, 1, 2, 1]
    assert code.names == [10, 20, 30]
    np.testing.assert_array_equal(nullable.values, [1.0, np.nan, 3.0, 4.0])
    assert nothing.names == ["missing"]


def test_bins_are_groups_of_all_rows():
    frame, _, _ = people(3000)
    frame.loc[:20, "age"] = np.nan
    frame["city"] = np.random.default_rng(0).zipf(1.5, len(frame)).astype(str)
    for feature in as_features(frame, None, len(frame)):
        table = bins(feature, half(len(frame)))
        counts = np.bincount(table.codes, minlength=len(table.names))
        assert len(counts) == len(table.names) <= 11
        assert (counts > 0).all()
    age, *_, city = as_features(frame, None, len(frame))
    assert bins(age, half(3000)).names[-1] == "missing"
    assert bins(city, half(3000)).names[-1] == "other"
    three = Numbers("x", np.array([1.0, 1.0, 2.0, 2.0, 5.0]))
    assert bins(three, half(5)).names == ["≤ 1", "1 to 2", "> 2"]


def test_slices_read_as_sentences():
    frame = pd.DataFrame({"age": [20.0, 30.0, 40.0, None], "sex": ["f", "m", None, "x"]})
    features = as_features(frame, None, 4)
    every = np.ones(4, dtype=bool)
    all_conditions = conditions_of(features, every, half(4), 0.25)
    by_text = {describe((each,), features): each for each in all_conditions}
    assert set(by_text) == {
        "age ≤ 20", "age > 20", "age ≤ 30", "age > 30", "age is missing", "sex = f", "sex = m",
        "sex = x", "sex is missing", "sex ≠ f", "sex ≠ m", "sex ≠ x", "sex is not missing",
    }  # fmt: skip
    between = tuple(sorted([by_text["age ≤ 30"], by_text["age > 20"], by_text["sex ≠ f"]]))
    assert describe(between, features) == "20 < age ≤ 30 and sex ≠ f"
    assert rows_of(between, features, 4).tolist() == [False, True, False, False]
    assert rows_of((by_text["age is missing"],), features, 4).tolist() == [False] * 3 + [True]
    assert describe((), features) == "all rows"


# -- the search ----------------------------------------------------------------------------------


def test_the_search_finds_the_slice_that_was_planted():
    frame, z, hurt = people()
    report = run(z, frame)
    worst = report.bracket.set_index("share").loc[0.1]
    age, hours = re.fullmatch(r"age ≤ (\d+) and hours > (\d+)", worst["slice"]).groups()
    assert abs(int(age) - 30) <= 2
    assert abs(int(hours) - 50) <= 2
    row = report.slices[report.slices["slice"] == worst["slice"]].iloc[0]
    assert row["low"] < row["loss"] == pytest.approx(4.0, rel=0.2)
    assert row["others"] == pytest.approx(1.0, rel=0.1)
    assert row["share"] == pytest.approx(hurt.mean(), abs=0.05)
    assert row["sentence"] == (
        f"{worst['slice']}: {row['share']:.0%} of rows, "
        f"loss {row['loss']:.2f} against {row['others']:.2f}"
    )
    most = report.slices.sort_values("low").iloc[-1]
    assert f"losses: {most['sentence']}" in repr(report)


@pytest.mark.parametrize("seed", range(5))
def test_no_single_condition_is_better_than_what_is_found(seed):
    frame, _, _ = people(800, seed)
    z = np.random.default_rng(seed).exponential(size=800)
    features, rows, base = as_features(frame, None, 800), np.ones(800, dtype=bool), half(800)
    found = find_slices(features, rows, z, base, SHARES)
    masks = [each.rows(features) for each in conditions_of(features, rows, base, 0.05)]

    def score(inside):
        return z[inside].mean() - 3.0 * z[inside].std() / np.sqrt(inside.sum())

    for share, chosen in zip(SHARES, found, strict=True):
        inside = rows_of(chosen, features, 800)
        assert inside.mean() >= required_share(share, 800) > share
        usable = [mask for mask in masks if mask.mean() >= required_share(share, 800)]
        best = max(map(score, usable))
        error = max(z[mask].std() / np.sqrt(mask.sum()) for mask in usable)
        assert score(inside) >= best - error - 1e-9  # one more condition must be worth it


def test_the_search_is_as_good_as_all_pairs_of_conditions():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({name: rng.choice(list("abcd"), 3000) for name in "xyz"})
    inside = (frame["x"] == "a") & (frame["y"] != "b")
    z = rng.exponential(np.where(inside, 3.0, 1.0))
    features, rows = as_features(frame, None, 3000), np.ones(3000, dtype=bool)
    [found] = find_slices(features, rows, z, half(3000), [0.1])
    every = conditions_of(features, rows, half(3000), 0.1)
    masks = [
        one.rows(features) & other.rows(features) for one, other in itertools.combinations(every, 2)
    ]
    best = max(z[mask].mean() for mask in masks if mask.mean() >= required_share(0.1, 3000))
    chosen = rows_of(found, features, 3000)
    assert z[chosen].mean() >= best - 2.0 * z[chosen].std() / np.sqrt(chosen.sum())
    assert {"x = a", "y ≠ b"} <= set(describe(found, features).split(" and "))


def test_more_conditions_than_fit_are_screened_by_their_losses(monkeypatch):
    monkeypatch.setattr("drolearn.stress.search._CONDITIONS", 12)
    frame, z, _ = people()
    noise = np.random.default_rng(1).normal(size=(4000, 5))
    wide = pd.concat([pd.DataFrame(noise).add_prefix("noise"), frame], axis=1)
    worst = run(z, wide).bracket.set_index("share").loc[0.1]
    assert "age ≤" in worst["slice"]
    assert "noise" not in worst["slice"]


def test_slices_are_judged_on_rows_that_were_not_searched():
    frame, z, _ = people(1000)
    features, searched = as_features(frame, None, 1000), split(1000, np.random.default_rng(1))
    assert searched.sum() == 500
    rng = np.random.default_rng(2)
    found = judged_slices(Sample(z), features, searched, 0.95, rng)
    changed = np.where(searched, z, 10.0 * z + 1.0)
    again = judged_slices(Sample(changed), features, searched, 0.95, rng)
    for one, other in zip(found, again, strict=True):
        assert one.slice == other.slice  # losses of the other rows had no part in the choice
        inside = rows_of(one.slice, features, 1000) & ~searched
        assert one.loss == pytest.approx(z[inside].mean())
        assert one.rows == inside.sum()
        assert one.share == pytest.approx(inside.sum() / 500)
        assert other.loss == pytest.approx(10.0 * one.loss + 1.0)


def test_lower_bounds_hold_where_features_say_nothing():
    rng = np.random.default_rng(0)
    held, total = 0, 0
    for _ in range(60):
        frame = pd.DataFrame(rng.normal(size=(600, 4)))
        z = rng.exponential(size=600)  # every slice has the true mean 1
        searched = split(600, rng)
        found = judged_slices(Sample(z), as_features(frame, None, 600), searched, 0.95, rng)
        held += sum(each.low <= 1.0 for each in found if each.slice is not None)
        total += sum(each.slice is not None for each in found)
    # The mean of the searched half would be below 1 nearly always.
    assert total >= 200
    assert held >= 0.9 * total


def test_rows_without_weight_and_the_scale_of_weights_change_nothing():
    frame, z, _ = people(1500)
    weights = np.random.default_rng(0).integers(1, 4, 1500).astype(float)
    report = run(z, frame, sample_weight=weights, worst_rows=3)
    more = pd.concat([frame, frame[:100]], ignore_index=True)
    again = run(
        np.append(z, z[:100] + 50.0), more, sample_weight=np.append(7.0 * weights, np.zeros(100)),
        worst_rows=3,
    )  # fmt: skip
    for name in ("slices", "bracket", "features", "worst_rows"):
        pd.testing.assert_frame_equal(getattr(report, name), getattr(again, name))
    mean = np.average(z, weights=weights)
    inside = report.features[report.features["feature"] == "job"]
    assert inside["share"] @ inside["loss"] == pytest.approx(mean)


def test_heavy_rows_make_a_rare_value_a_slice():
    rng = np.random.default_rng(0)
    job = np.where(rng.random(4000) < 0.02, "pilot", "other")
    z = rng.exponential(np.where(job == "pilot", 3.0, 1.0))
    weights = np.where(job == "pilot", 20.0, 1.0)
    slices = run(z, pd.DataFrame({"job": job}), sample_weight=weights).slices["slice"]
    assert "job = pilot" in set(slices)


# -- tables --------------------------------------------------------------------------------------


def test_the_bracket_is_in_order_and_its_upper_side_is_the_worst_case():
    frame, z, _ = people()
    bracket = run(z, frame).bracket
    assert bracket["share"].tolist() == list(SHARES)
    for row in bracket.itertuples():
        assert row.cvar == pytest.approx(worst_case(z, divergence=CVaR(row.share)).value)
        assert row.chi2 == pytest.approx(worst_case(z, 1.0 / row.share - 1.0).value)
        assert row.low < row.loss < row.cvar < row.chi2
        assert row.cvar < row.high
        assert row.slice_share >= 0.9 * row.share
    assert bracket["cvar"].is_monotonic_increasing


def test_features_have_the_losses_and_worst_cases_of_their_groups():
    frame, z, _ = people()
    report = run(z, frame[["job", "vip"]], groups=frame[["job", "vip"]])
    groups = report.groups[report.groups["column"].isin(["job", "vip"])].reset_index(drop=True)
    names = {"feature": "column", "value": "group"}
    features, ends = report.features.rename(columns=names), ["low", "high"]
    pd.testing.assert_frame_equal(features.drop(columns=ends), groups.drop(columns=ends))
    # Bootstrap samples of their own.
    np.testing.assert_allclose(features[ends], groups[ends], rtol=0.02)
    numbers = run(z, frame[["age"]]).features
    assert numbers["share"].sum() == pytest.approx(1.0)
    assert numbers["worst_share"].sum() == pytest.approx(1.0)
    assert numbers["value"][0].startswith("≤")  # the young are hurt most


def test_worst_rows_are_those_with_the_largest_weights():
    frame, z, _ = people(300)
    assert run(z, frame).worst_rows.empty
    table = run(z, None, worst_rows=5).worst_rows
    weights = worst_case(z, 1.0).weights
    assert table["row"].tolist() == np.argsort(-weights)[:5].tolist()
    np.testing.assert_allclose(table["weight"], np.sort(weights)[::-1][:5])
    np.testing.assert_array_equal(table["loss"], z[table["row"]])
    assert len(run(z[:3], None, worst_rows=5).worst_rows) == 3


def test_models_regressions_and_regret_have_slices_of_their_own():
    frame, _, hurt = people()
    rng = np.random.default_rng(5)
    X = frame[["age", "hours"]]
    y = 0.1 * frame["age"] + rng.normal(size=len(frame)) * np.where(hurt, 5.0, 1.0)
    line = LinearRegression().fit(X[:500], y[:500])
    labels = np.where(y > y.median(), "high", "low")
    report = stress_test(line, X, y, over="all", rhos=[0.0], random_state=0)
    assert "age" in report.bracket["slice"][3]
    assert "hours" in report.bracket["slice"][3]
    z = squared_losses(line.predict(X), y)
    regret = stress_test(
        line, X, y, over="all", rhos=[0.0], random_state=0,
        reference_losses=np.where(hurt, z, 0.5 * z),
    )  # fmt: skip
    assert (regret.bracket["loss"] < report.bracket["loss"]).all()
    classifiers = {
        name: LogisticRegression(C=C).fit(X, labels) for name, C in (("a", 1), ("b", 1e-6))
    }
    several = stress_test(classifiers, X, labels, over=["hours"], rhos=[0.0], random_state=0)
    assert several.bracket["model"].tolist() == ["a"] * 5 + ["b"] * 5
    assert set(several.features["model"]) == {"a", "b"}


def test_the_seed_decides_and_the_other_tables_do_not_depend_on_the_features():
    frame, z, _ = people(1000)
    one, same, other = (run(z, frame, random_state=seed, worst_rows=2) for seed in (0, 0, 1))
    for name in ("slices", "bracket", "features", "worst_rows"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(same, name))
    assert not one.bracket["loss"].equals(other.bracket["loss"])
    pd.testing.assert_frame_equal(one.curve, run(z, None).curve)
    without = run(z, None)
    assert without.slices.empty
    assert without.bracket.empty
    assert without.features.empty


def test_tables_of_sub_populations_are_written_and_plotted():
    import matplotlib.pyplot as plt

    frame, z, _ = people()
    report = run({"a": z, "b": z[::-1].copy()}, frame, worst_rows=1)
    content = json.loads(report.to_json())
    for name in ("slices", "bracket", "features", "worst_rows"):
        assert len(content[name]) == len(getattr(report, name)) > 0
    ax = report.plot("slices")
    assert len(ax.get_yticklabels()) == len(report.slices)
    ax = plt.subplots()[1]
    assert report.plot("bracket", ax=ax) is ax
    assert [text.get_text() for text in ax.get_xticklabels()] == ["5%", "10%", "20%", "30%", "50%"]
    plt.close("all")
    for kind in ("slices", "bracket"):
        with pytest.raises(ValueError, match="no sub-populations to plot: pass over="):
            run(z, None).plot(kind)


# -- defined answers, and wrong input ------------------------------------------------------------


def test_nothing_to_find_is_all_rows():
    frame, z, _ = people(1000)
    for losses, over in (
        (np.full(1000, 0.1), frame),
        (z, pd.DataFrame({"same": ["a"] * 1000, "none": [np.nan] * 1000})),
    ):
        report = run(losses, over)
        assert set(report.bracket["slice"]) == {"all rows"}
        np.testing.assert_allclose(report.bracket["slice_share"], 1.0)
        assert report.slices.empty
        assert "against" not in repr(report)


def test_too_few_rows_are_no_slice():
    frame, z, _ = people(100)
    bracket = run(z, frame).bracket
    assert bracket["loss"].notna().tolist() == [True, False, False, False, False]
    assert bracket["note"][1] == "fewer than 20 rows in each half"
    assert bracket["cvar"].notna().all()
    assert run(z[:1], frame[:1]).bracket["loss"].isna().all()


def test_wrong_and_right_labels_have_exact_bounds():
    frame, z, _ = people(3000)
    report = run((z > 2.0).astype(float), frame)
    assert set(report.slices["method"]) == {"binomial"}
    assert (report.bracket["low"] <= report.bracket["loss"]).all()


def test_sliceline_finds_the_best_pair_of_values():
    pytest.importorskip("sliceline")
    frame, z, _ = people(2000)
    found = run(z, frame, slices="sliceline").bracket.set_index("share")
    ours = run(z, frame).bracket.set_index("share")
    assert "age" in found["slice"][0.05]
    for share in (0.5, 0.3, 0.2, 0.1):
        assert ours["loss"][share] >= found["loss"][share] - 0.3
    same = run(np.full(2000, 1.0), frame, slices="sliceline").bracket
    assert set(same["slice"]) == {"all rows"}
    missing = frame.assign(age=frame["age"].where(frame["age"] > 35))
    assert "age is missing" in " ".join(run(z, missing, slices="sliceline").slices["slice"])
    with pytest.raises(ValueError, match="must be 'search' with sample weights"):
        run(z, frame, slices="sliceline", sample_weight=np.arange(1.0, 2001.0))


def test_without_sliceline_the_error_says_how_to_install_it(monkeypatch):
    for name in ("sliceline", "sliceline.slicefinder"):
        monkeypatch.setitem(sys.modules, name, None)
    frame, z, _ = people(200)
    with pytest.raises(ImportError, match=r"pip install 'drolearn\[slices\]'"):
        run(z, frame, slices="sliceline")


FRAME = people(200)[0]


@pytest.mark.parametrize(
    ("over", "X", "message"),
    [
        (["agee"], FRAME, "must name columns of X. Got 'agee' instead. Did you mean 'age'?"),
        ("hour", FRAME, "Got 'hour' instead. Did you mean 'hours'?"),
        (["age"], None, "names columns of X, which was not given"),
        ("all", None, "which was not given"),
        (["age"], np.zeros((200, 2)), "X has no names. Pass a frame"),
        ("all", sp.csr_matrix((200, 2)), "must not be 'all' for a sparse X"),
        ([], FRAME, "must have at least one column"),
        (FRAME[:150], None, r"for each of the 200 rows. Got an array of shape \(150,\) for 'age'"),
        (np.zeros((200, 2, 2)), None, r"Got an array of shape \(200, 2, 2\)"),
        (pd.DataFrame({"t": pd.date_range("2020", periods=200)}), None, "Got times for 't'"),
        ({"a": [{}] * 200}, None, "Got other objects for 'a'"),
    ],
)
def test_wrong_features_are_refused_in_one_sentence(over, X, message):
    with pytest.raises(ValueError, match=message):
        stress_test(losses=np.arange(200.0), X=X, over=over)


def test_wrong_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"'search' or 'sliceline'. Got 'line' instead"):
        run(np.arange(9.0), None, slices="line")
    for rows in (-1, 2.5, True):
        with pytest.raises(ValueError, match="'worst_rows' parameter must be an integer"):
            run(np.arange(9.0), None, worst_rows=rows)
