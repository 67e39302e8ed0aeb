"""Protocols, runs, rows on disk, and the command that makes tables and figures of them."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from drolearn import cli, datasets
from drolearn.paper import claims, tables, trial
from drolearn.paper.protocol import Search, read_protocol
from drolearn.paper.runner import Failure, Store, available, perform_all
from drolearn.paper.tables import Interval, best, interval

pytestmark = pytest.mark.xdist_group("processes")
ROOT = Path(__file__).parents[1]
PAPER = ROOT / "src" / "drolearn" / "paper" / "paper.toml"


@pytest.fixture(scope="module")
def protocol():
    return read_protocol()


# -- protocol --------------------------------------------------------------------------


def test_the_protocol_is_the_papers(protocol):
    assert protocol.splits["figures"].train == 0.75
    assert protocol.splits["tables"].train == 0.8
    assert protocol.splits["tables"].seeds == protocol.splits["figures"].seeds == 10
    gssg, pssg, erm = (protocol.methods[name] for name in ("gssg", "pssg", "erm"))
    assert (gssg.r, gssg.delta, gssg.step, gssg.half) == (2.0**-1.5, 0.01, 1.0, 5000)
    assert (pssg.rate, pssg.half) == (1.001, None)
    assert (erm.folds, erm.first, erm.patience, erm.batch) == (10, 1e6, 3, 10)
    colours = {name: protocol.methods[name].colour for name in ("pssg", "fsg", "gssg", "sgd")}
    assert colours == {"pssg": "green", "fsg": "red", "gssg": "black", "sgd": "blue"}
    assert len([d for d in protocol.datasets.values() if d.published]) == 14


def test_published_numbers_are_those_of_the_tables(protocol):
    """Against the table as the paper prints it, where the paper is at hand."""
    source = ROOT.parent / "shared" / "paper.tex"
    if not source.exists():
        pytest.skip("the paper's source is not here")
    text = source.read_text()
    rows = re.findall(r"^\t*(\S+?)\$\^\{\\(?:dag|ast|ddag)\}\$\s*&(.*)\\\\", text, re.M)
    assert len(rows) == 14
    for name, cells in rows:
        numbers = [float(number) for number in re.findall(r"\d+\.?\d*", cells)]
        said = protocol.datasets[name.replace("\\", "")].published
        assert [*said.gssg["0.1"], *said.pssg["0.1"], *said.erm] == numbers[:6]
        assert [said.seconds[m] for m in ("gssg", "pssg", "erm")] == numbers[6:]
    second = re.findall(r"^([\w.\\]+)\t+&(\d+)\t+&(\d+).*?&([\d.]+)(.*)\\\\", text, re.M)
    assert len(second) == 14
    for name, d, n, _, cells in second:
        name = name.replace("\\", "").lower()
        assert (datasets.CATALOGUE[name].n, datasets.CATALOGUE[name].d) == (int(n), int(d))
        numbers = [float(number) for number in re.findall(r"\d+\.\d+", cells)]
        said = protocol.datasets[name].published
        assert [*said.gssg["0.1"], *said.pssg["0.1"]] == numbers[:4]
        assert [*said.gssg["0.01"], *said.pssg["0.01"]] == numbers[4:8]


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("[budget]\n", "[budget]\nbudged = 3\n", r"budget\.budged: this key is not known"),
        ("base = 1 ", "bass = 1 ", r"methods\.gssg\.\w+\.bass: this key is not known"),
        ("train = 0.75", "train = 1.75", r"splits\.figures\.train"),
        ('methods = ["gssg", "pssg", "erm"', 'methods = ["gsgs", "pssg", "erm"', "no methods.gsgs"),
        ("[model]", "[model", "cannot be read as TOML"),
        ('kind = "full"', 'kind = "fool"', "fool"),
        ('inside = "figures"', 'inside = "figurse"', "no splits.figurse to be inside"),
        ('stands_for = "rcv1"', 'stands_for = "rvc1"', "no datasets.rvc1"),
        ("[datasets.fabert]", "[datasets.faber]\n[datasets.fabert]", r"datasets\.faber\b"),
        ("[datasets.text_like]", "[datasets.texts]", "lists no such data set"),
        ("rate = 1.001", "rate = 0.5", r"methods\.pssg\.growing\.rate"),
        ('x = "samples"\n', 'x = "samples"\nsizes = [1000]\n', "sizes and tests belong to"),
        ("rho = [0.1]\n", "rho = []\n", r"artefacts\.figure1\.rho"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, old, new, pattern):
    text = PAPER.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=pattern) as caught:
        read_protocol(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_keys_tell_runs_apart_and_artefacts_share_them(protocol):
    figure1 = {run.key for run in protocol.runs("figure1") if run.method != "sgd"}
    figure3 = [run.key for run in protocol.runs("figure3")]
    assert figure1 <= set(figure3)
    assert len(set(figure3)) == len(figure3)
    table2 = [run for run in protocol.runs("table2") if run.dataset == "hiv1"]
    assert sum(run.method == "erm" for run in table2) == 10  # one search for both radii
    run = table2[0]
    assert replace(run, budget=run.budget | {"samples": 1.0}).key != run.key


def test_seeds_come_from_names(protocol):
    runs = [run for run in protocol.runs("table1") if run.dataset == "hiv1" and run.seed == 3]
    orders = [run.generator("permutation").permutation(9).tolist() for run in runs]
    assert all(order == orders[0] for order in orders)  # all methods meet the same rows
    other = replace(runs[0], seed=4).generator("permutation").permutation(9).tolist()
    assert other != orders[0]


# -- one run ---------------------------------------------------------------------------


def small(protocol, name="table1", **changes):
    """A quick run of each method on adult, which is always there."""
    quick = protocol.hurried()
    return [
        replace(run, **changes)
        for run in quick.runs(name)
        if run.dataset == "adult" and run.seed == 0
    ]


@pytest.fixture(scope="module")
def rows(protocol):
    return {run.method: trial.perform(run) for run in small(protocol)}


def test_a_run_is_the_same_each_time(protocol, rows):
    for run in small(protocol):
        again = trial.perform(run)
        for name in ("test_error", "robust_loss", "samples", "penalty", "at_errors"):
            np.testing.assert_equal(again[name], rows[run.method][name], err_msg=run.method)


def test_what_a_row_tells(rows):
    assert set(rows) == {"gssg", "pssg", "erm", "default", "exact"}
    for row in rows.values():
        assert row["n_train"] == round(0.8 * 45222)
        assert row["n_train"] + row["n_test"] == 45222
        assert row["d"] == 119
        assert row["test_error"] == row["at_errors"][-1]
        assert len(row["at_errors"]) == len(row["at_samples"]) == len(row["at_seconds"])
        assert np.all(np.diff(row["at_samples"]) > 0.0)
        assert np.all(np.diff(row["at_seconds"]) >= 0.0)
        assert row["cpu"] is not None
        assert "scikit-learn" in row["versions"]
    assert rows["exact"]["robust_loss"] < min(rows[m]["robust_loss"] for m in ("gssg", "pssg"))
    assert rows["exact"]["test_error"] < 0.17
    assert rows["erm"]["penalty"] < 1.0
    assert rows["gssg"]["samples"] >= 2e4


def test_scaling_looks_at_training_rows_only(protocol):
    run = small(protocol)[0]
    for sparse in (False, True):
        X = np.array([[2.0, 0.0, 1.0], [-4.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        test = np.array([[8.0, 5.0, 1.0]])
        form = sp.csr_matrix if sparse else np.asarray
        both = trial._scaler(form(X), "columns")
        scaled = both(form(test))
        scaled = scaled.toarray() if sparse else scaled
        np.testing.assert_allclose(scaled, [[2.0, 5.0, 1.0]])
        unit = trial._scaler(form(X), "both")(form(X))
        unit = unit.toarray() if sparse else unit
        norms = np.linalg.norm(unit, axis=1)
        np.testing.assert_allclose(norms, [1.0, 1.0, 0.0])
    train, test = trial.divide(run)
    assert np.abs(train.X).max() == 1.0
    found = datasets.load("adult")
    assert train.y.size + test.y.size == found.y.size


def test_held_out_rows_are_training_rows(protocol):
    run = small(protocol, "choices", scaling="none")[0]
    table = small(protocol, scaling="none")[0]
    train, held = trial.divide(run)
    whole, _ = trial.divide(table)
    rows = np.vstack([train.X, held.X])
    assert rows.shape[0] == round(0.75 * 45222)
    np.testing.assert_array_equal(rows, whole.X[: rows.shape[0]])  # the first of the very same


def test_search_goes_down_until_nothing_improves(protocol):
    run = next(run for run in small(protocol) if run.method == "erm")
    how = run.settings | {"first": 1e-3, "last": 1e-3}
    assert trial.perform(replace(run, settings=how))["penalty"] == 1e-3
    one = trial.perform(replace(run, settings=run.settings | {"patience": 1}))
    three = trial.perform(run)
    assert one["samples"] < three["samples"]
    assert isinstance(protocol.methods["erm"], Search)


# -- rows on disk ----------------------------------------------------------------------


def fake(key, **more):
    return {"key": key, "dataset": "hiv1", "method": "gssg", "rho": 0.1, "n": 1, **more}


def test_rows_are_kept_once(tmp_path):
    store = Store(tmp_path)
    assert store.rows() == []
    for key in ("b", "a", "b"):
        store.add(fake(key))
    assert [row["key"] for row in store.rows()] == ["a", "b"]
    store.gather()
    assert not list((tmp_path / "parts").glob("*"))
    store.add(fake("b"))  # killed between moving rows and deleting parts
    store.add(fake("c"))
    assert [row["key"] for row in Store(tmp_path).rows()] == ["a", "b", "c"]
    assert store.file.stat().st_mode & 0o044


def test_full_disk_loses_no_row(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.add(fake("a"))
    store.gather()
    store.add(fake("b"))
    with monkeypatch.context() as patch:

        def full(_):
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            store.gather()
        with pytest.raises(OSError, match="No space"):
            store.add(fake("c"))
    assert [row["key"] for row in store.rows()] == ["a", "b"]
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]


def test_damaged_rows_are_named(tmp_path):
    store = Store(tmp_path)
    store.file.write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"is damaged .*: delete it"):
        store.rows()


def test_runs_that_are_done_are_not_made_again(protocol, tmp_path):
    store = Store(tmp_path)
    runs = [run for run in small(protocol) if run.method in ("gssg", "pssg")]
    told = []
    assert perform_all(runs[:1], store, 1, told.append) == []
    assert perform_all(runs, store, 2, told.append) == []
    assert sorted(run.key for run in told) == sorted(run.key for run in runs)
    assert perform_all(runs, store, 2, lambda _: pytest.fail("made again")) == []


def test_a_run_that_fails_stops_no_other(protocol, tmp_path, monkeypatch):
    monkeypatch.delenv("DROLEARN_DATA", raising=False)
    monkeypatch.setenv("DROLEARN_CACHE", str(tmp_path / "cache"))
    good = small(protocol)[0]
    bad = replace(good, dataset="rcv1_27k")
    failures = perform_all([bad, good], Store(tmp_path), 1)
    assert [failure.key for failure in failures] == [bad.key]
    assert isinstance(failures[0], Failure)
    assert Store(tmp_path).keys() == {good.key}
    assert list(available(["adult", "rcv1_27k"])) == ["rcv1_27k"]


# -- tables ----------------------------------------------------------------------------


def test_intervals():
    found = interval([1.0, 2.0, 3.0, 4.0])
    assert found.mean == 2.5
    np.testing.assert_allclose(found.half, 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2, rtol=1e-6)
    assert np.isnan(interval([1.0]).half)
    assert interval([1.0]).text() == "1.0"


def test_bold_as_in_the_paper(protocol):
    """Table 1 prints in bold what the rule says, for all of its rows."""
    bold = {
        "tr31.wc": "gpe", "hiv1": "ge", "gina_prior": "e", "la1s.wc": "pe", "gina_agnostic": "e",
        "bioresponse": "e", "ova_breast": "e", "fabert": "p", "dilbert": "gpe", "adult": "pe",
        "imdb.drama": "p", "guillermo": "pe", "riccardo": "e", "rcv1": "gp",
    }  # fmt: skip
    for name, letters in bold.items():
        said = protocol.datasets[name].published
        found = {
            "g": Interval(*said.gssg["0.1"]), "p": Interval(*said.pssg["0.1"]),
            "e": Interval(*said.erm),
        }  # fmt: skip
        assert best(found) == set(letters), name
    ours = {"g": Interval(3.0, 0.1), "e": Interval(2.0, 0.1), "exact": Interval(1.0, 0.1)}
    assert best(ours, ["g", "e"]) == {"e", "exact"}  # the rule is that of the paper's methods


def table_rows(protocol, **errors):
    runs = protocol.runs("table1")
    rows = []
    for run in runs:
        if run.dataset == "hiv1" and run.method in errors:
            error = errors[run.method][run.seed]
            rows.append({"key": run.key, "dataset": "hiv1", "method": run.method, "rho": run.rho,
                         "test_error": error, "seconds": 2.0, "seed": run.seed,
                         "ending": "diverged" if error == 0.2 else "all passes"})  # fmt: skip
    return rows


def test_tables_in_three_forms(protocol):
    plan = protocol.narrowed(["hiv1", "gina_prior"], 2)
    made = table_rows(plan, gssg=[0.06, 0.07], pssg=[0.2, 0.2], erm=[0.065, 0.065])
    why = "'gina_prior' could not be fetched (a reason): do something."
    errors, seconds = tables.results(plan, "table1", made, {"gina_prior": why})
    lines = errors.markdown().splitlines()
    hiv1 = next(line for line in lines if line.startswith("| hiv1"))
    assert "| **6.5 ± 6.4** (**6.1 ± 0.5**) | 20.0 ± 0.0 (5.9 ± 0.1) |" in hiv1
    assert "**6.5 ± 0.0** (**5.6 ± 0.0**)" in hiv1
    gina = next(line for line in lines if line.startswith("| gina_prior ‡"))
    assert "– (14.4 ± 0.8)" in gina
    assert any(why in line for line in lines)
    assert any("6 of 10 runs" in line for line in lines)
    assert any("2 of 2 runs of PSSG left all bounds" in line for line in lines)
    assert any(why in line for line in seconds.markdown().splitlines())
    latex = errors.latex()
    assert r"$\mathbf{6.5 \pm 6.4}$ ($\mathbf{6.1 \pm 0.5}$)" in latex
    assert r"gina\_prior" in latex
    assert r"gina\_prior $^\ddag$" in latex
    assert "(a reason)" in latex
    cells = list(csv.DictReader(seconds.csv().splitlines()))
    pssg = next(c for c in cells if c["data set"] == "hiv1" and c["method"] == "pssg")
    assert (float(pssg["measured"]), float(pssg["published"])) == (2.0, 10.0)
    assert next(c for c in cells if c["data set"] == "gina_prior")["note"] == f"‡ {why}"


def test_claims_say_when_nothing_was_measured(protocol):
    text = claims.claims(protocol, [])
    assert text.count(": not measured") >= 6
    page = "# Mine\n" + claims.MARK + "old\n"
    assert claims.with_claims(page, "new\n") == "# Mine\n" + claims.MARK + "\nnew\n"
    with pytest.raises(ValueError, match="no line"):
        claims.with_claims("# Mine\n", "new\n")


# -- the command -----------------------------------------------------------------------


@pytest.mark.slow
def test_quick_reproduction_of_everything(tmp_path, data_folder):
    """The shape of the results, not their luck."""
    out = tmp_path / "out"
    command = ["reproduce", "all", "--quick", "--jobs", "2", "--out", str(out)]
    ran = CliRunner().invoke(cli.app, command)
    assert ran.exit_code == 0, ran.output
    assert "left:" in ran.output
    for name in ("figure1", "figure2_rcv1_27k", "figure3", "figure4_rcv1_27k", "scaling", "large"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / f"{name}.svg").read_text()
    plan = read_protocol().hurried()
    rows = Store(out).rows()
    made = {row["dataset"] for row in rows}
    runs = {r.key for name in plan.artefacts for r in plan.runs(name) if r.dataset in made}
    assert runs == {row["key"] for row in rows}
    for name in ("table1", "table2"):
        text = (out / f"{name}.md").read_text()
        for dataset in ("tr31.wc", "hiv1", "adult", "rcv1_27k"):
            line = next(line for line in text.splitlines() if line.startswith(f"| {dataset}"))
            assert "–" not in line
            assert line.count("(") >= 3
        assert "\\toprule" in (out / f"{name}.tex").read_text()
        cells = list(csv.DictReader((out / f"{name}.csv").read_text().splitlines()))
        errors = [float(c["measured"]) for c in cells if c["measured"] and "err" in c["quantity"]]
        assert all(0.0 <= error < 60.0 for error in errors)
    assert "gina_prior" in (out / "table1.md").read_text()
    page = (out / "claims.md").read_text()
    assert page.count("\n## ") == 7
    for title in ("Test errors", "SGD stalls", "PSSG is ahead", "FSG is not", "DRL is as good"):
        head = next(line for line in page.splitlines() if line.startswith(f"## {title}"))
        assert not head.endswith("not measured")
    by = {(r["dataset"], r["method"], r["split"], r["rho"], r["seed"]): r for r in rows}
    for (dataset, method, split, rho, seed), row in by.items():
        exact = by.get((dataset, "exact", split, rho, seed))
        if exact and method in ("gssg", "pssg", "fsg", "sgd"):
            assert row["robust_loss"] > exact["robust_loss"] - 1e-6
    before = (out / "runs.parquet").read_bytes()
    command[1] = "table2"  # without drawing all pictures anew
    again = CliRunner().invoke(cli.app, command)
    assert again.exit_code == 0
    assert (out / "runs.parquet").read_bytes() == before


@pytest.mark.slow
def test_killed_and_started_again(tmp_path):
    """kill -9 at any moment: nothing that was finished is lost or made twice."""
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "drolearn.cli",
        "reproduce",
        "table2",
        "--quick",
        "--jobs",
        "2",
    ]
    command += ["--datasets", "adult", "--out", str(out)]
    environment = {k: v for k, v in os.environ.items() if k != "DROLEARN_DATA"}
    plan = read_protocol().hurried().narrowed(["adult"], None)
    wanted = {run.key for run in plan.runs("table2")}
    stamps: dict[str, int] = {}
    for enough in (1, 6):
        process = subprocess.Popen(
            command, env=environment, start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 120.0
        while len(list(out.glob("parts/*.parquet"))) < enough and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = {path.name: path.stat().st_mtime_ns for path in out.glob("parts/*.parquet")}
        for name, stamp in stamps.items():
            assert now.get(name) == stamp, "a finished run was lost or made again"
        stamps = now
        Store(out).rows()  # all readable
    done = Store(out).keys()
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert f"{len(wanted)} runs, {len(done)} of them done before" in " ".join(ran.stdout.split())
    assert Store(out).keys() == wanted
    assert "45222" in (out / "table2.md").read_text()


def started(out, *arguments, **options):
    command = [sys.executable, "-m", "drolearn.cli", "reproduce", *arguments, "--out", str(out)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes, **options)


def wait_for(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_keeps_what_is_finished_and_nothing_else(tmp_path, jobs):
    out = tmp_path / "out"
    process = started(out, "table2", "--datasets", "adult", "--jobs", jobs, "--seeds", "1")
    wait_for(lambda: list(out.glob("parts/*.parquet")) or process.poll() is not None)
    time.sleep(0.5)  # in the middle of the next run
    os.killpg(process.pid, signal.SIGINT)
    said, wrong = process.communicate(timeout=60)
    assert process.returncode == 130, wrong
    assert "Stopped: " in said
    assert "the same command goes on" in " ".join(said.split())
    for row in Store(out).rows():
        assert row["ending"] != "interrupted"
        assert row["samples"] >= 1e5


def test_one_process_at_a_time(tmp_path):
    out = tmp_path / "out"
    first = started(out, "table2", "--datasets", "adult", "--jobs", "1", "--seeds", "1")
    try:
        wait_for((out / ".lock").exists)
        time.sleep(0.5)
        second = started(out, "table2", "--quick", "--datasets", "adult")
        assert second.wait(60) == 1
        assert "Another process is at work" in second.communicate()[1]
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_in_one_sentence(tmp_path):
    out = tmp_path / "out"
    process = started(out, "table2", "--datasets", "adult", "--jobs", "1", "--seeds", "1")
    wait_for(lambda: list(out.glob("parts/*.parquet")) or process.poll() is not None)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not list the children of a process")
    for number in children.read_text().split():
        if b"popen_loky" in Path(f"/proc/{number}/cmdline").read_bytes():
            os.kill(int(number), signal.SIGKILL)
    _, wrong = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "was killed, most likely for want of memory" in wrong
    assert "Traceback" not in wrong
    assert Store(out).rows()


@pytest.mark.slow
def test_narrowed_runs_leave_the_other_rows_in_the_tables(tmp_path):
    out = tmp_path / "out"
    command = ["reproduce", "table1", "--quick", "--jobs", "2", "--out", str(out)]
    for dataset in ("adult", "hiv1"):
        if dataset == "hiv1" and not os.environ.get("DROLEARN_DATA"):
            continue
        ran = CliRunner().invoke(cli.app, [*command, "--datasets", dataset, "--seeds", "1"])
        assert ran.exit_code == 0, ran.output
    lines = (out / "table1.md").read_text().splitlines()
    assert len(Store(out).rows()) in (5, 10)
    plan = read_protocol().hurried()
    cli.write(plan, "table1", Store(out).rows(), {}, out)
    lines = (out / "table1.md").read_text().splitlines()
    adult = next(line for line in lines if line.startswith("| adult"))
    assert "–" not in adult


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reproduce", "figure9"], "'figure9' is none of figure1"),
        (["reproduce", "table1", "--datasets", "hiv"], "'hiv' is no data set"),
        (["reproduce", "table1", "--jobs", "0"], "greater than or equal to 1"),
        (["reproduce", "table1", "--protocol", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["datasets", "--fetch", "nothing"], "There is no data set 'nothing'"),
        (["reproduce", "figure1", "--datasets", "adult"], "figure1 has no runs with adult"),
        (["reproduce", "table1", "--quick", "--out", __file__], "choose another folder"),
        (["reproduce", "table1", "--quick", "--page", __file__], "The page has no line"),
    ],
)
def test_mistakes_on_the_command_line(arguments, said):
    ran = subprocess.run(
        [sys.executable, "-m", "drolearn.cli", *arguments], capture_output=True, text=True
    )
    assert ran.returncode != 0
    words = re.sub(r"[│╭╮╰╯─\s]+", " ", ran.stderr)
    assert said in words, ran.stderr
    assert "Traceback" not in ran.stderr


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
    assert re.search(r"gina_prior .*openml.org .*openml.org", ran.output)
    assert "mine.npz" in ran.output


def test_missing_extras_are_named(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('gone', name='typer')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "drolearn.cli", "datasets"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.strip() == "The command line needs typer: pip install 'drolearn[paper]'."


# -- what is committed -----------------------------------------------------------------


@pytest.fixture(scope="module")
def committed():
    path = ROOT / "results" / "paper" / "runs.parquet"
    if not path.exists():
        pytest.skip("only a checkout has the results")
    return pyarrow.parquet.read_table(path).to_pylist()


def test_committed_rows_are_those_of_the_protocol(protocol, committed):
    made = {row["dataset"] for row in committed}
    assert made == {"tr31.wc", "hiv1", "bioresponse", "adult", "rcv1_27k", "text_like"}
    wanted = {r.key for name in protocol.artefacts for r in protocol.runs(name)}
    wanted = {key for key in wanted if key.split()[0] in made}
    assert {row["key"] for row in committed} == wanted


def test_committed_pages_are_made_from_the_committed_rows(protocol, committed):
    text = claims.claims(protocol, committed)
    beside = (ROOT / "results" / "paper" / "claims.md").read_text(encoding="utf-8")
    assert beside == claims.beside_the_rows(text)
    for link in re.findall(r"\]\(([^)]+)\)", beside):
        assert (ROOT / "results" / "paper" / link).exists(), link
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    assert claims.with_claims(page, text) == page
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (ROOT / "docs" / link).exists(), link


def test_scaling_follows_its_rule(protocol, committed):
    """The least mean error on held-out rows, or within half a point of it the mildest."""
    order = ["none", "columns", "rows", "both"]
    runs = protocol.runs("choices")
    for dataset in protocol.artefacts["choices"].datasets:
        means = {}
        for scaling in order:
            own = tables.select(
                committed, runs, dataset=dataset, scaling=scaling, intercept=False, inflation=0.1
            )
            means[scaling] = 100.0 * np.mean([row["test_error"] for row in own])
        close = [name for name in order if means[name] <= min(means.values()) + 0.5]
        assert protocol.datasets[dataset].scaling == close[0], (dataset, means)
