"""Tables: bold entries, results of the paper's experiments, and three formats."""

from __future__ import annotations

import csv
import io
import re

import pytest

from drolearn.paper import tables
from drolearn.paper.rows import Interval
from drolearn.paper.tables import best

# -- formats -------------------------------------------------------------------------------------


@pytest.fixture
def table():
    made = tables.Table("A title", ["data set", "N", "√(d/N)", "GSSG"])
    made.rows = [
        ["tr31.wc", "927", "0.30", tables.Cell("0.3 ± 0.3", "2.9 ± 0.5", True, False)],
        ["rcv1_27k †", "1e+06", "–", tables.Cell()],
    ]
    made.notes = ["† 5% of rcv1_27k"]
    made.records = [{"data set": "tr31.wc", "rho": "", "error": 0.1, "best": True, "note": "a, b"}]
    return made


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_keeps_every_text_as_it_is(table):
    title, _, head, rule, *rows, _, note = table.markdown().splitlines()
    assert title == "**A title**"
    assert cells(head) == table.columns
    assert re.fullmatch(r"\|:-+\|(-+:\|){3}", rule)  # the first column left, the others right
    assert cells(rows[0]) == ["tr31.wc", "927", "0.30", "**0.3 ± 0.3** (2.9 ± 0.5)"]
    assert cells(rows[1]) == ["rcv1_27k †", "1e+06", "–", "–"]
    assert note == "- † 5% of rcv1_27k"


def test_latex_escapes_text_and_not_numbers(table):
    lines = table.latex().splitlines()
    assert lines[:3] == [
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"data set & N & $\sqrt{d/N}$ & GSSG \\",
    ]
    assert r"tr31.wc & 927 & 0.30 & $\mathbf{0.3 \pm 0.3}$ ($2.9 \pm 0.5$) \\" in lines
    assert r"rcv1\_27k $^\dag$ & 1e+06 & -- & $\text{--}$ \\" in lines
    note = r"\multicolumn{4}{p{\linewidth}}{$^\dag$ 5\% of rcv1\_27k} \\"
    assert lines[-3:] == [r"\bottomrule", note, r"\end{tabular}"]


def test_csv_of_several_tables_has_one_header(table):
    text = table.csv(table)
    assert text.splitlines()[0] == "data set,rho,error,best,note"
    lines = list(csv.DictReader(io.StringIO(text)))
    want = {"data set": "tr31.wc", "rho": "", "error": "0.1", "best": "True", "note": "a, b"}
    assert lines == [want, want]


def test_a_table_without_rows():
    empty = tables.Table("Nothing", ["data set", "N"])
    assert "| data set   | N   |" in empty.markdown()
    assert r"\begin{tabular}{lr}" in empty.latex()


# -- results -------------------------------------------------------------------------------------


def test_bold_as_in_the_paper(protocol):
    """The rule gives the bold entries of all rows of Table 1."""
    bold = {
        "tr31.wc": "gpe", "hiv1": "ge", "gina_prior": "e", "la1s.wc": "pe", "gina_agnostic": "e",
        "bioresponse": "e", "ova_breast": "e", "fabert": "p", "dilbert": "gpe", "adult": "pe",
        "imdb.drama": "p", "guillermo": "pe", "riccardo": "e", "rcv1": "gp",
    }  # fmt: skip
    for name, letters in bold.items():
        published = protocol.datasets[name].published
        errors = {
            "g": Interval(*published.gssg["0.1"]), "p": Interval(*published.pssg["0.1"]),
            "e": Interval(*published.erm),
        }  # fmt: skip
        assert best(errors) == set(letters), name
    ours = {"g": Interval(3.0, 0.1), "e": Interval(2.0, 0.1), "exact": Interval(1.0, 0.1)}
    assert best(ours, ["g", "e"]) == {"e", "exact"}  # the rule compares the paper's methods


def table_rows(protocol, **errors):
    """Rows of Table 1 for hiv1, with given test errors of each method."""
    runs = protocol.runs("table1")
    rows = []
    for run in runs:
        if run.dataset == "hiv1" and run.method in errors:
            error = errors[run.method][run.seed]
            rows.append({"key": run.key, "dataset": "hiv1", "method": run.method, "rho": run.rho,
                         "test_error": error, "seconds": 2.0, "seed": run.seed,
                         "ending": "diverged" if error == 0.2 else "all passes"})  # fmt: skip
    return rows


def test_tables_in_three_formats(protocol):
    plan = protocol.narrowed(["hiv1", "gina_prior"], 2)
    rows = table_rows(plan, gssg=[0.06, 0.07], pssg=[0.2, 0.2], erm=[0.065, 0.065])
    reason = "'gina_prior' could not be fetched (a cause): do something."
    errors, seconds = tables.results(plan, "table1", rows, {"gina_prior": reason})
    lines = errors.markdown().splitlines()
    hiv1 = next(line for line in lines if line.startswith("| hiv1"))
    assert "| **6.5 ± 6.4** (**6.1 ± 0.5**) | 20.0 ± 0.0 (5.9 ± 0.1) |" in hiv1
    assert "**6.5 ± 0.0** (**5.6 ± 0.0**)" in hiv1
    gina = next(line for line in lines if line.startswith("| gina_prior ‡"))
    assert "– (14.4 ± 0.8)" in gina
    assert any(reason in line for line in lines)
    assert any("6 of 10 runs" in line for line in lines)
    assert any("2 of 2 runs of PSSG diverged" in line for line in lines)
    assert any(reason in line for line in seconds.markdown().splitlines())
    latex = errors.latex()
    assert r"$\mathbf{6.5 \pm 6.4}$ ($\mathbf{6.1 \pm 0.5}$)" in latex
    assert r"gina\_prior" in latex
    assert r"gina\_prior $^\ddag$" in latex
    assert "(a cause)" in latex
    cells = list(csv.DictReader(seconds.csv().splitlines()))
    pssg = next(c for c in cells if c["data set"] == "hiv1" and c["method"] == "pssg")
    assert (float(pssg["measured"]), float(pssg["published"])) == (2.0, 10.0)
    assert next(c for c in cells if c["data set"] == "gina_prior")["note"] == f"‡ {reason}"
