"""The paper's protocol: its numbers, errors in the file, keys and seeds of runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from drolearn import datasets
from drolearn.paper.protocol import read_protocol

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "src" / "drolearn" / "paper" / "paper.toml"


def test_numbers_are_those_of_the_paper(protocol):
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


def test_published_errors_are_those_of_the_tables(protocol):
    """Against the tables in the source of the paper, if it is there."""
    source = ROOT.parent / "shared" / "paper.tex"
    if not source.exists():
        pytest.skip("the source of the paper is not here")
    text = source.read_text()
    rows = re.findall(r"^\t*(\S+?)\$\^\{\\(?:dag|ast|ddag)\}\$\s*&(.*)\\\\", text, re.M)
    assert len(rows) == 14
    for name, cells in rows:
        numbers = [float(number) for number in re.findall(r"\d+\.?\d*", cells)]
        published = protocol.datasets[name.replace("\\", "")].published
        assert [*published.gssg["0.1"], *published.pssg["0.1"], *published.erm] == numbers[:6]
        assert [published.seconds[m] for m in ("gssg", "pssg", "erm")] == numbers[6:]
    second = re.findall(r"^([\w.\\]+)\t+&(\d+)\t+&(\d+).*?&([\d.]+)(.*)\\\\", text, re.M)
    assert len(second) == 14
    for name, d, n, _, cells in second:
        name = name.replace("\\", "").lower()
        assert (datasets.CATALOGUE[name].n, datasets.CATALOGUE[name].d) == (int(n), int(d))
        numbers = [float(number) for number in re.findall(r"\d+\.\d+", cells)]
        published = protocol.datasets[name].published
        assert [*published.gssg["0.1"], *published.pssg["0.1"]] == numbers[:4]
        assert [*published.gssg["0.01"], *published.pssg["0.01"]] == numbers[4:8]


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("[budget]\n", "[budget]\nbudged = 3\n", r"budget\.budged: unknown key"),
        ("base = 1 ", "bass = 1 ", r"methods\.gssg\.\w+\.bass: unknown key"),
        ("train = 0.75", "train = 1.75", r"splits\.figures\.train"),
        ('methods = ["gssg", "pssg", "erm"', 'methods = ["gsgs", "pssg", "erm"', "no methods.gsgs"),
        ("[model]", "[model", "cannot be read as TOML"),
        ('kind = "full"', 'kind = "fool"', "fool"),
        ('inside = "figures"', 'inside = "figurse"', "there is no splits.figurse"),
        ('stands_for = "rcv1"', 'stands_for = "rvc1"', "no datasets.rvc1"),
        ("[datasets.fabert]", "[datasets.faber]\n[datasets.fabert]", r"datasets\.faber\b"),
        ("[datasets.text_like]", "[datasets.texts]", r"datasets\.texts: there is no such data set"),
        ("[datasets.text_like]", "[datasets.bike_hour]", r"datasets\.bike_hour: .* two classes"),
        ("rate = 1.001", "rate = 0.5", r"methods\.pssg\.growing\.rate"),
        ('x = "samples"\n', 'x = "samples"\nsizes = [1000]\n', "sizes and tests are required with"),
        ("rho = [0.1]\n", "rho = []\n", r"artefacts\.figure1\.rho"),
    ],
)
def test_errors_in_the_file_are_named(tmp_path, old, new, pattern):
    text = PAPER.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=pattern) as caught:
        read_protocol(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_keys_identify_runs_and_artefacts_share_runs(protocol):
    figure1 = {run.key for run in protocol.runs("figure1") if run.method != "sgd"}
    figure3 = [run.key for run in protocol.runs("figure3")]
    assert figure1 <= set(figure3)
    assert len(set(figure3)) == len(figure3)
    table2 = [run for run in protocol.runs("table2") if run.dataset == "hiv1"]
    assert sum(run.method == "erm" for run in table2) == 10  # one search for both radii
    run = table2[0]
    assert replace(run, budget=run.budget | {"samples": 1.0}).key != run.key


def test_random_numbers_depend_on_names(protocol):
    runs = [run for run in protocol.runs("table1") if run.dataset == "hiv1" and run.seed == 3]
    orders = [run.generator("permutation").permutation(9).tolist() for run in runs]
    assert all(order == orders[0] for order in orders)  # the same for all methods
    other = replace(runs[0], seed=4).generator("permutation").permutation(9).tolist()
    assert other != orders[0]
