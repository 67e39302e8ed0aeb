"""Readers of files: a result or a named error."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import skops.io

from drolearn import GSSG, Exact, ModelFileError, load, solve
from drolearn._files.archive import bytes_of, checksum, pack
from drolearn._solvers.state_file import load_state, save_state
from drolearn.cli.running import InputError
from drolearn.cli.tables import read, split, task_of
from drolearn.paper.protocol import read_protocol
from tests.fuzz.source import Source

__all__ = ["READERS", "seeds_of"]

_FIXTURE = Path(__file__).parents[1] / "fixtures" / "version-1-classifier.drl"
_MEMORY = Path("/dev/shm")  # of Linux: a checkpoint would wait for a disk
_FOLDER = Path(tempfile.mkdtemp(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))


def _remove(owner: int) -> None:
    """Remove the folder when the process ends that made it; its forks leave it."""
    if os.getpid() == owner:
        shutil.rmtree(_FOLDER)


atexit.register(_remove, os.getpid())


def _file(name: str, content: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(content)
    return path


# -- tables, and the file of the paper's experiments -----------------------------------------------


def _table(ending: str) -> Callable[[bytes], None]:
    def target(content: bytes) -> None:
        path = _file(f"table.{ending}", content)
        try:
            rows = split(read(str(path)), "y", None, None)
            task = task_of(rows.y, "auto")
        except InputError:
            return
        assert task in ("classification", "regression")
        assert rows.X.shape[0] == len(rows.y) > 0

    return target


def _protocol(content: bytes) -> None:
    path = _file("protocol.toml", content)
    try:
        read_protocol(path)
    except ValueError as error:
        _named(error, "fix")


def _named(error: Exception, words: str) -> None:
    """Raise an error again unless it is a sentence with these words."""
    if words not in str(error) or "\n" in str(error):
        raise error


# -- model files -----------------------------------------------------------------------------------

_ROWS = np.array([[0.5, -1.0, 2.0], [3.0, 0.0, -2.0]])


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def _model(content: bytes) -> None:
    """A .drl file; after the byte 1, the content of a member with a right checksum."""
    if content[:1] == b"\1" and len(content) > 1:
        parts = _members(_FIXTURE.read_bytes())
        parts.pop("manifest.json")
        name = sorted(parts)[-1 - content[1] % len(parts)]  # model.json is the last one
        parts[name] = content[2:]
        listed = {n: {"bytes": len(each), "sha256": checksum(each)} for n, each in parts.items()}
        head: dict[str, Any] = {"format": 1, "versions": {"drolearn": "0"}, "members": listed}
        content = pack({"manifest.json": bytes_of(head)} | parts)
    _load(_file("model.drl", content))


def _pipeline(content: bytes) -> None:
    """A .skops file; after the byte 1, the content of its schema."""
    if content[:1] == b"\1":
        parts = _members(_skops_file())
        content = pack(parts | {"schema.json": content[1:]})
    _load(_file("model.skops", content))


def _load(path: Path) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load(path)
    except ModelFileError:
        return
    if path.suffix == ".drl":
        assert model.predict(_ROWS).shape == (2,)


def _skops_file() -> bytes:
    return skops.io.dumps(load(_FIXTURE))


# -- checkpoints -----------------------------------------------------------------------------------

_DATA = np.random.default_rng(0)
_X = _DATA.standard_normal((40, 3))
_Y = _X[:, 0] + _DATA.standard_normal(40) > 0
_SOLVERS: dict[str, Any] = {
    "exact": {"divergence": "total-variation", "max_iter": 6},
    "gssg": {"max_iter": 2, "random_state": 0},
}


def _checkpoint(name: str) -> Callable[[bytes], None]:
    def target(content: bytes) -> None:
        """Any bytes; after the byte 1, a place and a value to put into the state."""
        path, good = _checkpoint_file(name)
        try:
            if content[:1] == b"\1":
                path.write_bytes(good)
                _change(path, Source(content[1:]))
            else:
                path.write_bytes(content)
            _continue(name, path.parent)
        except (ValueError, OverflowError) as error:
            _named(error, "is not a checkpoint of drolearn, or is damaged")
        finally:
            path.write_bytes(good)

    return target


_FILES: dict[str, tuple[Path, bytes]] = {}


def _checkpoint_file(name: str) -> tuple[Path, bytes]:
    """The file of a fit, and what is in it."""
    if name not in _FILES:
        folder = _FOLDER / name
        _continue(name, folder)
        (path,) = folder.glob("*.npz")
        _FILES[name] = path, path.read_bytes()
    return _FILES[name]


def _continue(name: str, folder: Path) -> None:
    solver: Any = (Exact if name == "exact" else GSSG)(checkpoint=folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = solve(_X, _Y, solver=solver, **_SOLVERS[name])
    assert solution.coef.shape == (3,)


def _change(path: Path, source: Source) -> None:
    """Put another value of a likely type in place of a part of a state."""
    content: dict[str, Any] = load_state(path, dict)
    node: Any = content
    while True:
        key = (
            source.choice(list(node)) if isinstance(node, dict) else source.choice(range(len(node)))
        )
        inner = node[key]
        if not (isinstance(inner, dict | list) and inner and source.integer(0, 1)):
            break
        node = inner
    if isinstance(inner, np.ndarray) and source.integer(0, 3):
        shape = tuple(source.integer(0, 5) for _ in range(source.integer(0, 3)))
        value: Any = source.numbers(int(np.prod(shape, dtype=int))).reshape(shape)
        node[key] = value.astype(source.choice(["f8", "f8", "f4", "i8", "?", "U3"]))
    else:
        options = [source.number(), source.integer(-3, 60), "lbfgs", "", None, True, [], {}, [1.5]]
        node[key] = source.choice(options)
    for name in [name for name, each in content.items() if isinstance(each, np.ndarray)]:
        content[name] = np.asarray(content[name])
    save_state(path, content)


# -- all targets -----------------------------------------------------------------------------------

#: All targets by name.
READERS: dict[str, Callable[[bytes], None]] = {
    **{ending: _table(ending) for ending in ("csv", "svm", "npz", "parquet", "feather")},
    "toml": _protocol,
    "drl": _model,
    "skops": _pipeline,
    "exact": _checkpoint("exact"),
    "gssg": _checkpoint("gssg"),
}


def seeds_of(name: str) -> list[bytes]:
    """Inputs from which others are made by small changes."""
    frame = pd.DataFrame({"y": [1, 0, 1], "a": [0.5, None, 2.0], "b": ["u", "v", "u"]})
    if name == "csv":
        return [b"y,a\n1,2\n0,3\n", frame.to_csv(index=False).encode(), b'y;"a"\n"1";"2,5"\n']
    if name == "svm":
        return [b"1 1:0.5 3:2\n-1 2:1e400\n", b"0 qid:1 1:1 # text\n1 2:0x1p3\n"]
    if name in ("parquet", "feather", "npz"):
        file = io.BytesIO()
        if name == "npz":
            np.savez(file, X=np.eye(3), y=np.arange(3), sex=np.array(["f", "m", "f"]))
        else:
            getattr(frame, f"to_{name}")(file)
        return [file.getvalue()]
    if name == "toml":
        return [
            (resources.files("drolearn.paper") / "paper.toml").read_bytes(),
            b"[model]\nstart = 1",
        ]
    if name == "drl":
        parts = _members(_FIXTURE.read_bytes())
        rest = sorted(set(parts) - {"manifest.json"})
        places = [len(rest) - 1 - k for k in range(len(rest))]
        inner = [bytes([1, at]) + parts[each] for at, each in zip(places, rest, strict=True)]
        return [_FIXTURE.read_bytes(), inner[-1], *inner]
    if name == "skops":
        return [_skops_file(), b"\1" + _members(_skops_file())["schema.json"]]
    return [
        _checkpoint_file(name)[1],
        b"\1" + bytes(range(40)),
        b"\1" + bytes(range(200, 100, -2)),
    ]
