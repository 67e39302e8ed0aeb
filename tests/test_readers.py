"""Readers of tables and checkpoints: any bytes are a result or a named error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from drolearn._solvers.state_file import load_state, save_state
from drolearn.cli.running import InputError
from drolearn.cli.tables import read, split, task_of

lines = st.lists(st.text("0123456789:.,-+e\"'\n\ty ab\0é", max_size=12), max_size=6)
contents = st.one_of(st.binary(max_size=60), lines.map(lambda each: "\n".join(each).encode()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readers")


@pytest.mark.filterwarnings("ignore")  # of pandas, about what it cannot parse
@pytest.mark.parametrize("ending", ["csv", "svm", "npz", "parquet", "feather"])
@settings(max_examples=60, deadline=None)
@given(contents)
@example(b"y,a\n1,2\n0,3\n")
@example(b"1 1:0.5\n-1 2:1e400\n")
def test_any_bytes_as_a_table(folder, ending, content):
    path = folder / f"any.{ending}"
    path.write_bytes(content)
    try:
        rows = split(read(str(path)), "y", None, None)
        task = task_of(rows.y, "auto")
    except InputError:
        return
    assert task in ("classification", "regression")
    assert rows.X.shape[0] == len(rows.y) > 0


def checkpoint(folder):
    path = folder / "good.npz"
    save_state(path, {"theta": np.arange(3.0), "step": 5})
    return path.read_bytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_checkpoints(folder, data):
    content = bytearray(checkpoint(folder))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = folder / "damaged.npz"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = load_state(path, dict)
    except ValueError as error:
        if "is not a checkpoint of drolearn, or is damaged" not in str(error):
            raise
        return
    assert found["step"] == 5
    assert found["theta"].tolist() == [0.0, 1.0, 2.0]
