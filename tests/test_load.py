"""Many fits at once, one after the other, and in processes of all kinds: always the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import drolearn
from drolearn import _core
from tests.faults import heed_permissions, skip_if_root_ignores_permissions
from tests.load import COUNT, fit
from tests.soak import usually

pytestmark = pytest.mark.xdist_group("processes")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def alone():
    """What each fit finds if nothing else runs."""
    return [fit(k) for k in range(COUNT)]


def run(*arguments, python=(sys.executable,), **options):
    """What `python -m tests.load` prints."""
    command = [*python, "-m", "tests.load", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, **{"cwd": ROOT, **options})
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_eight_fits_at_once_in_threads(alone):
    order = [(turn + k) % COUNT for turn in range(usually(2, 20)) for k in range(COUNT)]
    with ThreadPoolExecutor(COUNT) as threads:
        assert list(threads.map(fit, order)) == [alone[k] for k in order]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_eight_fits_at_once_in_processes(alone, method):
    """A process that is spawned imports everything anew, so fewer are spawned."""
    if sys.platform == "win32" and method != "spawn":
        pytest.skip("Windows has no fork")
    workers = COUNT if method != "spawn" else usually(2, COUNT)
    assert run(method, workers) == [alone, alone]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to see the memory")
def test_a_thousand_fits_need_no_more_memory():
    before, after = run("memory", usually(1000, 5000))
    assert abs(after / before - 1.0) <= 0.02


def test_without_assertions(alone):
    assert run("alone", python=(sys.executable, "-O")) == alone


def test_a_read_only_installation(alone, tmp_path):
    """Nobody may write to the package, to the folder of the process, or to a home."""
    skip_if_root_ignores_permissions()
    package = Path(drolearn.__file__).parent
    shutil.copytree(package, tmp_path / "drolearn", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(_core.__file__, tmp_path / "drolearn")  # editable installations have it elsewhere
    # Python runs this file when it starts. Finders of editable installations come before all paths.
    editable = "type(each).__name__.startswith('ScikitBuild')"
    program = f"import sys\nsys.meta_path = [each for each in sys.meta_path if not {editable}]\n"
    (tmp_path / "sitecustomize.py").write_text(program, encoding="utf-8")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "load.py", tmp_path / "tests")
    folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    options = {
        "cwd": tmp_path, "preexec_fn": heed_permissions,
        "env": {**os.environ, "HOME": "/nowhere", "PYTHONPATH": str(tmp_path)},
    }  # fmt: skip
    try:
        for path in folders:
            path.chmod(0o555)
        program = "import drolearn; print(drolearn.__file__); open('file', 'w')"
        command = [sys.executable, "-c", program]
        ran = subprocess.run(command, capture_output=True, text=True, **options)
        assert ran.stdout.strip() == str(tmp_path / "drolearn" / "__init__.py")
        assert "PermissionError" in ran.stderr
        assert run("alone", **options) == alone
    finally:
        for path in folders:
            path.chmod(0o755)


_NOTEBOOK = """
import warnings, nbclient, nbformat, sys
cells = sys.argv[1:]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(each) for each in cells])
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.outputs:
        data = output.get("data", {})
        print(data.get("text/plain", output.get("text", "")), "html" if "text/html" in data else "")
"""


@pytest.mark.slow
def test_a_jupyter_kernel(alone):
    """Fits with threads, in a kernel whose event loop runs; models are displayed as HTML."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [
        "from tests.load import COUNT, fit\nprint(*(fit(k) for k in range(COUNT)))",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "print(*ThreadPoolExecutor(COUNT).map(fit, range(COUNT)))",
        "from drolearn import RobustClassifier\nRobustClassifier(n_jobs=2).fit([[0], [1]], [0, 1])",
    ]
    command = [sys.executable, "-W", "ignore", "-c", _NOTEBOOK, *cells]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    words = ran.stdout.split()
    assert words[: 2 * COUNT] == 2 * alone
    assert words[2 * COUNT].startswith("RobustClassifier")
    assert words[-1] == "html"
