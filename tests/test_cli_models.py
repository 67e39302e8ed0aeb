"""The commands fit, predict, evaluate, info, stress, compare and demo."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")
pytest.importorskip("skops")

import drolearn  # noqa: E402
from drolearn import RobustClassifier, RobustRegressor  # noqa: E402
from drolearn.divergence import as_divergence  # noqa: E402
from tests.commands import (  # noqa: E402, F401 - fixtures
    fit_command,
    folder_of_tables,
    loaded,
    run_in_folder,
)


def test_fit_saves_the_pipeline_that_skrub_prepares(ran):
    said = loaded(ran, *fit_command(Path(), "--rho", "0.2", "--out", "a.skops"))
    assert said["task"] == "classification"
    assert said["classes"] == ["no", "yes"]
    assert (said["rows"], said["columns"], said["rho"]) == (240, 5, 0.2)
    assert said["converged"]
    pipeline = drolearn.load("a.skops")
    assert type(pipeline[0]).__name__ == "TableVectorizer"
    assert pipeline[-1].rho == 0.2
    assert "robust loss" in ran(*fit_command(Path(), "--out", "a.skops"))


@pytest.mark.parametrize("name", ["people.csv", "people.parquet", "people.feather", "-"])
def test_all_formats_of_tables_give_the_same_predictions(ran, monkeypatch, name, folder):
    if name == "-":
        stdin = io.TextIOWrapper(io.BytesIO((folder / "people.csv").read_bytes()))
        monkeypatch.setattr(sys, "stdin", stdin)
    rows = pd.read_csv(io.StringIO(ran("predict", "model.skops", name, "--proba")))
    frame = pd.read_parquet(folder / "people.parquet")
    model = drolearn.load(folder / "model.skops")
    assert rows["prediction"].tolist() == model.predict(frame[model.feature_names_in_]).tolist()
    np.testing.assert_allclose(rows["p(no)"] + rows["p(yes)"], 1.0, rtol=1e-6)


def test_columns_of_all_types(tmp_path):
    """Whatever skrub makes of a column can be saved and loaded."""
    from drolearn.cli.models import prepared

    n, rng = 80, np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": rng.standard_normal(n),
            "berlin": pd.date_range("2020-01-01", periods=n, freq="7h", tz="Europe/Berlin"),
            "utc": pd.date_range("2020-01-01", periods=n, freq="7h", tz="UTC"),
            "duration": pd.to_timedelta(rng.integers(0, 1000, n), unit="h"),
            "category": pd.Categorical(rng.choice(["a", "b"], n)),
            "flag": pd.array(rng.choice([True, False, None], n), dtype="boolean"),
            "count": pd.array(rng.choice([1, 2, None], n), dtype="Int64"),
            "empty": np.nan,
            "mixed": [1 if k % 2 else "x" for k in range(n)],
            "name": [f"n{k} {k % 7}" for k in range(n)],
        }
    )
    pipeline = prepared(RobustClassifier(), frame).fit(frame, frame["number"] > 0)
    drolearn.save(pipeline, tmp_path / "all.skops")
    found = drolearn.load(tmp_path / "all.skops").predict_proba(frame)
    assert (found == pipeline.predict_proba(frame)).all()


@pytest.mark.parametrize("name", ["arrays.npz", "rows.svm"])
def test_arrays(ran, name):
    said = loaded(ran, "fit", name, "--out", "arrays.skops")
    assert (said["task"], said["classes"], said["columns"]) == ("classification", [-1, 1], 4)
    found = loaded(ran, "predict", "arrays.skops", name)["prediction"]
    assert set(found) == {-1, 1}
    assert loaded(ran, "evaluate", "arrays.skops", name)["curve"][0]["error"] < 0.4


def test_regression_and_other_options(ran):
    command = ["fit", "people.csv", "--target", "pay", "--drop", "rich", "--out", "pay.skops"]
    said = loaded(ran, *command, "--divergence", "cvar:0.5", "--loss", "huber")
    assert (said["task"], said["divergence"]) == ("regression", "CVaR(level=0.5)")
    said = loaded(ran, *command, "--divergence", "extremile:3")
    assert said["divergence"] == "Extremile(r=3.0)"
    said = loaded(ran, *command, "--l2", "0.5", "--groups", "job,sex", "--rho", "1")
    assert said["l2"] == 0.5
    assert ["missing", "f"] in said["groups"] or ["missing", "m"] in said["groups"]
    curve = loaded(ran, "evaluate", "pay.skops", "people.csv", "--target", "pay", "--rho", "0")
    model = drolearn.load("pay.skops")
    frame = pd.read_csv("people.csv")
    want = np.mean((model.predict(frame[model.feature_names_in_]) - frame["pay"]) ** 2) / 2
    assert curve["curve"][0]["loss"] == pytest.approx(want)


def test_tuning_and_regret(ran):
    said = loaded(ran, *fit_command(Path(), "--tune", "--out", "b.skops"))
    assert type(drolearn.load("b.skops")[-1]).__name__ == "RobustClassifierCV"
    assert said["rho"] >= 0
    said = loaded(ran, *fit_command(Path(), "--regret", "--out", "b.skops"))
    assert said["robust_regret"] is not None


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_all_settings_of_the_estimators(ran):
    """What --tau, --l1 and others do is what the estimator does; the saved model says so."""
    command = ["fit", "people.csv", "--target", "pay", "--drop", "rich", "--out", "set.skops"]
    frame = pd.read_csv("people.csv")
    for given, settings in [
        ("--divergence kl --tau 200", {"divergence": "kl", "tau": 200.0}),
        ("--l1 0.3 --l2 0", {"l1": 0.3, "l2": 0.0}),
        ("--trim 0.05 --rho 0", {"trim": 0.05, "rho": 0.0}),
        ("--divergence spectral:1,2,5", {"divergence": drolearn.Spectral([1, 2, 5])}),
        ("--divergence cressie-read:1.5", {"divergence": drolearn.CressieRead(1.5)}),
        ("--solver gssg --max-iter 40 --tol 0.1", {"solver": "gssg", "max_iter": 40, "tol": 0.1}),
    ]:
        loaded(ran, *command, *given.split())
        model = drolearn.load("set.skops")
        want = RobustRegressor(random_state=0, **settings)
        want.fit(model[:-1].transform(frame[model.feature_names_in_]), frame["pay"])
        assert (model[-1].coef_ == want.coef_).all(), given
        assert model[-1].robust_loss_ == want.robust_loss_
        shown = loaded(ran, "info", "set.skops")["settings"]
        for name, value in settings.items():
            found = model[-1].get_params()[name]
            assert found == (as_divergence(value) if name == "divergence" else value), given
            assert shown[name] == repr(found)
    assert (drolearn.load("set.skops")[-1].solver_, want.solver_) == ("gssg", "gssg")
    said = loaded(ran, *command, "--divergence", "kl", "--tau", "200")
    assert said["tau"] == 200.0
    assert said["rho"] > 0.0
    assert "tau" in ran(*command, "--divergence", "kl", "--tau", "200")


def test_weights_of_rows_and_classes(ran, folder):
    frame = pd.read_csv("people.csv", parse_dates=["since"])
    frame["times"] = np.arange(len(frame)) % 3
    frame.to_csv("weighted.csv", index=False)
    options = ["--target", "rich", "--drop", "pay,since", "--rho", "0", "--out", "weighted.skops"]
    loaded(ran, "fit", "weighted.csv", *options, "--weights", "times", "--balanced")
    model = drolearn.load("weighted.skops")
    assert "times" not in model.feature_names_in_
    y, times = frame["rich"], frame["times"]
    want = RobustClassifier(rho=0, class_weight="balanced", random_state=0)
    want.fit(model[:-1].transform(frame[model.feature_names_in_]), y, sample_weight=times)
    assert (model[-1].coef_ == want.coef_).all()
    command = ["evaluate", "weighted.skops", "weighted.csv", "--target", "rich", "--rho", "0"]
    curve = loaded(ran, *command, "--weights", "times", "--loss", "zero-one")["curve"]
    wrong = model.predict(frame[model.feature_names_in_]) != y
    assert curve[0]["loss"] == pytest.approx(np.average(wrong, weights=times))
    frame["times"] = -1.0
    frame.to_csv("weighted.csv", index=False)
    said = ran("fit", "weighted.csv", *options, "--weights", "times", code=2)
    assert "--weights names the column 'times', which must hold numbers" in said


@pytest.mark.parametrize(
    ("text", "risk"),
    [("extremile:3", drolearn.Extremile(3)), ("cvar:0.2", drolearn.CVaR(0.2))],
)
def test_evaluate_with_one_risk(ran, folder, text, risk):
    command = ["evaluate", "model.skops", "people.csv", "--target", "rich", "--loss", "brier"]
    said = loaded(ran, *command, "--divergence", text, "--groups", "sex")
    frame = pd.read_parquet("people.parquet")
    model = drolearn.load("model.skops")
    proba = model.predict_proba(frame[model.feature_names_in_])
    losses = drolearn.brier_losses(proba, frame["rich"], model.classes_)
    plain, found = said["curve"]
    assert plain["loss"] == pytest.approx(losses.mean())
    assert found["loss"] == pytest.approx(drolearn.worst_case(losses, divergence=risk).value)
    assert found["rho"] is None
    assert {row["group"] for row in said["groups"]} == {"f", "m"}
    assert f"the mean and {risk!r}"[:20] in ran(*command, "--divergence", text)


def test_checkpoints(ran, folder):
    """The model is that of a fit without them, and does not name the folder."""
    want = ran("predict", "model.skops", "people.csv", "--proba")
    ran(*fit_command(Path(), "--checkpoint", "state", "--out", "c.skops"))
    assert list((folder / "state").iterdir())
    ran(*fit_command(Path(), "--solver", "gssg", "--checkpoint", "steps", "--out", "d.skops"))
    assert list((folder / "steps").iterdir())
    assert drolearn.load("d.skops")[-1].solver == "gssg"
    assert ran("predict", "c.skops", "people.csv", "--proba") == want
    assert drolearn.load("c.skops")[-1].solver == "auto"


def test_predictions_in_files(ran):
    want = ran("predict", "model.skops", "people.csv")
    ran("predict", "model.skops", "people.csv", "--out", "found.csv")
    assert Path("found.csv").read_text(encoding="utf-8") == want
    assert loaded(ran, "predict", "model.skops", "people.csv", "--out", "p.parquet")["rows"] == 240
    assert pd.read_parquet("p.parquet").to_csv(index=False) == want


def test_evaluate(ran):
    command = ["evaluate", "model.skops", "people.csv", "--target", "rich"]
    said = loaded(ran, *command, "--groups", "sex")
    losses = [row["loss"] for row in said["curve"]]
    assert losses == sorted(losses)
    assert {row["group"] for row in said["groups"]} == {"f", "m"}
    said = ran(*command, "--divergence", "kl", "--rho", "0.3")
    assert "240 rows, loss 'log', kl balls" in said
    assert ran(*command, "--divergence", "cvar").count("\n") > 5


def test_info(ran, folder):
    said = loaded(ran, "info", "model.skops")
    assert said["columns"] == ["age", "job", "sex", "since", "hours"]
    assert said["steps"][-1] == "RobustClassifier"
    path = Path(__file__).parent / "fixtures" / "version-1-classifier.drl"
    said = loaded(ran, "info", path)
    assert (said["format"], said["classes"]) == (1, ["high", "low", "middle"])
    assert "status" in ran("info", path)


def test_stress(ran):
    command = ["stress", "model.skops", "people.csv", "--target", "rich", "--groups", "sex,job"]
    said = loaded(ran, *command, "--out", "report.json")
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert said["rows"] == report["rows"] == 240
    assert {row["column"] for row in report["groups"]} == {"sex", "job", "sex, job"}
    assert "Wrote report.json" in ran(*command, "--out", "report.json")


def test_all_settings_of_a_report(ran):
    command = ["stress", "model.skops", "people.csv", "--target", "rich", "--out", "report.json"]
    options = "--divergence chi2,kl --rho 0 --rho 0.5 --loss log,brier --over age,pay"
    said = loaded(ran, *command, *options.split(), "--level", "0.9", "--worst-rows", "4")
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert said["losses"] == report["losses"] == ["log", "brier"]
    assert report["divergences"] == ["chi2", "kl"]
    assert {row["rho"] for row in report["curve"]} == {0.0, 0.5}
    assert len(report["worst_rows"]) == 2 * 2 * 4
    assert report["level"] == 0.9
    assert {row["feature"] for row in report["features"]} == {"age", "pay"}
    loaded(ran, *command, "--divergence", "all", "--over", "all")
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))
    assert "triangular" in report["divergences"]
    assert {row["feature"] for row in report["features"]} >= {"age", "job", "sex", "hours"}


def test_a_report_for_the_browser(ran):
    ran("stress", "model.skops", "people.csv", "--target", "rich", "--out", "report.html")
    assert "<html" in Path("report.html").read_text(encoding="utf-8").lower()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_compare(ran):
    command = ["compare", "people.csv", "--drop", "since", "--splits", "1", "--groups", "sex"]
    classes = [*command, "--target", "rich", "--out", "picture.png"]
    said = loaded(ran, *classes)
    names = [row["model"] for row in said["models"]]
    assert names == ["plain", "tuned", "temperature", "reweighted", "robust", "groups", "regret"]
    assert all(row["robust_loss"] > row["loss"] > 0.0 for row in said["models"])
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
    pay = [*command, "--target", "pay", "--drop", "rich"]
    said = ran(*pay, "--divergence", "extremile:2")
    assert "The picture shows balls" in ran(
        *pay, "--divergence", "extremile:2", "--out", "a.png", code=2
    )
    assert "temperature" not in said
    assert "reweighted" in said


def test_the_data_of_the_demo(ran, monkeypatch):
    """The demo is a comparison, which is tested above, on rows of the package."""
    seen = []
    monkeypatch.setattr("drolearn.cli.comparison.compared", lambda rows, *_: 1 / seen.append(rows))
    assert "failed unexpectedly" in ran("demo", code=1)
    [rows] = seen
    assert len(rows.X) == len(rows.y) == len(rows.groups) > 1000
    assert set(rows.groups["sex"]) == {"Female", "Male"}
    assert set(rows.y) == {"above 50,000", "below"}
