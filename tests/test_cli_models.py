"""The commands fit, predict, evaluate, info, stress, compare and demo."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")
pytest.importorskip("skops")

from sklearn.datasets import dump_svmlight_file  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

import drolearn  # noqa: E402
from drolearn import RobustClassifier, cli  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with one table in all formats, and models that were fitted to it."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    n = 240
    age, job = rng.integers(18, 80, n), rng.choice(["cook", "nurse", "clerk"], n)
    score = (age - 50) / 15 + (job == "nurse") + rng.standard_normal(n)
    frame = pd.DataFrame(
        {
            "age": age,
            "job": job,
            "sex": rng.choice(["f", "m"], n),
            "since": pd.date_range("2015-01-01", periods=n, freq="9h"),
            "hours": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 60, n)),
            "rich": np.where(score > 0.5, "yes", "no"),
            "pay": 10.0 * score,
        }
    )
    frame.loc[[3, 8], "job"] = None
    frame.to_csv(folder / "people.csv", index=False)
    frame.to_parquet(folder / "people.parquet")
    frame.to_feather(folder / "people.feather")
    X = rng.standard_normal((n, 4))
    y = np.where(X[:, 0] + rng.standard_normal(n) > 0, 1, -1)
    np.savez(
        folder / "arrays.npz", format="dense", X=X, y=y, sex=frame["sex"].to_numpy(dtype=str),
        feature_names=np.array(["a", "b", "c", "d"]),
    )  # fmt: skip
    dump_svmlight_file(X, y, str(folder / "rows.svm"), zero_based=False)
    assert cli.run(cli.app, [*fit_command(folder), "--out", str(folder / "model.skops")]) == 0
    return folder


def fit_command(folder, *more):
    return ["fit", str(folder / "people.csv"), "--target", "rich", "--drop", "pay", *more]


@pytest.fixture
def ran(capsys, folder, monkeypatch):
    """Run a command in the folder; return what it prints, and check the exit code."""
    monkeypatch.chdir(folder)

    def run(*arguments, code=0):
        capsys.readouterr()
        found = cli.run(cli.app, [str(each) for each in arguments])
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.out if code == 0 else printed.err

    return run


def loaded(ran, *arguments):
    return json.loads(ran(*arguments, "--json"))


# -- what the commands do ------------------------------------------------------------------------


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


def test_checkpoints(ran, folder):
    """The model is that of a fit without them, and does not name the folder."""
    want = ran("predict", "model.skops", "people.csv", "--proba")
    ran(*fit_command(Path(), "--checkpoint", "state", "--out", "c.skops"))
    assert list((folder / "state").iterdir())
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
    said = ran(*command, "--target", "pay", "--drop", "rich")
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


# -- wrong input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("fit people.csv --target salary --out a.skops", "column 'salary'.*choose from age, job"),
        ("fit people.csv --target job --out a.skops", "2 of 240 values are missing"),
        ("fit people.csv --target rich --groups gender --out a.skops", "--groups names the column"),
        ("fit people.csv --target rich --drop x --out a.skops", "--drop names the column 'x'"),
        ("fit people.csv --target rich", "Missing option '--out': see drolearn fit --help"),
        ("fit people.csv --target rich --out a.drl", "--out must end in .skops. Got 'a.drl'"),
        ("fit people.csv --target rich --out no/a.skops", "There is no folder 'no' for --out"),
        ("fit people.csv --target rich --out a.skops --rho -1", "'--rho'.*see drolearn fit --help"),
        ("fit people.csv --target rich --out a.skops --divergence kll", "Did you mean 'kl'"),
        ("fit people.csv --target rich --out a.skops --divergence cvar:2", "as cvar:0.1. Got"),
        (
            "fit people.csv --target rich --out a.skops --divergence extremile:0",
            "as extremile:3. Got",
        ),
        ("fit people.csv --target rich --out a.skops --task regression", "needs numbers"),
        ("fit people.csv --target rich --out a.skops --task reg", "--task must be"),
        ("fit people.csv --target rich --out a.skops --tune --rho 1", "leave --rho and --l2 out"),
        ("fit people.csv --target rich --out a.skops --loss huber", "'loss' parameter of Robust"),
        ("fit people.xls --out a.skops", "must end in .csv, .parquet"),
        ("fit nothing.csv --out a.skops", "There is no file 'nothing.csv'"),
        ("predict model.skops rows.svm", "needs columns with names"),
        ("predict model.skops arrays.npz", "lacks 5 of the 5 columns of the model: age, job"),
        ("predict model.skops people.csv --out a.txt", "must end in .csv or .parquet"),
        ("predict nothing.skops people.csv", "There is no file 'nothing.skops'"),
        ("predict people.csv people.csv", "must end in .drl or .skops. Got 'people.csv'"),
        ("evaluate model.skops people.csv --target pay", "only labels of classes: 'no', 'yes'"),
        ("frobnicate", "No such command 'frobnicate': see drolearn --help"),
    ],
)
def test_wrong_arguments(ran, arguments, words):
    said = ran(*arguments.split(), code=2)
    assert pd.Series([said]).str.contains(words, regex=True).all(), said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"\xff\xfe\x00"),
        ("a.csv", b"a,b\n"),
        ("a.csv", b'a,b\n"1,2\n'),
        ("a.parquet", b"PAR1"),
        ("a.feather", b"ARROW1"),
        ("a.arrow", b""),
        ("a.npz", b"PK"),
        ("a.svm", b"1 0:3\n"),
        ("a.svm", b"1 a:b\n"),
    ],
)
def test_damaged_data(ran, name, content):
    Path(name).write_bytes(content)
    said = ran("fit", name, "--target", "b", "--out", "a.skops", code=2)
    assert repr(name) in said
    assert said.count("\n") == 1


def test_pickles_need_trust(ran, folder):
    frame = pd.read_csv("people.csv")[["age"]]
    model = LogisticRegression().fit(frame, pd.read_csv("people.csv")["rich"])
    Path("model.pkl").write_bytes(pickle.dumps(model))
    said = ran("predict", "model.pkl", "people.csv", code=2)
    assert "runs whatever code is in it: use --trust only if you know who made it" in said
    assert ran("predict", "model.pkl", "people.csv", "--trust").startswith("prediction")
    Path("model.pkl").write_bytes(b"\x80")
    assert "damaged or not a pickle" in ran("info", "model.pkl", "--trust", code=2)
    Path("model.pkl").write_bytes(pickle.dumps([1]))
    assert "holds a list" in ran("info", "model.pkl", "--trust", code=2)


def test_models_of_other_kinds(ran):
    """Fitted to arrays without names, saved as .drl; without probabilities."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2))
    model = RobustClassifier(loss="squared-hinge").fit(X, X[:, 0] > 0)
    drolearn.save(model, "hinge.drl")
    pd.DataFrame(X).assign(y=X[:, 0] > 0).to_csv("two.csv", index=False)
    want = model.predict(X).tolist()
    assert loaded(ran, "predict", "hinge.drl", "two.csv")["prediction"] == want
    assert loaded(ran, "evaluate", "hinge.drl", "two.csv")["loss"] == "zero-one"
    assert "no probabilities" in ran("predict", "hinge.drl", "two.csv", "--proba", code=2)
    pd.DataFrame(X[:, :1]).to_csv("one.csv", index=False)
    assert "fitted to 2 columns. Got 1" in ran("predict", "hinge.drl", "one.csv", code=2)


# -- running -------------------------------------------------------------------------------------


def test_unexpected_errors_have_a_traceback_only_with_debug(ran, monkeypatch):
    def broken(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("drolearn.cli.models.prepared", broken)
    command = fit_command(Path(), "--out", "a.skops")
    said = ran(*command, code=1)
    assert "failed unexpectedly (KeyError: 'lost'): run it again with --debug" in said
    with pytest.raises(KeyError, match="lost"):
        ran(*command, "--debug")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, ""),
        (MemoryError(), 1, "memory does not suffice"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (ImportError("Use pip."), 1, "Use pip."),
        (ModuleNotFoundError("no", name="skrub"), 1, "needs skrub: pip install 'drolearn[cli"),
    ],
)
def test_exit_codes(ran, monkeypatch, error, code, words):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("drolearn.cli.models.prepared", broken)
    assert words in ran(*fit_command(Path(), "--out", "a.skops"), code=code)


def test_warnings_are_one_line_each(capsys, folder, ran):
    """The zero model, at a radius at which nothing can be learned."""
    command = fit_command(folder, "--rho", "50", "--out", str(folder / "zero.skops"), "--json")
    assert cli.run(cli.app, command) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("Warning: ")
    assert printed.err.count("\n") == 1
    assert json.loads(printed.out)["warnings"] == [printed.err.removeprefix("Warning: ").strip()]


def test_a_reader_that_stops_early():
    """As `drolearn datasets | head`."""
    command = [sys.executable, "-m", "drolearn.cli", "datasets"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate()
    assert "Traceback" not in errors


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder without new files")
def test_a_folder_that_cannot_be_written_to(ran):
    said = ran(*fit_command(Path(), "--out", "/proc/a.skops"), code=1)
    assert "A file cannot be read or written" in said


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder without new files")
def test_no_network_no_home_and_a_full_disk(folder, tmp_path):
    """Sockets raise errors, nothing can be made in the home folder, and files are limited."""
    path = tmp_path / "model.skops"
    program = """
import resource, signal, socket, sys
def refuse(*_, **__):
    raise AssertionError("a network call")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
from pathlib import Path
from drolearn import cli
assert cli.run(cli.app, sys.argv[1:]) == 0
before = Path(sys.argv[-1]).read_bytes()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
code = cli.run(cli.app, [*sys.argv[1:], "--rho", "0.3"])
if Path(sys.argv[-1]).read_bytes() != before:
    raise SystemExit("the old model is gone")
sys.exit(code)
"""
    command = [sys.executable, "-c", program, *fit_command(folder, "--out", str(path))]
    environment = {**os.environ, "HOME": "/proc/nowhere"}
    environment.pop("SKB_DATA_DIRECTORY", None)
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 1, run.stderr
    said = run.stderr.splitlines()[-1]  # matplotlib says where it puts its settings instead
    assert said.startswith("A file cannot be read or written (File too large")
    assert list(tmp_path.iterdir()) == [path]


# -- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"]], ids=" ".join)
def test_help_imports_no_heavy_library(arguments):
    program = (
        f"import sys; from drolearn import cli; cli.run(cli.app, {arguments});"
        "heavy = ('numpy', 'rich', 'pandas', 'sklearn', 'pydantic');"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.endswith("[]\n"), run.stderr
    assert ("Exit codes:" if arguments == ["--help"] else "Examples:") in run.stdout


@pytest.mark.parametrize(
    "command",
    ["fit", "predict", "evaluate", "info", "compare", "stress", "demo", "reproduce", "datasets"],
)
def test_every_command_has_examples(ran, command):
    said = ran(command, "--help")
    assert f"Examples:\n    drolearn {command}" in said or f"drolearn {command}" in said
    assert "\b" not in said


def test_shell_completion():
    environment = {
        **os.environ, "_DROLEARN_COMPLETE": "complete_bash", "COMP_WORDS": "drolearn pre",
        "COMP_CWORD": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "drolearn.cli"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.stdout.split() == ["predict"], run.stderr
