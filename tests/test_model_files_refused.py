"""Model files that are damaged, foreign or meant to do harm: an error that says so."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drolearn import ModelFileError, RobustClassifier, RobustRegressor, load
from drolearn._files import archive
from drolearn._files.archive import bytes_of, checksum, pack
from tests.fixtures.make_models import rows

FIXTURES = Path(__file__).parent / "fixtures"
GOOD = (FIXTURES / "version-1-classifier.drl").read_bytes()


def members(content=GOOD) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(parts: dict[str, bytes], **manifest) -> bytes:
    """A file of these members, with right checksums and some changes of the manifest."""
    head = json.loads(members()["manifest.json"])
    rest = {name: each for name, each in parts.items() if name != "manifest.json"}
    listed = {n: {"bytes": len(each), "sha256": checksum(each)} for n, each in rest.items()}
    return pack({"manifest.json": bytes_of(head | {"members": listed} | manifest)} | rest)


def with_model(change) -> bytes:
    """The good file after a change of model.json."""
    parts = members()
    model = json.loads(parts["model.json"])
    change(model)
    return packed(parts | {"model.json": json.dumps(model).encode()})


def with_array(attribute, array) -> bytes:
    """The good file with another array as an attribute."""
    parts = members()
    model = json.loads(parts["model.json"])
    name = model["attributes"][attribute]["member"]
    return packed(parts | {name: array if isinstance(array, bytes) else bytes_of(array)})


def refuse(tmp_path, content: bytes, words: str) -> None:
    path = tmp_path / "model.drl"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=words) as caught:
        load(path)
    text = str(caught.value)
    assert "model.drl" in text
    assert "\n" not in text
    assert len(text) < 600


def test_the_tools_of_these_tests(tmp_path):
    """A file that is taken apart and put together again is accepted."""
    path = tmp_path / "model.drl"
    path.write_bytes(packed(members()))
    assert load(path).predict(rows()).size == 8


# -- files that are not model files --------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"PK", b"\x80\x05N.", pickle.dumps([1]), b"a,b\n1,2\n"])
def test_not_a_zip_file(tmp_path, content):
    refuse(tmp_path, content, "not a model file")


def test_other_zip_files(tmp_path):
    refuse(tmp_path, pack({}), "not a model file")
    refuse(tmp_path, pack({"manifest.json": b"[]"}), "not a JSON object")
    refuse(tmp_path, pack({"manifest.json": b"{}"}), "not a model file")
    refuse(tmp_path, pack({"manifest.json": b"[" * 100_000}), "nested too deeply")
    refuse(tmp_path, pack({"word/document.xml": b""}), "'word/document.xml', which model files do")


def test_a_file_that_is_cut_off(tmp_path):
    for size in [*range(1, len(GOOD), 371), len(GOOD) - 1]:
        refuse(tmp_path, GOOD[:size], "cut off or damaged")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_a_flipped_byte(tmp_path_factory, place, bits):
    """It is an error, or it hits what has no meaning, such as the time of a member."""
    path = tmp_path_factory.mktemp("flipped") / "model.drl"
    damaged = bytearray(GOOD)
    damaged[place] ^= bits
    path.write_bytes(damaged)
    try:
        model = load(path)
    except ModelFileError:
        return
    assert members(bytes(damaged)) == members()
    assert model.predict(rows()).tolist() == load_good().predict(rows()).tolist()


def load_good():
    return load(FIXTURES / "version-1-classifier.drl")


# -- members -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, 1.0, "1", None, True, [1]])
def test_other_versions_of_the_format(tmp_path, version):
    words = "has the format version .* written by drolearn 0.1.0.*install a newer drolearn"
    refuse(tmp_path, packed(members(), format=version), words)


@pytest.mark.parametrize(
    "name",
    ["../model.json", "/etc/passwd", "arrays/../x.npy", "arrays\\0.npy", "C:/x", "arrays/0.npy/",
     "arrays/0.NPY", "arrays/٣.npy", "model.pkl", ""],
)  # fmt: skip
def test_names_of_members(tmp_path, name):
    refuse(tmp_path, packed(members() | {name: b"x"}), "which model files do not have")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.drl"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path):
    file = io.BytesIO(GOOD)
    with zipfile.ZipFile(file, "a") as twice:
        twice.writestr("model.json", b"{}")
    refuse(tmp_path, file.getvalue(), "two members of the name 'model.json'")


def test_missing_and_additional_members(tmp_path):
    parts = members()
    for name in ("model.json", "arrays/0.npy"):
        rest = {key: each for key, each in parts.items() if key != name}
        refuse(tmp_path, pack(rest), f"lacks the member '{name}'")
    refuse(
        tmp_path, pack(parts | {"arrays/999.npy": b""}), "'arrays/999.npy' that it does not list"
    )
    without = {key: each for key, each in parts.items() if key != "arrays/0.npy"}
    refuse(tmp_path, packed(without), "damaged")


@pytest.mark.parametrize("name", ["model.json", "arrays/0.npy"])
def test_wrong_checksums(tmp_path, name):
    parts = members()
    changed = parts | {name: parts[name][:-1] + b"?"}
    refuse(tmp_path, pack(changed), f"the checksum of '{name}' is wrong")


def test_zip_bombs(tmp_path, monkeypatch):
    """Compressed members, sizes that lie, members that overlap, too many members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("manifest.json", b" " * 10_000_000)
    refuse(tmp_path, file.getvalue(), "compressed or encrypted member")
    size = len(members()["model.json"]).to_bytes(4, "little")
    huge = (2**31).to_bytes(4, "little")
    assert GOOD.count(2 * size) == 2
    refuse(tmp_path, GOOD.replace(2 * size, size + huge), "oversized member: 'model.json' claims")
    refuse(tmp_path, GOOD.replace(2 * size, 2 * huge), "oversized member: 'model.json' claims")
    # Both entries of the directory at the end point to the same bytes.
    repeated = {f"arrays/{k}.npy": b"x" * 5000 for k in range(2)}
    first = pack(repeated)
    offset = first.index(b"arrays/1.npy") - 30
    overlapping = first.replace(offset.to_bytes(4, "little") + b"arrays/1", b"\0" * 4 + b"arrays/1")
    assert overlapping != first
    refuse(tmp_path, overlapping[:4000] + overlapping[9000:], "damaged|oversized")
    with monkeypatch.context() as patch:
        patch.setattr(archive, "MOST_MEMBERS", 3)
        refuse(tmp_path, GOOD, "members, more than the 3 that")
        patch.setattr(archive, "LARGEST_FILE", 1000)
        refuse(tmp_path, GOOD, "larger than 1,000 bytes")


# -- arrays --------------------------------------------------------------------------------------


def npy(header: str, data: bytes = b"") -> bytes:
    """An array in NumPy's format with any header."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full((3, 3), np.nan), "not finite in 'coef_'"),
        (np.full((3, 3), -np.inf), "not finite in 'coef_'"),
        (np.zeros((3, 2)), r"shape \(3, 2\) instead of \(3, 3\) in 'coef_'"),
        (np.zeros((1, 3)), r"shape \(1, 3\) instead"),
        (np.zeros(3), r"shape \(3,\) instead"),
        (np.zeros((3, 3), int), "ndarray that fit does not make in 'coef_'"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000)}"), "the size"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -3)}"), "negative length"),
        (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 3)}"), "header"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"x" * 8), "type 'object'"),
        (
            npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': ()}", b"x" * 8),
            "not allowed",
        ),
        (npy("__import__('os').abort()"), "damaged"),
        (npy("{" * 100), "damaged"),
        (b"\x93NUMPY\x03\x00", "header"),
        (pickle.dumps(np.zeros((3, 3))), "damaged"),
        (b"", "damaged"),
    ],
)
def test_coefficients(tmp_path, array, words):
    refuse(tmp_path, with_array("coef_", array), words)


def test_classes_and_names_of_columns(tmp_path):
    for labels in (["low", "low", "middle"], ["c", "b", "a"], ["a"], [["a"]]):
        refuse(tmp_path, with_array("classes_", np.array(labels)), "'classes_'|'coef_'")
    for names in ([], ["a", "b"], ["a", "b", 3], [["a", "b", "c"]]):
        given_names = {"$": "objects", "shape": np.shape(names), "items": names}

        def change(model, value=given_names):
            model["attributes"]["feature_names_in_"] = value

        refuse(tmp_path, with_model(change), "'feature_names_in_'|damaged")


# -- descriptions --------------------------------------------------------------------------------


def setting(part, name, value):
    def change(model):
        model[part][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.update({"class": "Pipeline"}), "holds a Pipeline, which is not one"),
        (lambda model: model.update({"class": ["os", "system"]}), "damaged"),
        (lambda model: model.pop("attributes"), "damaged"),
        (setting("parameters", "code", "1"), "the parameter code, which this class of drolearn"),
        (setting("attributes", "predict", "x"), "the attribute predict, which this class"),
        (setting("attributes", "_loss", "x"), "the attribute _loss"),
        (setting("attributes", "__class__", "x"), "the attribute __class__"),
        (setting("parameters", "rho", -1.0), "'rho' parameter"),
        (setting("parameters", "divergence", {"$": "Path", "fields": {}}), "damaged"),
        (setting("parameters", "divergence", {"$": "KL", "fields": {"core": 1}}), "damaged"),
        (setting("parameters", "divergence", {"$": "CVaR", "fields": {"level": 7}}), "'level'"),
        (setting("parameters", "loss", {"$": "Loss", "kind": "huber", "width": -1}), "'width'"),
        (setting("parameters", "tol", {"$": "array", "member": "arrays/77.npy"}), "damaged"),
        (setting("attributes", "status_", 5), "'status_'"),
        (setting("attributes", "rho_", "0.1"), "'rho_'"),
        (setting("attributes", "n_features_in_", 4), r"shape \(3, 3\) instead of \(3, 4\)"),
        (setting("attributes", "history_", {"$": "History", "fields": {}}), "damaged"),
        (setting("attributes", "ending_", {"$": "Ending", "value": "x"}), "damaged"),
        (setting("attributes", "divergence_", "chi2"), "'divergence_'"),
    ],
)
def test_descriptions(tmp_path, change, words):
    refuse(tmp_path, with_model(change), words)


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5), st.sampled_from(["chi2", "KL", "arrays/0.npy", "$", "tuple"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "items", "fields", "member", "shape"]), inner),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data(), json_values)
def test_any_description(tmp_path_factory, data, value):
    """Anything in place of a part of model.json is an error, or gives a model that predicts."""
    parts = members()
    model = json.loads(parts["model.json"])
    node = model
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans())):
            break
        node = node[key]
    node[key] = value
    path = tmp_path_factory.mktemp("any") / "model.drl"
    path.write_bytes(packed(parts | {"model.json": json.dumps(model).encode()}))
    try:
        loaded = load(path)
    except ModelFileError:
        return
    assert isinstance(loaded, RobustClassifier | RobustRegressor)
    assert loaded.predict(rows()).shape == (8,)


# -- pipelines -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damaged_pipelines(tmp_path_factory, data):
    skops = pytest.importorskip("skops.io")
    good = skops.dumps(load_good())
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("pipeline") / "model.skops"
    path.write_bytes(damaged)
    try:
        load(path)
    except ModelFileError:
        return
    assert members(bytes(damaged)) == members(good)


def test_arrays_of_pipelines_are_checked(tmp_path):
    """NumPy would reserve the memory that a header claims."""
    skops = pytest.importorskip("skops.io")
    parts = members(skops.dumps(load_good()))
    name = next(name for name in parts if name.endswith(".npy"))
    claim = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000)}")
    path = tmp_path / "model.skops"
    path.write_bytes(pack(parts | {name: claim}))
    with pytest.raises(ModelFileError, match="does not have the size of its content"):
        load(path)
