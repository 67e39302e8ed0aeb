"""Files of data sets that are damaged or hold something else."""

from __future__ import annotations

import numpy as np
import pytest

from drolearn import datasets


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (b"", "damaged"),
        (b"PK\x03\x04 and no more", "damaged"),
        ({"format": "dense", "X": np.zeros((2, 3))}, "damaged"),
        ({"format": "dense", "X": np.zeros((2, 3)), "y": np.ones(2)}, "has 2 rows and 3 columns"),
        ({"format": "dense", "X": np.zeros((5830, 160)), "y": np.ones(5830)}, "labels 1 and -1"),
        ({"format": "dense", "X": np.zeros((5830, 160)), "y": np.resize([257, -1], 5830)}, "257"),
        (
            {"format": "dense", "X": np.full((5830, 160), np.nan), "y": np.resize([1, -1], 5830)},
            "not finite",
        ),
        (
            {
                "format": "csr",
                "data": np.ones(1),
                "indices": np.array([10**6]),
                "shape": (5830, 160),
                "indptr": np.ones(5831, dtype=int),
                "y": np.resize([1, -1], 5830),
            },
            "damaged",
        ),
        (
            {
                "format": "csr",
                "data": np.ones(1),
                "indices": np.array([0]),
                "shape": 7,
                "indptr": np.ones(5831, dtype=int),
                "y": np.resize([1, -1], 5830),
            },
            "damaged",
        ),
    ],
)
def test_bad_files_in_the_folder(monkeypatch, tmp_path, empty_cache, content, pattern):
    path = tmp_path / "hiv1.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez(path, **content)
    monkeypatch.setenv("DROLEARN_DATA", str(tmp_path))
    with pytest.raises(datasets.DataError, match=pattern) as caught:
        datasets.load("hiv1")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_in_the_cache(empty_cache):
    empty_cache.mkdir()
    X = np.zeros((5830, 160), dtype=np.float32)
    np.savez_compressed(empty_cache / "hiv1.npz", format="dense", X=X, y=np.ones(5830))
    content = (empty_cache / "hiv1.npz").read_bytes()
    (empty_cache / "hiv1.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(datasets.DataError, match="drolearn datasets --fetch hiv1"):
        datasets.load("hiv1")


def test_a_flipped_bit_in_the_cache(empty_cache):
    empty_cache.mkdir()
    X = np.random.default_rng(0).random((5830, 160)).astype(np.float32)
    np.savez_compressed(empty_cache / "hiv1.npz", format="dense", X=X, y=np.resize([1, -1], 5830))
    content = bytearray((empty_cache / "hiv1.npz").read_bytes())
    content[len(content) // 2] ^= 8
    (empty_cache / "hiv1.npz").write_bytes(content)
    with pytest.raises(datasets.DataError, match="is damaged"):
        datasets.load("hiv1")
