"""Stress tests of models: curve, groups, break-even, plots, JSON, and wrong input."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from drolearn import (
    CressieRead,
    CVaR,
    absolute_losses,
    brier_losses,
    log_losses,
    radius_of,
    squared_losses,
    stress_test,
    worst_case,
    worst_mix,
    zero_one_losses,
)
from drolearn.divergence import NAMES
from tests.examples import noisy

mpl.use("Agg")
SOME = [0.0, 0.1, 1.0]


@pytest.fixture(scope="module")
def data():
    """Rows, labels that are strings, a pipeline and groups."""
    X, y = noisy(n=900)
    y = np.where(y > 0, "yes", "no")
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:300], y[:300])
    X, y = X[300:], y[300:]
    frame = pd.DataFrame(
        {"sex": np.where(X[:, 1] > 0, "m", "f"), "age": np.round(X[:, 2]).clip(-1, 1)}
    )
    frame.loc[:4, "sex"] = None
    return X, y, model, frame


def run(*arguments, **options):
    return stress_test(*arguments, **{"rhos": SOME, "random_state": 0, **options})


# -- losses of models ----------------------------------------------------------------------------


def test_losses_and_errors_of_a_classifier(data):
    X, y, model, _ = data
    proba, wrong = model.predict_proba(X), zero_one_losses(model.predict(X), y)
    for loss, z in (
        ("auto", log_losses(proba, y, model.classes_)),
        ("brier", brier_losses(proba, y, model.classes_)),
        ("zero-one", wrong),
        (lambda p, truth: p[np.arange(len(p)), (truth == "no").astype(int)], None),
    ):
        report = run(model, X, y, loss=loss)
        z = proba[np.arange(len(y)), (y == "no").astype(int)] if z is None else z
        for row in report.curve.itertuples():
            worst = worst_case(z, row.rho)
            assert row.loss == pytest.approx(worst.value)
            assert row.error == pytest.approx(worst.weights @ wrong)
            assert row.rows == pytest.approx(1.0 / (worst.weights @ worst.weights))
            assert row.share == pytest.approx(1.0 / (1.0 + row.rho))
            assert row.low < row.loss < row.high
    assert run(model, X, y).losses == ("log",)
    assert (run(model, X, y, loss="zero-one").curve["method"] == "binomial").all()


def test_losses_of_regressions_and_of_classifiers_without_probabilities(data):
    X, y, _, _ = data
    target = X[:, 0] + 0.1 * X[:, 1] ** 2
    model = LinearRegression().fit(X[:100], target[:100])
    for loss, function in (("auto", squared_losses), ("absolute", absolute_losses)):
        report = run(model, X, target, loss=loss)
        z = function(model.predict(X), target)
        assert report.curve["loss"][1] == pytest.approx(worst_case(z, 0.1).value)
        assert report.curve["error"].isna().all()
    assert run(RidgeClassifier().fit(X, y), X, y).losses == ("zero-one",)


def test_several_models_share_a_report(data):
    X, y, model, frame = data
    dummy = DummyClassifier().fit(X, y)
    report = run({"good": model, "bad": dummy}, X, y, groups=frame["sex"])
    assert list(report.curve["model"].unique()) == ["good", "bad"]
    assert len(report.curve) == 2 * len(SOME)
    assert set(report.groups["model"]) == {"good", "bad"}
    assert len(report.break_even) == 2
    twice = run([model, model], X, y)
    assert list(twice.break_even["model"]) == ["Pipeline", "Pipeline 2"]
    assert "good" in repr(report)
    assert "radius" in repr(report)


def test_losses_of_any_model():
    z = np.random.default_rng(0).exponential(size=50)
    report = run(losses={"a": z, "b": 2.0 * z}, baseline=np.full(50, 1.5))
    np.testing.assert_allclose(report.curve["loss"][3:], 2.0 * report.curve["loss"][:3])
    assert report.break_even["rho"][1] == 0.0
    assert run(losses=z).break_even.empty
    assert run(losses=z).groups.empty
    assert run(losses=z > 1.0).curve["method"][0] == "binomial"


def test_a_torch_module_is_a_model(data):
    torch = pytest.importorskip("torch")
    X, y, _, _ = data
    labels = (y == "yes").astype(int)
    two = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 2))
    report = run(two, X, labels)
    two.eval()
    with torch.no_grad():
        scores = two(torch.as_tensor(X, dtype=torch.float32))
        z = torch.nn.functional.cross_entropy(scores, torch.as_tensor(labels), reduction="none")
    two.train()
    assert report.losses == ("log",)
    assert report.curve["loss"][1] == pytest.approx(worst_case(z.numpy(), 0.1).value, rel=1e-5)
    assert two.training
    one = torch.nn.Linear(3, 1)
    found = run(one, X, labels)
    with torch.no_grad():
        probability = torch.sigmoid(one(torch.as_tensor(X, dtype=torch.float32)))[:, 0].numpy()
    assert found.curve["loss"][0] == pytest.approx(log_losses(probability, labels).mean(), rel=1e-5)
    assert run(one, X, X[:, 0]).losses == ("squared",)


def test_a_torch_module_takes_read_only_and_reversed_arrays_and_refuses_text(data):
    torch = pytest.importorskip("torch")
    X, y, _, _ = data
    labels, one = (y == "yes").astype(int), torch.nn.Linear(X.shape[1], 1)
    frozen = X[::-1]
    frozen.flags.writeable = False
    expected = stress_test(one, frozen.copy(), labels, rhos=[0.0, 1.0]).curve["loss"]
    assert stress_test(one, frozen, labels, rhos=[0.0, 1.0]).curve["loss"].equals(expected)
    with pytest.raises(ValueError, match=r"numbers for the PyTorch module 'Linear'.* type object"):
        stress_test(one, np.full((4, 3), "a", dtype=object), [0, 1, 0, 1])


def test_probabilities_of_too_few_rows_and_huge_losses(data):
    X, y, model, _ = data
    short = SimpleNamespace(
        predict=model.predict,
        predict_proba=lambda X: model.predict_proba(X)[:5],
        classes_=model.classes_,
    )
    with pytest.raises(ValueError, match=r"probabilities for each .* of shape \(5, 2\)"):
        stress_test(short, X, y)
    for losses in ([1.0, 1e300, 2.0], [-1.7e308, 1.7e308]):
        with pytest.raises(ValueError, match=r"from -1e\+120 to 1e\+120; .* at row [01]"):
            stress_test(losses=losses)
    report = stress_test(losses=1e120 * np.random.default_rng(0).random(50), divergence="all")
    assert np.isfinite(report.curve.groupby("divergence")["high"].first()).all()


def test_torch_and_pandas_are_not_imported_before_they_are_needed():
    program = (
        "import sys, drolearn.stress.analysis as a, numpy as np; print('pandas' in sys.modules);"
        "from sklearn.linear_model import LinearRegression as L; X = np.eye(5);"
        "a.stress_test(L().fit(X, X[0]), X, X[0], rhos=[0]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_without_pandas_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'drolearn\[stress\]'"):
        stress_test(losses=[0.1, 0.2])


# -- weights, regret, divergences ----------------------------------------------------------------


def test_rows_of_weight_zero_do_not_count_and_estimates_are_those_of_repeated_rows(data):
    X, y, model, frame = data
    counts = np.arange(len(y)) % 3
    weighted = run(model, X, y, sample_weight=counts, groups=frame)
    many = np.repeat(np.arange(len(y)), counts)
    repeated = run(model, X[many], y[many], groups=frame.iloc[many])
    for column in ("loss", "error"):
        np.testing.assert_allclose(weighted.curve[column], repeated.curve[column], rtol=1e-9)
    for column in ("share", "loss", "worst_share", "worst_mix"):
        np.testing.assert_allclose(weighted.groups[column], repeated.groups[column], rtol=1e-9)
    np.testing.assert_allclose(weighted.break_even["rho"], repeated.break_even["rho"], rtol=1e-6)


def test_reference_losses_make_it_a_regret():
    rng = np.random.default_rng(0)
    z, c = rng.exponential(size=(2, 60))
    report = run(losses=z, reference_losses=c)
    assert report.regret
    assert report.curve["loss"][2] == pytest.approx(worst_case(z - c, 1.0).value)
    assert run(losses=z > 1, reference_losses=c > 1).curve["method"][0] == "bootstrap-t"


@pytest.mark.parametrize("name", ["kl", "reverse-kl", "total-variation", "cvar"])
def test_curves_of_other_divergences_rise(name):
    z = np.random.default_rng(0).random(100)
    report = stress_test(losses=z, divergence=name, level=0.8, random_state=0)
    curve = report.curve
    assert len(curve) == 200
    assert curve["loss"][0] == pytest.approx(z.mean())
    assert (np.diff(curve["loss"]) >= -1e-9).all()
    k = 120
    ball = {"divergence": CVaR(curve["share"][k])} if name == "cvar" else {"rho": curve["rho"][k]}
    assert curve["loss"][k] == pytest.approx(worst_case(z, **{"divergence": name, **ball}).value)


def test_several_losses_and_divergences_are_those_of_single_calls(data):
    X, y, model, frame = data
    options = {"rhos": None, "groups": frame["sex"], "level": 0.9}
    both = run(model, X, y, loss=["log", "zero-one"], divergence=["chi2", "cvar"], **options)
    assert both.losses == ("log", "zero-one")
    assert both.divergences == ("chi2", "cvar")
    for loss in both.losses:
        for divergence in both.divergences:
            one = run(model, X, y, loss=loss, divergence=divergence, **options)
            for table in ("curve", "groups", "break_even", "radii"):
                part = both.select(table, loss, divergence).reset_index(drop=True)
                pd.testing.assert_frame_equal(part, getattr(one, table))
    with pytest.raises(ValueError, match=r"'loss' .* of this report: 'log' or 'zero-one'. Got 'b'"):
        both.select("curve", loss="b")
    with pytest.raises(ValueError, match=r"'table' parameter must be 'curve', .* Got 'curves'"):
        both.select("curves")


def test_all_losses_are_those_that_every_model_has(data):
    X, y, model, _ = data
    labels_only = RidgeClassifier().fit(X, y)
    assert run(model, X, y, loss="all").losses == ("log", "zero-one", "brier")
    assert run([model, labels_only], X, y, loss="all").losses == ("zero-one",)
    line = LinearRegression().fit(X, X[:, 0])
    assert run(line, X, X[:, 0], loss="all").losses == ("squared", "absolute")
    assert run(model, X, y, loss=["auto", "log"]).losses == ("log",)

    def cost(proba, truth):
        return proba[:, 0]

    assert run(model, X, y, loss=[cost, cost, "log"]).losses == ("cost", "cost 2", "log")


def test_all_divergences_have_the_same_shares():
    report = stress_test(losses=[0.1, 0.4, 0.2, 0.9], divergence="all", random_state=0)
    assert report.divergences == NAMES
    assert (report.curve.groupby("divergence").size() == 200).all()
    shares = report.curve.groupby("divergence")["share"].apply(list)
    for name in set(NAMES) - {"reverse-kl"}:
        assert shares[name] == pytest.approx(shares["chi2"])
    powers = run(losses=[0.1, 0.4], divergence=[CressieRead(1.5), CressieRead(3.0)])
    assert powers.divergences == ("CressieRead(k=1.5)", "CressieRead(k=3.0)")
    assert "also in the tables: CressieRead(k=3.0)" in repr(powers)


# -- groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "dict", "array"])
def test_groups_by_column_and_by_combination(data, kind):
    X, y, model, frame = data
    given = {
        "pandas": lambda: frame,
        "polars": lambda: pl.DataFrame(
            {"sex": [None] * 5 + frame["sex"].tolist()[5:], "age": frame["age"]}
        ),
        "dict": lambda: {name: frame[name] for name in frame},
        "array": lambda: frame.to_numpy(),
    }[kind]()
    table = run(model, X, y, groups=given).groups
    columns = ["sex", "age", "sex, age"]
    if kind == "array":
        columns = ["column 0", "column 1", "column 0, column 1"]
    assert list(table["column"].unique()) == columns
    z = log_losses(model.predict_proba(X), y, model.classes_)
    p = worst_case(z, 1.0).weights
    for column, part in table.groupby("column"):
        assert part["rows"].sum() == len(y)
        for share in ("share", "worst_share", "worst_mix"):
            assert part[share].sum() == pytest.approx(1.0)
        assert (np.diff(part["loss"]) <= 0.0).all(), column
    missing = table[(table["column"] == columns[0]) & (table["group"] == "missing")]
    assert missing["rows"].tolist() == [5]
    men = frame["sex"].to_numpy() == "m"
    row = table[(table["column"] == columns[0]) & (table["group"] == "m")].iloc[0]
    assert row["loss"] == pytest.approx(z[men].mean())
    assert row["worst_share"] == pytest.approx(p[men].sum())
    assert row["low"] < row["loss"] < row["high"]
    named = frame["sex"].fillna("missing").to_numpy().astype(str)
    mix = worst_mix(z, named, 1.0)
    assert row["worst_mix"] == pytest.approx(mix.weights[mix.names.tolist().index("m")])


def test_a_group_of_one_row_has_no_interval():
    report = run(losses=[0.1, 0.5, 0.3, 0.7], groups=["a", "a", "b", "a"])
    one = report.groups.set_index("group").loc["b"]
    assert math.isnan(one["low"])
    assert one["note"] == "one row"
    exact = run(losses=[0, 1, 1, 0], groups=["a", "a", "b", "a"]).groups.set_index("group")
    assert exact.loc["b", "low"] == pytest.approx(0.025)
    assert exact.loc["b", "high"] == 1.0


# -- radii of changes that have a name -----------------------------------------------------------


def test_radii_are_those_of_radius_of_and_reach_the_changed_mix():
    sex, z = ["f"] * 30 + ["m"] * 70, np.r_[np.ones(30), np.zeros(70)]
    radii = run(
        losses=z, groups={"sex": sex}, rhos=None, divergence=["chi2", "kl", "reverse-kl", "cvar"]
    ).radii
    for row in radii.itertuples():
        known = radius_of(sex, {row.group: row.changed_to})
        assert row.share == {"f": 0.3, "m": 0.7}[row.group]
        if row.divergence == "cvar":
            assert row.covers == pytest.approx(known.cvar_level)
        else:
            assert row.rho == pytest.approx(known[row.divergence])
    chi2 = radii[radii["divergence"] == "chi2"]
    assert (np.diff(chi2["rho"]) >= 0.0).all()
    np.testing.assert_allclose(chi2["covers"], 1.0 / (1.0 + chi2["rho"]))
    doubled = chi2[(chi2["group"] == "f") & (chi2["change"] == "doubles")].iloc[0]
    assert worst_mix(z, sex, doubled["rho"]).weights[0] == pytest.approx(0.6)
    assert doubled["meaning"] == "sex: the share of f doubles, from 30% to 60%"


def test_only_possible_changes_have_a_radius():
    def changes(sizes, **options):
        names = np.repeat(list("abcdefgh")[: len(sizes)], sizes)
        table = run(losses=np.arange(float(names.size)), groups=names, **options).radii
        return {(row.group, row.change) for row in table.itertuples()}

    assert changes([4]) == set()
    assert changes([2, 2]) == {(g, c) for g in "ab" for c in ("halves", "doubles")}
    three = {("a", "halves"), ("b", "halves"), ("b", "doubles")}
    assert changes([3, 1]) == three  # doubled is half
    assert changes([3, 1], sample_weight=[1.0, 1.0, 1.0, 3.0]) == changes([2, 2])
    assert changes([3, 1, 1], sample_weight=[1.0] * 4 + [0.0]) == three
    assert {group for group, _ in changes([9, 8, 7, 6, 5, 4, 3, 2])} == set("abcdef")


# -- break-even ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chi2", "kl", "total-variation", "reverse-kl"])
def test_break_even_is_the_radius_at_which_the_worst_difference_is_zero(name):
    rng = np.random.default_rng(0)
    z, c = rng.random(200), rng.random(200) + 0.2
    row = run(losses=z, baseline=c, divergence=name).break_even.iloc[0]
    assert worst_case(z - c, 0.999 * row["rho"], name).value < 0.0
    assert worst_case(z - c, 1.001 * row["rho"], name).value > 0.0
    assert row["baseline"] == pytest.approx(c.mean())


def test_break_even_of_cvar_is_a_level():
    rng = np.random.default_rng(0)
    z, c = rng.random(200), rng.random(200) + 0.2
    row = stress_test(losses=z, baseline=c, divergence="cvar", random_state=0).break_even.iloc[0]
    assert math.isnan(row["rho"])
    assert worst_case(z - c, divergence=CVaR(row["share"])).value == pytest.approx(0.0, abs=1e-9)


def test_break_even_of_models_that_are_always_better_or_worse(data):
    better = run(losses=[0.1, 0.2], baseline=[0.2, 0.2]).break_even.iloc[0]
    assert better["rho"] == math.inf
    assert better["meaning"] == "at least as good as the baseline on every row"
    worse = run(losses=[0.1, 0.9], baseline=[0.2, 0.2]).break_even.iloc[0]
    assert worse["rho"] == 0.0
    X, y, model, _ = data
    for loss in ("log", "zero-one", "brier"):
        prior = run(model, X, y, loss=loss).break_even["baseline"][0]
        dummy = run(DummyClassifier(strategy="prior").fit(X, y), X, y, loss=loss)
        assert prior == pytest.approx(dummy.curve["loss"][0])
        given = run(model, X, y, loss=loss, baseline=DummyClassifier().fit(X, y)).break_even
        assert given["baseline"][0] == pytest.approx(prior)


def test_the_baselines_of_regressions_are_mean_and_median():
    X = np.arange(7.0)[:, None]
    y = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 30.0])
    model = LinearRegression().fit(X, y)
    squared = run(model, X, y).break_even["baseline"][0]
    assert squared == pytest.approx(np.var(y) / 2.0)
    absolute = run(model, X, y, loss="absolute").break_even["baseline"][0]
    assert absolute == pytest.approx(np.abs(y - np.median(y)).mean())


# -- plots and JSON ------------------------------------------------------------------------------


def test_plots_have_a_line_for_each_model_and_take_axes(data):
    import matplotlib.pyplot as plt

    X, y, model, frame = data
    report = run({"a": model, "b": DummyClassifier().fit(X, y)}, X, y, groups=frame)
    ax = plt.subplots()[1]
    assert report.plot(ax=ax) is ax
    assert [line.get_label() for line in ax.get_lines()] == ["a", "b"]
    groups = report.plot("groups")
    assert len(groups.get_yticklabels()) == (report.groups["model"] == "a").sum()
    levels = stress_test(losses=[0.1, 0.2, 0.9], divergence="cvar").plot()
    assert levels.get_xlabel() == "share of the rows"
    plt.close("all")
    with pytest.raises(ValueError, match=r"'kind' .* 'slices' or 'bracket'. Got 'bars'"):
        report.plot("bars")
    with pytest.raises(ValueError, match="no groups to plot"):
        run(losses=[0.1, 0.2]).plot("groups")


def test_curves_have_ticks_at_round_shares_and_reports_share_axes():
    import matplotlib.pyplot as plt

    z = np.random.default_rng(0).random(200)
    report = stress_test(losses={"a": z, "b": 1.1 * z}, divergence=["chi2", "cvar"], random_state=0)
    ax = report.plot()
    assert "1\n50%" in [label.get_text() for label in ax.get_xticklabels()]
    before = [line.get_color() for line in ax.get_lines()]
    stress_test(losses={"c": 2.0 * z}, random_state=0).plot(ax=ax)
    colours = [line.get_color() for line in ax.get_lines()]
    assert colours[:2] == before
    assert len(set(colours)) == 3
    levels = report.plot(divergence="cvar")
    assert levels.get_xticklabels()[0].get_text() == "100%"
    plt.close("all")
    with pytest.raises(ValueError, match=r"'divergence' .* 'chi2' or 'cvar'. Got 'kl'"):
        report.plot(divergence="kl")


def test_json_holds_all_tables(data, tmp_path):
    X, y, model, frame = data
    report = run(model, X, y, groups=frame)
    text = report.to_json(tmp_path / "report.json")
    assert (tmp_path / "report.json").read_text(encoding="utf-8").strip() == text
    content = json.loads(text)
    assert content["curve"][1]["loss"] == pytest.approx(report.curve["loss"][1])
    assert len(content["groups"]) == len(report.groups)
    assert content["break_even"][0]["meaning"] == report.break_even["meaning"][0]
    assert content["level"] == 0.95
    one = json.loads(run(losses=[0.1, 0.2], baseline=[0.3, 0.3]).to_json())
    assert one["break_even"][0]["rho"] is None  # infinite


# -- wrong input ---------------------------------------------------------------------------------


class Fixed:
    """A model that predicts what it is given."""

    def __init__(self, values, proba=None, classes=None):
        self.values, self.classes_ = values, classes
        if proba is not None:
            self.predict_proba = lambda X: np.asarray(proba)

    def predict(self, X):
        return np.asarray(self.values)


HALF = [[0.5, 0.5]] * 3


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((), {}, "either 'model' with X and y, or 'losses', .* Got neither"),
        ((Fixed([1.0]),), {"losses": [1.0]}, "Got both"),
        ((Fixed([1.0]), [[1.0]]), {}, "The 'y' parameter must be given"),
        ((Fixed([1.0, 2.0]), [[1.0]] * 3, [1.0, 2.0, 3.0]), {}, r"each of the 3 .* shape \(2,\)"),
        ((Fixed([0, 0, 1], [[0.5, 0.7]] * 3, [0, 1]), HALF, [0, 1, 1]), {}, "sum to 1"),
        ((Fixed([0, 0, 1], [[-0.5, 1.5]] * 3, [0, 1]), HALF, [0, 1, 1]), {}, "from 0 to 1"),
        ((Fixed([0, 0, 1], HALF, [0, 1]), HALF, [0, 1, 2]), {}, "only labels of classes: 0, 1"),
        ((Fixed([0, 0, 1], HALF), HALF, [0, 1, 1]), {}, "attribute classes_"),
        ((LinearRegression, HALF, [0, 1, 1]), {}, "fitted models with a method predict"),
        (("model", HALF, [0, 1, 1]), {}, "Got 'model' for 'str' instead"),
        (([], HALF, [0, 1, 1]), {}, "at least one model"),
        ((Fixed([1.0] * 3), HALF, [0, 1, 1]), {"loss": "mse"}, "'loss' .* one of 'auto'"),
        ((Fixed([1.0] * 3), HALF, [0, 1, 1]), {"loss": "square"}, "Did you mean 'squared'?"),
        ((Fixed([1.0] * 3), HALF, [0, 1, 1]), {"loss": "log"}, "needs probabilities"),
        (
            (Fixed(["a"] * 3, HALF, ["a", "b"]), HALF, ["a", "b", "b"]),
            {"loss": "squared"},
            "'squared' compares numbers, .* 'Fixed' predicts the class 'a'; use loss='log'",
        ),
        ((Fixed([1.0] * 3), HALF, [0, 1, 1]), {"loss": lambda p, y: p[:2]}, "one loss for each"),
        ((Fixed([1.0] * 3), HALF, [0, 1, 1]), {"baseline": [1.0]}, "'baseline' .* 3 rows. Got 1"),
        (
            ([Fixed([1, 1, 0]), Fixed([0, 0, 1], HALF, [0, 1])], HALF, [0, 1, 1]),
            {},
            "'auto' is 'squared' for one and 'log' for another",
        ),
        ((Fixed([1.0] * 3), HALF, [0, 1, 1]), {"loss": []}, "at least one loss"),
        (
            (Fixed([1.0] * 3), HALF, [0.0, 1.0, 1.0]),
            {"loss": "all", "baseline": [1.0] * 3},
            "'baseline' .* fitted model for several losses",
        ),
        (
            (Fixed([1.0] * 3), HALF, [0.0, 1.0, 1.0]),
            {"loss": "all", "reference_losses": [1.0] * 3},
            "'reference_losses' .* None for several losses",
        ),
        (
            ([Fixed([1, 1, 0]), Fixed([0, 0, 1], HALF, [0, 1])], HALF, [0, 1, 1]),
            {"loss": "all"},
            "all be classifiers or all be regressions",
        ),
        (
            (Fixed([1.0, math.nan, 2.0]), HALF, [0.0, 1.0, 1.0]),
            {},
            "'Fixed' .* finite.* nan in row 1",
        ),
        (
            (Fixed([0, 1, 1], [[0.5, 0.5], [0.5, math.nan], [1.0, 0.0]], [0, 1]), HALF, [0, 1, 1]),
            {},
            "'Fixed' must predict finite numbers. Got nan in row 1",
        ),
        ((), {"losses": [0.1, 0.2], "loss": "log"}, "'loss' .* 'auto' with losses=.* Got 'log'"),
        ((), {"losses": [0.1, 0.2], "divergence": []}, "at least one divergence"),
        ((), {"losses": [0.1, 0.2], "divergence": ["chi2", "kll"]}, "Did you mean 'kl'"),
        ((), {"losses": [0.1, 0.2], "divergence": 3}, "'divergence' .* Got 3"),
        ((), {"losses": [0.1, 0.2], "divergence": "all"}, "'rhos' .* None for CVaR"),
        (
            (),
            {"losses": [0.1, 0.2], "divergence": [CVaR(0.1), CVaR(0.2)]},
            "different names. Got 'cvar' twice",
        ),
        ((), {"losses": [0.1, math.nan]}, "Got 1 NaN"),
        ((), {"losses": {}}, "at least one model"),
        ((), {"losses": {"a": [0.1, 0.2], "b": [0.1]}}, "one loss for each of the 2 rows. Got 1"),
        ((), {"losses": [0.1, 0.2], "reference_losses": [0.1]}, "'reference_losses' .* Got 1"),
        ((), {"losses": [0.1, 0.2], "groups": ["a"]}, "each of the 2 rows. Got columns of 1"),
        ((), {"losses": [0.1, 0.2], "groups": pd.DataFrame(index=[0, 1])}, "at least one column"),
        ((), {"losses": [0.1, 0.2], "rhos": [-1.0]}, "'rhos' .* at least 0. Got -1.0"),
        ((), {"losses": [0.1, 0.2], "rhos": []}, "at least one radius"),
        ((), {"losses": [0.1, 0.2], "divergence": "cvar"}, "'rhos' .* None for CVaR"),
        ((), {"losses": [0.1, 0.2], "level": 95}, "between 0 and 1, such as 0.95. Got 95"),
        ((), {"losses": [0.1, 0.2], "random_state": "x"}, "'random_state'"),
        ((), {"losses": [0.1, 0.2], "sample_weight": [1.0]}, "one weight for each of the 2"),
    ],
)
def test_wrong_input_is_one_sentence(arguments, options, match):
    with pytest.raises(ValueError, match=match) as caught:
        run(*arguments, **options)
    assert "\n" not in str(caught.value)


def test_equal_losses_are_a_flat_curve():
    curve = run(losses=[0.3, 0.3, 0.3]).curve
    assert curve["loss"].tolist() == pytest.approx([0.3] * 3)
    assert curve["low"].tolist() == curve["high"].tolist()
    assert set(curve["note"]) == {"all losses are equal"}
