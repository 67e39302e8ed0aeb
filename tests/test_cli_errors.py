"""Wrong input of the commands, how they end, and their help."""

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

from sklearn.linear_model import LogisticRegression  # noqa: E402

import drolearn  # noqa: E402
from drolearn import RobustClassifier, cli  # noqa: E402
from tests.commands import (  # noqa: E402, F401 - fixtures
    fit_command,
    folder_of_tables,
    loaded,
    run_in_folder,
)

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
        ("fit people.csv --target rich --out a.skops --tune --rho 1", "leave --rho out"),
        ("fit people.csv --target rich --out a.skops --tune --trim 0.1", "leave --trim out"),
        ("fit people.csv --target rich --out a.skops --tune --divergence extremile:3", "--tune"),
        ("fit people.csv --target rich --out a.skops --tau 1 --rho 1", "--tau, the price .* --rho"),
        ("fit people.csv --target rich --out a.skops --tau -1", "'--tau'.*see drolearn fit --help"),
        ("fit people.csv --target rich --out a.skops --trim 1.5", "'trim' parameter of Robust"),
        ("fit people.csv --target rich --out a.skops --l1 0.1 --solver gssg", "exact"),
        ("fit people.csv --target rich --out a.skops --solver adam", "'solver' parameter must be"),
        ("fit people.csv --target pay --out a.skops --balanced", "task is regression"),
        ("fit people.csv --target rich --weights job --out a.skops", "--weights names the column"),
        ("fit people.csv --target rich --out a.skops --divergence spectral:3,1", "spectral:1,2,5"),
        ("evaluate model.skops people.csv --target rich --divergence cvar --rho 1", "no radius"),
        ("evaluate model.skops people.csv --target rich --loss all", "--loss must be one loss"),
        ("evaluate model.skops people.csv --target rich --loss logg", "Did you mean 'log'"),
        (
            "stress model.skops people.csv --target rich --out a.json --divergence extremile:2",
            "use drolearn evaluate",
        ),
        (
            "stress model.skops people.csv --target rich --out a.json --divergence all --rho 1",
            "no radius",
        ),
        ("stress model.skops people.csv --target rich --out a.json --over ag", "--over names"),
        ("stress model.skops people.csv --target rich --out a.json --level 2", "'level'"),
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("y,a,a\n1,2,3\n0,3,4\n", "two columns of the name 'a': rename one"),
        ("y,y,a\n1,0,3\n0,3,4\n", "two columns of the name 'y': rename one"),
        ("y,a\n1,ä\n0,b\n".encode("latin-1"), "'a.csv' is not UTF-8 text: save it as UTF-8"),
        ("y,a\n1,2\n0,3\n".encode("utf-16"), "'a.csv' is not UTF-8 text: save it as UTF-8"),
        ("y,a,b\n1,,\n0,,\n", "All values of all columns are missing"),
    ],
)
@pytest.mark.parametrize("stdin", [False, True], ids=["file", "stdin"])
def test_tables_that_cannot_be_used(ran, monkeypatch, content, words, stdin):
    content = content if isinstance(content, bytes) else content.encode()
    if stdin:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    Path("a.csv").write_bytes(content)
    said = ran("fit", "-" if stdin else "a.csv", "--out", "a.skops", code=2)
    assert words.replace("'a.csv'", "'-'" if stdin else "'a.csv'") in said
    assert said.count("\n") == 1


def test_names_that_pandas_would_give(ran):
    """Columns without a name and one that looks renamed are no twins."""
    Path("a.csv").write_text("y,a,a.1,,\n1,2,3,0,0\n0,3,4,1,0\n", encoding="utf-8")
    assert loaded(ran, "fit", "a.csv", "--out", "a.skops")["columns"] == 4


def test_one_class(ran):
    Path("a.csv").write_text("y,a\n" + 9 * "1,2\n", encoding="utf-8")
    assert "one class only" in ran("compare", "a.csv", code=2)
    assert "only one class" in ran("fit", "a.csv", "--out", "a.skops", code=2)


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


def test_version(ran):
    assert ran("--version") == f"drolearn {drolearn.__version__}\n"


def test_shell_completion():
    environment = {
        **os.environ, "_DROLEARN_COMPLETE": "complete_bash", "COMP_WORDS": "drolearn pre",
        "COMP_CWORD": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "drolearn.cli"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.stdout.split() == ["predict"], run.stderr
