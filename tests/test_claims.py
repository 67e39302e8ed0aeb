"""The page about the paper's claims, and the results in the repository that it follows from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from drolearn.paper import claims, tables

ROOT = Path(__file__).parents[1]


def test_claims_without_results(protocol):
    text = claims.claims(protocol, [])
    assert text.count(": not measured") >= 6
    page = "# Mine\n" + claims.MARK + "old\n"
    assert claims.with_claims(page, "new\n") == "# Mine\n" + claims.MARK + "\nnew\n"
    with pytest.raises(ValueError, match="no line"):
        claims.with_claims("# Mine\n", "new\n")


@pytest.fixture(scope="module")
def committed():
    """The rows in results/paper."""
    path = ROOT / "results" / "paper" / "runs.parquet"
    if not path.exists():
        pytest.skip("only a checkout has the results")
    return pyarrow.parquet.read_table(path).to_pylist()


def test_committed_rows_are_those_of_the_protocol(protocol, committed):
    made = {row["dataset"] for row in committed}
    words = {"tr31.wc", "la1s.wc", "rcv1_27k", "text_like"}
    assert made == {*words, "hiv1", "bioresponse", "adult"}
    wanted = {r.key for name in protocol.artefacts for r in protocol.runs(name)}
    wanted = {key for key in wanted if key.split()[0] in made}
    assert {row["key"] for row in committed} == wanted


def test_committed_pages_follow_from_the_committed_rows(protocol, committed):
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
    """The mildest scaling within half a point of the least mean error on held-out rows."""
    order = ["none", "columns", "rows", "both"]
    runs = protocol.runs("choices")
    for dataset in protocol.artefacts["choices"].datasets:
        means = {}
        for scaling in order:
            rows = tables.select(
                committed, runs, dataset=dataset, scaling=scaling, intercept=False, inflation=0.1
            )
            means[scaling] = 100.0 * np.mean([row["test_error"] for row in rows])
        close = [name for name in order if means[name] <= min(means.values()) + 0.5]
        assert protocol.datasets[dataset].scaling == close[0], (dataset, means)
