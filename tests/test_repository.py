"""The package as users meet it."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import drolearn
from drolearn.datasets.catalogue import load_adult

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/worst-case.md",
        "docs/training.md",
        "docs/estimators.md",
        "docs/pytorch.md",
    ],
)
def test_examples_on_the_pages_run(page):
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_tables_of_measurements_are_those_of_the_committed_results():
    from benchmarks import report

    for page, text in report.pages().items():
        assert page.read_text(encoding="utf-8") == text, page.name


def test_import_is_light():
    program = "import sys, drolearn; print([m for m in {} if m in sys.modules])"
    heavy = ["torch", "sklearn", "joblib", "matplotlib", "pandas", "rich", "pooch", "pydantic"]
    heavy += ["pyarrow", "typer"]
    command = [sys.executable, "-c", program.format(heavy)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_all_public_names_exist_and_are_documented():
    for name in drolearn.__all__:
        assert getattr(drolearn, name).__doc__, name


def test_adult():
    adult = load_adult()
    assert adult.X.shape == (45222, 104)
    assert adult.X.dtype == np.float32
    assert np.isfinite(adult.X).all()
    assert {int(label) for label in np.unique(adult.y)} == {-1, 1}
    assert adult.is_test.sum() == 15060
    assert set(adult.sex) == {"Male", "Female"}
    assert "White" in set(adult.race)
    assert len(set(adult.race)) == 5
    assert adult.feature_names[0] == "age"


def test_adult_is_small():
    assert (Path(drolearn.__file__).parent / "datasets" / "adult.npz").stat().st_size < 2**20
