"""The package and its documentation as users see them."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import drolearn
import drolearn.boosting
import drolearn.dask
import drolearn.datasets
import drolearn.nn
import drolearn.onnx

ROOT = Path(__file__).parents[1]
#: All pages with examples.
PAGES = [
    "README.md",
    "docs/worst-case.md",
    "docs/shifts.md",
    "docs/stress.md",
    "docs/slices.md",
    "docs/regret.md",
    "docs/domains.md",
    "docs/training.md",
    "docs/estimators.md",
    "docs/command-line.md",
    "docs/files.md",
    "docs/pytorch.md",
    "docs/ensembles.md",
    "docs/dask.md",
    "docs/boosting.md",
    "docs/paper-to-code.md",
    "docs/streams.md",
    "docs/risks.md",
    "docs/trimming.md",
    "docs/l1.md",
]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.xdist_group("dask") if "dask" in page else ())
        for page in PAGES
    ],
)
def test_examples_on_the_pages_run(page):
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_every_page_with_examples_is_listed_above():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    examples = [f.relative_to(ROOT) for f in pages if "\n>>> " in f.read_text(encoding="utf-8")]
    assert {str(page) for page in examples} == set(PAGES)


def test_tables_of_measurements_follow_from_the_committed_results():
    from benchmarks import defaults_page, report
    from benchmarks.machine import DOCS
    from benchmarks.scoreboard import run

    pages = report.pages() | run.pages() | {DOCS / "defaults.md": defaults_page.page()}
    for page, text in pages.items():
        assert page.read_text(encoding="utf-8") == text, page.name


def test_import_loads_no_heavy_library():
    program = "import sys, drolearn; print([m for m in {} if m in sys.modules])"
    heavy = ["torch", "sklearn", "joblib", "matplotlib", "pandas", "rich", "pooch", "pydantic"]
    heavy += ["pyarrow", "typer"]
    command = [sys.executable, "-c", program.format(heavy)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["drolearn.datasets", "drolearn.paper.tables"])
def test_libraries_are_imported_when_used(module):
    heavy = ["pooch", "requests", "pandas", "tabulate", "jinja2", "loky", "matplotlib", "filelock"]
    program = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_all_public_names_exist_and_are_documented():
    for name in drolearn.__all__:
        assert getattr(drolearn, name).__doc__, name


@pytest.mark.parametrize(
    "module",
    [
        drolearn,
        drolearn.boosting,
        drolearn.dask,
        drolearn.datasets,
        drolearn.nn,
        drolearn.onnx,
    ],
    ids=lambda module: module.__name__,
)
def test_the_reference_lists_the_public_names_of_a_module(module):
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    sections = re.findall(r"\.\. currentmodule:: (.+)\n([^`]+)", reference)
    parts = [names for name, names in sections if name == module.__name__]
    listed = [name for part in parts for name in re.findall(r"^   (\w+)$", part, re.MULTILINE)]
    assert sorted(listed) == sorted(module.__all__)


def test_pages_import_only_what_the_reference_lists():
    """What an example needs is public, and so in the reference."""
    from importlib import import_module

    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py")]
    for file in files:
        text = file.read_text(encoding="utf-8")
        for module, names in re.findall(r"from (drolearn[\w.]*) import (\([^)]*\)|.+)", text):
            wanted = set(re.findall(r"\w+", names.split("#")[0]))
            known = {*getattr(import_module(module), "__all__", ()), "cli"}
            assert wanted <= known, f"{file.name}: {module} {sorted(wanted - known)}"


def test_links_between_pages_lead_to_files_and_headings():
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    headings = {page: _anchors(page) for page in pages}
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in target or target.startswith(
                "gallery/"
            ):  # the gallery is made by `make docs`
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in headings[path], f"{page.name}: {target}"


def _anchors(page: Path) -> set[str]:
    """The anchors of headings, as GitHub and the site make them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
