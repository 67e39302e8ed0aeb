"""The commands `drolearn reproduce` and `drolearn datasets`."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drolearn import cli, datasets
from drolearn.paper.protocol import read_protocol
from drolearn.paper.runner import Store

pytestmark = pytest.mark.xdist_group("processes")


def reproduce(out, *arguments):
    """Run `drolearn reproduce` in this process; the runs have processes of their own."""
    ran = CliRunner().invoke(cli.app, ["reproduce", *arguments, "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    return ran


def started(out, *arguments, **options):
    """Start `drolearn reproduce` in another process, which leads a group."""
    command = [sys.executable, "-m", "drolearn.cli", "reproduce", *arguments, "--out", str(out)]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=_heed_ctrl_c, **options,
    )  # fmt: skip


def _heed_ctrl_c():
    """A process that was started in the background ignores SIGINT, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for_rows(out, process, count=1, seconds=120.0):
    """Wait until some runs are finished, or the process has ended."""
    deadline = time.monotonic() + seconds
    while len(list(out.glob("parts/*.parquet"))) < count and process.poll() is None:
        assert time.monotonic() < deadline, f"less than {count} runs after {seconds:g} s"
        time.sleep(0.02)


# -- results -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The folder of a quick reproduction of everything, with one seed."""
    if not os.environ.get("DROLEARN_DATA"):
        pytest.skip("DROLEARN_DATA names no folder of data sets")
    out = tmp_path_factory.mktemp("quick") / "out"
    ran = reproduce(out, "all", "--quick", "--jobs", "2", "--seeds", "1")
    assert "left:" in ran.output
    return out


@pytest.mark.slow
def test_quick_reproduction_of_everything(everything):
    """All files are there, and errors and losses are plausible."""
    for name in ("figure1", "figure2_rcv1_27k", "figure3", "figure4_rcv1_27k", "scaling", "large"):
        assert (everything / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (everything / f"{name}.svg").read_text()
    plan = read_protocol().hurried().narrowed(None, 1)
    rows = Store(everything).rows()
    made = {row["dataset"] for row in rows}
    runs = {r.key for name in plan.artefacts for r in plan.runs(name) if r.dataset in made}
    assert runs == {row["key"] for row in rows}
    for name in ("table1", "table2"):
        text = (everything / f"{name}.md").read_text()
        for dataset in ("tr31.wc", "hiv1", "adult", "rcv1_27k"):
            line = next(line for line in text.splitlines() if line.startswith(f"| {dataset}"))
            assert "–" not in line
            assert line.count("(") >= 3
        assert "\\toprule" in (everything / f"{name}.tex").read_text()
        cells = list(csv.DictReader((everything / f"{name}.csv").read_text().splitlines()))
        errors = [float(c["measured"]) for c in cells if c["measured"] and "err" in c["quantity"]]
        assert all(0.0 <= error < 60.0 for error in errors)
    assert "gina_prior" in (everything / "table1.md").read_text()
    page = (everything / "claims.md").read_text()
    assert page.count("\n## ") == 9  # seven more claims, the library's methods, versions
    for title in ("Test errors", "SGD stalls", "PSSG is ahead", "FSG is not", "DRL is as good"):
        head = next(line for line in page.splitlines() if line.startswith(f"## {title}"))
        assert not head.endswith("not measured")
    by = {(r["dataset"], r["method"], r["split"], r["rho"], r["seed"]): r for r in rows}
    for (dataset, method, split, rho, seed), row in by.items():
        exact = by.get((dataset, "exact", split, rho, seed))
        has_optimum = exact and exact["ending"] != "separable"
        if has_optimum and method in ("gssg", "pssg", "fsg", "sgd"):
            assert row["robust_loss"] > exact["robust_loss"] - 1e-6


@pytest.mark.slow
def test_a_finished_reproduction_repeats_no_run(everything, tmp_path):
    out = shutil.copytree(everything, tmp_path / "out")
    before = (out / "runs.parquet").read_bytes()
    reproduce(out, "table2", "--quick", "--seeds", "1")  # without the figures, which take long
    assert (out / "runs.parquet").read_bytes() == before


@pytest.mark.slow
def test_narrowed_runs_add_to_the_others(everything, tmp_path):
    out = shutil.copytree(everything, tmp_path / "out")
    before = lines_by_dataset(out / "table1.md")
    reproduce(out, "table1", "--quick", "--jobs", "2", "--datasets", "hiv1,tr31.wc")  # two seeds
    assert len(Store(out).rows()) == len(Store(everything).rows()) + 10
    reproduce(out, "table1", "--quick", "--seeds", "1")  # nothing is left to run
    after = lines_by_dataset(out / "table1.md")
    assert after["adult"] == before["adult"]
    assert after["hiv1"] != before["hiv1"]
    for dataset in ("adult", "hiv1", "tr31.wc"):
        assert "–" not in after[dataset]
    assert after["hiv1"].count("±") == 8  # five errors of ours and three of the paper


def test_tables_of_narrowed_runs_show_all_rows(tmp_path):
    """--datasets and --seeds narrow what is run, not what the tables show."""
    committed = Path(__file__).parents[1] / "results" / "paper"
    if not committed.exists():
        pytest.skip("only a checkout has the results")
    shutil.copy(committed / "runs.parquet", tmp_path)
    ran = reproduce(tmp_path, "table1", "--datasets", "adult", "--seeds", "1")
    assert "5 runs, 5 of them done before" in " ".join(ran.output.split())
    want = lines_by_dataset(committed / "table1.md")
    lines = lines_by_dataset(tmp_path / "table1.md")
    for dataset in ("adult", "hiv1", "bioresponse"):
        assert lines[dataset] == want[dataset]


def test_results_as_json(tmp_path, capsys):
    """Progress is on standard error, so that standard output is JSON."""
    committed = Path(__file__).parents[1] / "results" / "paper"
    if not committed.exists():
        pytest.skip("only a checkout has the results")
    shutil.copy(committed / "runs.parquet", tmp_path)
    command = ["reproduce", "table1", "--datasets", "adult", "--seeds", "1", "--json"]
    assert cli.run(cli.app, [*command, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert said["runs"] > 0
    assert said["failed"] == said["left_out"] == {}
    assert str(tmp_path / "table1.md") in said["files"]
    assert all(Path(path).exists() for path in said["files"])
    assert "wrote" in printed.err


def lines_by_dataset(path):
    """The lines of a table in Markdown, without padding; the first one of each data set."""
    lines = [line.split() for line in path.read_text("utf-8").splitlines() if line.startswith("| ")]
    return {words[1]: " ".join(words) for words in reversed(lines)}


# -- stopped runs --------------------------------------------------------------------------------


@pytest.fixture
def adult(tmp_path):
    """Arguments for some runs on Adult of a second each."""
    text = (resources.files("drolearn.paper") / "paper.toml").read_text("utf-8")
    assert "samples = 1e7\n" in text
    path = tmp_path / "shorter.toml"
    path.write_text(text.replace("samples = 1e7\n", "samples = 3e6\n"), encoding="utf-8")
    return ["table2", "--datasets", "adult", "--seeds", "1", "--protocol", str(path)]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_keeps_what_is_finished_and_nothing_else(adult, tmp_path, jobs):
    out = tmp_path / "out"
    process = started(out, *adult, "--jobs", jobs)
    wait_for_rows(out, process)
    time.sleep(0.5)  # in the middle of the next run
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Stopped: " in output
    assert "run the same command to continue" in " ".join(output.split())
    for row in Store(out).rows():
        assert row["ending"] != "interrupted"
        assert row["samples"] >= 1e5


def test_one_process_per_folder(adult, tmp_path):
    out = tmp_path / "out"
    first = started(out, *adult, "--jobs", "1")
    try:
        deadline = time.monotonic() + 120.0
        while not (out / ".lock").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        command = ["reproduce", "table2", "--quick", "--datasets", "adult", "--out", str(out)]
        second = CliRunner().invoke(cli.app, command)
        assert second.exit_code == 1
        assert isinstance(second.exception, BlockingIOError)
        assert "Another process is using" in str(second.exception)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()


@pytest.mark.slow
def test_a_killed_worker_is_reported_in_one_sentence(adult, tmp_path):
    out = tmp_path / "out"
    process = started(out, *adult, "--jobs", "1")
    wait_for_rows(out, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not list the children of a process")
    for number in children.read_text().split():
        if b"popen_loky" in Path(f"/proc/{number}/cmdline").read_bytes():
            os.kill(int(number), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "was killed, most likely because memory ran out" in errors
    assert "Traceback" not in errors
    assert Store(out).rows()


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "figure9"], "'figure9' is unknown: choose from figure1"),
        (["reproduce", "table1", "--datasets", "hiv"], "'hiv' is unknown: choose from tr31.wc"),
        (["reproduce", "table1", "--jobs", "0"], "greater than or equal to 1"),
        (["reproduce", "table1", "--protocol", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["datasets", "--fetch", "nothing"], "There is no data set 'nothing'"),
        (["reproduce", "figure1", "--datasets", "adult"], "figure1 has no runs on adult"),
        (["reproduce", "table1", "--quick", "--out", __file__], "choose another folder"),
        (["reproduce", "table1", "--quick", "--page", __file__], "The page has no line"),
    ],
)
def test_errors(arguments, message, monkeypatch, capsys):
    """Any exception but SystemExit would fail the test."""
    monkeypatch.setattr(sys, "argv", ["drolearn", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code not in (0, None)
    printed = capsys.readouterr().err
    if isinstance(ended.value.code, str):  # which Python prints
        printed += ended.value.code
    assert message in re.sub(r"[│╭╮╰╯─\s]+", " ", printed)


def test_errors_of_the_installed_command_have_no_traceback():
    command = [sys.executable, "-m", "drolearn.cli", "datasets", "--fetch", "nothing"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.startswith("There is no data set 'nothing'")
    assert "Traceback" not in ran.stderr


def test_missing_extras_are_named(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('gone', name='typer')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "drolearn.cli", "datasets"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.strip() == "The command line needs typer: pip install 'drolearn[cli]'."


# -- data sets -----------------------------------------------------------------------------------


def test_datasets_lists_where_each_comes_from(monkeypatch, tmp_path):
    monkeypatch.setenv("DROLEARN_DATA", str(tmp_path))
    monkeypatch.setenv("DROLEARN_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "mine.npz").write_bytes(b"")
    ran = CliRunner().invoke(cli.app, ["datasets"])
    assert ran.exit_code == 0
    for entry in datasets.CATALOGUE.values():
        assert entry.name in ran.output
    assert re.search(r"adult .*45222 .*119 .*CC BY 4.0 .*package", ran.output)
    assert re.search(r"bike_hour .*17379 .*57 .*CC BY 4.0 .*package", ran.output)
    assert re.search(r"gina_prior .*openml.org .*openml.org", ran.output)
    assert "mine.npz" in ran.output
    said = json.loads(CliRunner().invoke(cli.app, ["datasets", "--json"]).stdout)
    assert said["other_files"] == ["mine.npz"]
    adult = next(entry for entry in said["datasets"] if entry["name"] == "adult")
    assert (adult["rows"], adult["columns"], adult["loaded_from"]) == (45222, 119, "package")
