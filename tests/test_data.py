"""Data sets from folders, the package, and servers that do not always behave."""

from __future__ import annotations

import gc
import gzip
import hashlib
import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.datasets._openml as sk_openml
import sklearn.datasets._rcv1 as sk_rcv1

from drolearn import datasets
from drolearn.datasets import catalogue, sources


@pytest.fixture
def empty(monkeypatch, tmp_path):
    """A machine that has nothing: no folder, an empty cache."""
    monkeypatch.delenv("DROLEARN_DATA", raising=False)
    monkeypatch.setenv("DROLEARN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Server:
    """An HTTP server of some files; a file can be cut short or refused."""

    def __init__(self):
        self.files, self.cut, self.refused, self.asked = {}, set(), set(), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                content = outer.files.get(self.path)
                if content is None or self.path in outer.refused:
                    self.send_error(503 if self.path in outer.refused else 404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                short = len(content) // 2 if self.path in outer.cut else len(content)
                self.wfile.write(content[:short])

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


# Libraries that download leave sockets to the garbage collector when a server fails.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()
    gc.collect()  # here, where nobody minds


# -- UCI -------------------------------------------------------------------------------

HIV1 = "/static/public/330/hiv+1+protease+cleavage.zip"
OCTAMERS = [
    ("746Data.txt", "AAAAAAAA,1\nCCCCCCCC,-1\n"),
    ("1625Data.txt", "AAAAAAAA,1\nDDDDDDDD,-1\n"),  # the first again
    ("schillingData.txt", "CCCCCCCC,-1\nEEEEEEEE,1\nEEEEEEEE,-1\n"),  # the last has both labels
    ("impensData.txt", "BBBBBBBB,1\nFFFFFFFF,1\n"),  # B stands for no amino acid
]


def archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, text in files:
            packed.writestr(name, text)
    return out.getvalue()


@pytest.fixture
def uci(monkeypatch, server):
    monkeypatch.setattr(sources, "UCI", server.url)
    server.files[HIV1] = archive(OCTAMERS)
    kept = "AAAAAAAA,1\nCCCCCCCC,-1\nDDDDDDDD,-1\nFFFFFFFF,1"
    monkeypatch.setattr(sources, "_HIV1_DIGEST", hashlib.sha256(kept.encode()).hexdigest())
    entry = datasets.CATALOGUE["hiv1"]
    small = datasets.Entry("hiv1", 4, 160, entry.home, entry.licence, entry.about, sources.hiv1)
    monkeypatch.setitem(datasets.CATALOGUE, "hiv1", small)
    return server


def test_octamers_are_merged_and_go_to_the_cache_once(uci, empty):
    found = datasets.load("hiv1")
    assert found.y.tolist() == [1, -1, -1, 1]
    np.testing.assert_array_equal(found.X.sum(axis=1), 8.0)
    assert found.X[1].reshape(8, 20).argmax(axis=1).tolist() == [1] * 8  # C is the second letter
    assert (empty / "hiv1.npz").stat().st_mode & 0o044  # others may read it
    again = datasets.load("hiv1")
    assert again.source == str(empty / "hiv1.npz")
    np.testing.assert_array_equal(again.X, found.X)
    assert len(uci.asked) == 1
    assert datasets.where("hiv1") == str(empty / "hiv1.npz")


def refuses(name, pattern, cache):
    with pytest.raises(datasets.DataError, match=pattern) as caught:
        datasets.load(name)
    text = str(caught.value)
    assert "\n" not in text
    assert f"drolearn datasets --fetch {name}" in text
    left = list(cache.glob("**/*")) if cache.exists() else []
    assert not [path for path in left if path.is_file()]


def test_truncated_download_leaves_nothing(uci, empty):
    uci.cut.add(HIV1)
    refuses("hiv1", "could not be fetched from archive.ics.uci.edu", empty)
    uci.cut.clear()
    assert datasets.load("hiv1").y.size == 4


def test_what_is_no_archive_leaves_nothing(uci, empty):
    uci.files[HIV1] = uci.files[HIV1][:60]  # cut short, but with a length that fits
    refuses("hiv1", "zip", empty)


def test_archive_that_lacks_a_file_leaves_nothing(uci, empty):
    uci.files[HIV1] = archive(OCTAMERS[:-1])
    refuses("hiv1", "impensData.txt", empty)


def test_other_octamers_than_the_papers_leave_nothing(uci, empty):
    uci.files[HIV1] = archive([*OCTAMERS[:-1], ("impensData.txt", "GGGGGGGG,1\n")])
    refuses("hiv1", "checksum", empty)


def test_server_that_refuses(uci, empty):
    uci.refused.add(HIV1)
    refuses("hiv1", "503", empty)


def test_no_server(uci, empty):
    uci.close()
    refuses("hiv1", "the server cannot be reached", empty)
    uci.__init__()  # for the fixture to close


def test_server_that_does_not_answer(monkeypatch, empty):
    import socket

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        monkeypatch.setattr(sources, "UCI", f"http://127.0.0.1:{deaf.getsockname()[1]}/")
        monkeypatch.setattr(sources, "PATIENCE", 0.2)
        refuses("hiv1", "the server does not answer", empty)


def test_full_disk_keeps_nothing_half_written(uci, empty, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    refuses("hiv1", "No space left on device", empty)


def adult_lines(adult, rows):
    """The rows of the package as UCI has them."""
    names = adult.feature_names.tolist()
    for i in rows:
        values = {}
        for name, value in zip(names, adult.X[i], strict=True):
            column, _, level = name.partition("_")
            if name in ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss",
                        "hours-per-week"):  # fmt: skip
                values[name] = str(int(value))
            elif value == 1.0:
                values[column] = level
        values["income"] = ">50K" if adult.y[i] == 1 else "<=50K"
        yield ", ".join(values[name] for name in sources.ADULT_COLUMNS)


def test_adult_from_uci_is_the_adult_of_the_package(server, empty, monkeypatch):
    adult = datasets.load_adult()
    lines = list(adult_lines(adult, range(adult.y.size)))
    lines.insert(5, lines[0].replace("White", "?"))  # a row that lacks a value
    halves = {"adult.data": lines[:30000], "adult.test": ["|1x3 Cross validator", *lines[30000:]]}
    sums = {}
    for name, part in halves.items():
        dot = "." if name == "adult.test" else ""
        content = "\n".join(line if line.startswith("|") else line + dot for line in part) + "\n\n"
        server.files[f"/ml/machine-learning-databases/adult/{name}"] = content.encode()
        sums[name] = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setattr(sources, "UCI", server.url)
    with pytest.raises(datasets.DataError, match=r"hash|SHA256"):  # not the bytes of the paper
        datasets.fetch("adult")
    assert not list(empty.glob("*"))
    monkeypatch.setattr(sources, "_ADULT_FILES", sums)
    inside = datasets.load("adult")
    assert inside.source == "package"
    assert datasets.fetch("adult") == empty / "adult_d119.npz"
    fetched = datasets.load("adult")
    assert fetched.source == str(empty / "adult_d119.npz")
    np.testing.assert_array_equal(fetched.X, inside.X)
    np.testing.assert_array_equal(fetched.y, inside.y)


# -- OpenML ----------------------------------------------------------------------------


def serve_openml(server, monkeypatch, name, arff, columns, sparse):
    """What OpenML would say about a data set."""
    api = "/api/v1/json/data"
    path = f"/data/v1/download/7/{name}.arff"
    about = {
        "id": "7", "name": name, "version": "1", "format": "Sparse_ARFF" if sparse else "ARFF",
        "status": "active", "file_id": "7", "description": "", "url": server.url[:-1] + path,
        "md5_checksum": hashlib.md5(arff.encode()).hexdigest(), "default_target_attribute": "class",
    }  # fmt: skip
    features = [
        {"index": str(i), "name": column, "data_type": kind,
         "is_target": str(column == "class").lower(), "is_ignore": "false",
         "is_row_identifier": "false", "number_of_missing_values": "0"}
        for i, (column, kind) in enumerate(columns)
    ]  # fmt: skip
    rows = arff.lower().split("@data\n")[1].count("\n")
    pages = {
        f"{api}/list/data_name/{name}/limit/2/data_version/1": {"data": {"dataset": [{"did": 7}]}},
        f"{api}/7": {"data_set_description": about},
        f"{api}/features/7": {"data_features": {"feature": features}},
        f"{api}/qualities/7": {
            "data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(rows)}]}
        },
    }
    for at, page in pages.items():
        server.files[at] = json.dumps(page).encode()
    # sklearn asks with and without this, and lower case.
    base = f"{api}/list/data_name/{name.lower()}/limit/2/data_version/1"
    for at in (base, f"{base}/status/active"):
        server.files[at] = json.dumps({"data": {"dataset": [{"did": 7}]}}).encode()
    server.files[path] = arff.encode()
    for constant in ("_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES"):
        url = getattr(sk_openml, constant).replace("https://www.openml.org/", server.url)
        monkeypatch.setattr(sk_openml, constant, url)
    return path


WORDS = """@relation words
@attribute one numeric
@attribute two numeric
@attribute class {a,b,c}
@data
{0 3,2 b}
{1 1,2 b}
{0 2,1 5}
{2 c}
"""
NUMBERS = """@relation numbers
@attribute ID_REF numeric
@attribute one numeric
@attribute class {-1,1}
@data
7,0.5,1
8,1.5,-1
9,2.5,-1
"""


def test_sparse_openml_takes_the_most_frequent_class(server, monkeypatch):
    columns = [("one", "numeric"), ("two", "numeric"), ("class", "nominal")]
    serve_openml(server, monkeypatch, "words", WORDS, columns, sparse=True)
    X, y = sources.openml("words")
    assert sp.issparse(X)
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X.toarray(), [[3, 0], [0, 1], [2, 5], [0, 0]])
    assert y.tolist() == [1, 1, -1, -1]
    assert sources.openml("words", positive="c")[1].tolist() == [-1, -1, -1, 1]


def test_dense_openml_takes_the_larger_number_and_leaves_columns_out(server, monkeypatch):
    columns = [("ID_REF", "numeric"), ("one", "numeric"), ("class", "nominal")]
    serve_openml(server, monkeypatch, "numbers", NUMBERS, columns, sparse=False)
    X, y = sources.openml("numbers", ignore=("ID_REF",))
    np.testing.assert_array_equal(X, [[0.5], [1.5], [2.5]])
    assert y.tolist() == [1, -1, -1]  # although -1 is more frequent


def test_openml_that_does_not_answer(server, monkeypatch, empty):
    import socket

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}/{{}}"
        monkeypatch.setattr(sk_openml, "_SEARCH_NAME", address)
        monkeypatch.setattr(sources, "PATIENCE", 0.2)
        refuses("tr31.wc", "the server does not answer", empty)
        assert socket.getdefaulttimeout() is None


def test_openml_of_another_shape_is_refused(server, monkeypatch, empty):
    columns = [("one", "numeric"), ("two", "numeric"), ("class", "nominal")]
    serve_openml(server, monkeypatch, "tr31.wc", WORDS, columns, sparse=True)
    with pytest.raises(datasets.DataError, match="4 rows and 2 columns and should have 927 and"):
        datasets.load("tr31.wc")
    assert not list(empty.glob("*"))


@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_openml_that_arrives_damaged(server, monkeypatch, empty, harm):
    columns = [("one", "numeric"), ("two", "numeric"), ("class", "nominal")]
    path = serve_openml(server, monkeypatch, "tr31.wc", WORDS, columns, sparse=True)
    if harm == "cut":
        server.cut.add(path)
    else:
        server.files[path] = WORDS.replace("5", "6").encode()
    refuses("tr31.wc", "openml.org", empty)


def test_words_of_tr31_from_openml_are_those_of_the_folder(data_folder, server, monkeypatch):
    path = data_folder / "tr31.wc.npz"
    want = datasets.read("tr31.wc", path).X[:300, :400]
    with np.load(path) as stored:
        classes = stored["class_orig"][:300]
    levels = sorted(set(classes))
    lines = ["@relation tr31", *(f"@attribute w{j} numeric" for j in range(400))]
    lines += [f"@attribute class {{{','.join(levels)}}}", "@data"]
    for row, name in zip(want, classes, strict=True):
        row = sp.csr_matrix(row)
        cells = [f"{j} {value:g}" for j, value in zip(row.indices, row.data, strict=True)]
        # As in every sparse ARFF, the first level is a zero and left out.
        cells += [] if name == levels[0] else [f"400 {name}"]
        lines.append("{" + ",".join(cells) + "}")
    columns = [(f"w{j}", "numeric") for j in range(400)] + [("class", "nominal")]
    serve_openml(server, monkeypatch, "tr31.wc", "\n".join(lines) + "\n", columns, sparse=True)
    X, y = sources.openml("tr31.wc")
    assert (abs(X - want) > 0).nnz == 0
    names, counts = np.unique(classes, return_counts=True)
    np.testing.assert_array_equal(y == 1, classes == names[counts.argmax()])
    assert levels[0] in classes


# -- RCV1 ------------------------------------------------------------------------------


def test_rcv1_takes_the_corporate_articles(server, monkeypatch, empty):
    """As many articles as there are, of one word each; scikit-learn accepts no other number."""
    n, d = datasets.CATALOGUE["rcv1"].n, datasets.CATALOGUE["rcv1"].d

    def serve(name, lines):
        content = gzip.compress("\n".join(lines).encode(), 1)
        server.files[f"/{name}"] = content
        sha = hashlib.sha256(content).hexdigest()
        return sk_rcv1.RemoteFileMetadata(f"{name}.gz", f"{server.url}{name}", sha)

    cuts = np.linspace(0, n, 6).astype(int)
    parts = [
        serve(f"part{k}", (f"{i} {1 + i % d}:1" for i in range(cuts[k], cuts[k + 1])))
        for k in range(5)
    ]
    others = [f"T{k:03}" for k in range(102)]
    topics = (f"{others[i // 3 % 102] if i % 3 else 'CCAT'} {i} 1" for i in range(n))
    monkeypatch.setattr(sk_rcv1, "XY_METADATA", tuple(parts))
    monkeypatch.setattr(sk_rcv1, "TOPICS_METADATA", serve("topics", topics))
    server.cut.add("/part3")
    refuses("rcv1", "figshare", empty)
    server.cut.clear()
    found = datasets.load("rcv1")
    assert found.X.shape == (n, d)
    assert (found.y == 1).sum() == (n + 2) // 3
    words = found.X.indices[:: found.X.indptr[1]]
    np.testing.assert_array_equal(np.sort(words), np.sort(np.arange(n) % d))


# -- folders and files -----------------------------------------------------------------


def test_folder_goes_before_cache_and_package(monkeypatch, tmp_path, empty):
    X, y = catalogue._adult_of_the_paper()
    changed = X.copy()
    changed[0, 0] += 1.0
    np.savez(tmp_path / "adult_d119.npz", format="dense", X=changed, y=y)
    monkeypatch.setenv("DROLEARN_DATA", str(tmp_path))
    found = datasets.load("adult")
    assert found.source == str(tmp_path / "adult_d119.npz")
    assert found.X[0, 0] == X[0, 0] + 1.0


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
def test_bad_files_of_the_folder(monkeypatch, tmp_path, empty, content, pattern):
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


def test_truncated_file_of_the_cache(monkeypatch, empty):
    empty.mkdir()
    X = np.zeros((5830, 160), dtype=np.float32)
    np.savez_compressed(empty / "hiv1.npz", format="dense", X=X, y=np.ones(5830))
    whole = (empty / "hiv1.npz").read_bytes()
    (empty / "hiv1.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(datasets.DataError, match="drolearn datasets --fetch hiv1"):
        datasets.load("hiv1")


def test_flipped_bit_of_the_cache(empty):
    empty.mkdir()
    X = np.random.default_rng(0).random((5830, 160)).astype(np.float32)
    np.savez_compressed(empty / "hiv1.npz", format="dense", X=X, y=np.resize([1, -1], 5830))
    content = bytearray((empty / "hiv1.npz").read_bytes())
    content[len(content) // 2] ^= 8
    (empty / "hiv1.npz").write_bytes(content)
    with pytest.raises(datasets.DataError, match="is damaged"):
        datasets.load("hiv1")


def test_folder_that_is_not_there(monkeypatch, empty):
    monkeypatch.setenv("DROLEARN_DATA", str(empty / "nowhere"))
    with pytest.raises(datasets.DataError, match="is no folder: mend or unset it"):
        datasets.load("adult")


def test_names_that_are_not_known(empty):
    with pytest.raises(datasets.DataError, match="did you mean 'hiv1'"):
        datasets.load("hiv")
    with pytest.raises(datasets.DataError, match="drolearn datasets"):
        datasets.load("nothing like it")
    with pytest.raises(datasets.DataError, match="no public home"):
        datasets.fetch("text_like")
    with pytest.raises(datasets.DataError, match="DROLEARN_DATA"):
        datasets.load("rcv1_27k")


def test_catalogue_has_the_papers_sizes(data_folder):
    assert len(datasets.CATALOGUE) == 16
    for name in ("tr31.wc", "hiv1", "bioresponse", "adult", "rcv1_27k"):
        entry, found = datasets.CATALOGUE[name], datasets.load(name)
        assert found.X.shape == (entry.n, entry.d)
        assert datasets.where(name).startswith(str(data_folder))


def test_files_of_other_names_are_read_as_they_are(data_folder):
    assert datasets.read("adult", data_folder / "adult.npz").X.shape == (
        45222,
        104,
    )  # not the paper's
    assert datasets.read("skin_nonskin", data_folder / "skin_nonskin.npz").X.shape == (245057, 3)
    with pytest.raises(datasets.DataError, match="is not there"):
        datasets.read("nothing", data_folder / "nothing.npz")


def test_text_like_documents():
    X, y = datasets.text_like(2000, columns=500, words=20, seed=3)
    again, labels = datasets.text_like(2000, columns=500, words=20, seed=3)
    assert (again != X).nnz == 0
    np.testing.assert_array_equal(y, labels)
    assert set(y.tolist()) == {-1, 1}
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
