"""Downloads of data sets from servers that do not always behave."""

from __future__ import annotations

import gc
import gzip
import hashlib
import io
import json
import socket
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.datasets._openml as sk_openml
import sklearn.datasets._rcv1 as sk_rcv1

from drolearn import datasets
from drolearn.datasets import sources
from tests.examples import disk_full

# When a server fails, libraries that download leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Server:
    """An HTTP server of some files; it can cut a file short or refuse it."""

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


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()
    gc.collect()  # while its warnings are ignored


@contextmanager
def silent_server():
    """The address of a server that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def assert_refused(name, pattern, cache):
    """One sentence that says how to try again, and no file in the cache."""
    with pytest.raises(datasets.DataError, match=pattern) as caught:
        datasets.load(name)
    text = str(caught.value)
    assert "\n" not in text
    assert f"drolearn datasets --fetch {name}" in text
    left = list(cache.glob("**/*")) if cache.exists() else []
    assert not [path for path in left if path.is_file()]


# -- UCI -----------------------------------------------------------------------------------------

HIV1 = "/static/public/330/hiv+1+protease+cleavage.zip"
OCTAMERS = [
    ("746Data.txt", "AAAAAAAA,1\nCCCCCCCC,-1\n"),
    ("1625Data.txt", "AAAAAAAA,1\nDDDDDDDD,-1\n"),  # the first again
    (
        "schillingData.txt",
        "CCCCCCCC,-1\nEEEEEEEE,1\nEEEEEEEE,-1\n",
    ),  # E has both labels
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
    lines = "AAAAAAAA,1\nCCCCCCCC,-1\nDDDDDDDD,-1\nFFFFFFFF,1"
    monkeypatch.setattr(sources, "_HIV1_DIGEST", hashlib.sha256(lines.encode()).hexdigest())
    entry = datasets.CATALOGUE["hiv1"]
    small = datasets.Entry("hiv1", 4, 160, entry.home, entry.licence, entry.about, sources.hiv1)
    monkeypatch.setitem(datasets.CATALOGUE, "hiv1", small)
    return server


def test_octamers_are_merged_and_cached(uci, empty_cache):
    loaded = datasets.load("hiv1")
    assert loaded.y.tolist() == [1, -1, -1, 1]
    np.testing.assert_array_equal(loaded.X.sum(axis=1), 8.0)
    assert loaded.X[1].reshape(8, 20).argmax(axis=1).tolist() == [1] * 8  # C is the second letter
    assert (empty_cache / "hiv1.npz").stat().st_mode & 0o044  # others may read it
    again = datasets.load("hiv1")
    assert again.source == str(empty_cache / "hiv1.npz")
    np.testing.assert_array_equal(again.X, loaded.X)
    assert len(uci.asked) == 1
    assert datasets.where("hiv1") == str(empty_cache / "hiv1.npz")


def test_truncated_download_leaves_nothing(uci, empty_cache):
    uci.cut.add(HIV1)
    assert_refused("hiv1", "could not be fetched from archive.ics.uci.edu", empty_cache)
    uci.cut.clear()
    assert datasets.load("hiv1").y.size == 4


def test_a_truncated_archive_leaves_nothing(uci, empty_cache):
    uci.files[HIV1] = uci.files[HIV1][:60]  # the Content-Length is right
    assert_refused("hiv1", "zip", empty_cache)


def test_an_archive_without_one_of_the_files_leaves_nothing(uci, empty_cache):
    uci.files[HIV1] = archive(OCTAMERS[:-1])
    assert_refused("hiv1", "impensData.txt", empty_cache)


def test_other_octamers_than_those_of_the_paper_leave_nothing(uci, empty_cache):
    uci.files[HIV1] = archive([*OCTAMERS[:-1], ("impensData.txt", "GGGGGGGG,1\n")])
    assert_refused("hiv1", "checksum", empty_cache)


def test_a_server_that_refuses(uci, empty_cache):
    uci.refused.add(HIV1)
    assert_refused("hiv1", "503", empty_cache)


def test_a_server_that_is_down(uci, empty_cache):
    uci.close()
    assert_refused("hiv1", "the server cannot be reached", empty_cache)
    uci.__init__()  # the fixture closes it again


def test_a_server_that_does_not_answer(monkeypatch, empty_cache):
    with silent_server() as url:
        monkeypatch.setattr(sources, "UCI", url)
        monkeypatch.setattr(sources, "PATIENCE", 0.2)
        assert_refused("hiv1", "the server does not answer", empty_cache)


def test_a_full_disk_leaves_nothing(uci, empty_cache, monkeypatch):
    monkeypatch.setattr(np, "savez_compressed", disk_full)
    assert_refused("hiv1", "No space left on device", empty_cache)


def adult_lines(adult):
    """The rows of the package in the format of UCI."""
    names, columns = adult.feature_names.tolist(), []
    for column in sources.ADULT_COLUMNS[:-1]:
        if column in names:
            columns.append(adult.X[:, names.index(column)].astype(int).astype(str))
        else:
            levels = [name for name in names if name.startswith(column + "_")]
            chosen = adult.X[:, [names.index(name) for name in levels]].argmax(axis=1)
            columns.append(np.array([name.partition("_")[2] for name in levels])[chosen])
    columns.append(np.where(adult.y == 1, ">50K", "<=50K"))
    return [", ".join(values) for values in zip(*columns, strict=True)]


def test_adult_from_uci_equals_adult_in_the_package(server, empty_cache, monkeypatch):
    adult = datasets.load_adult()
    lines = adult_lines(adult)
    lines.insert(5, lines[0].replace("White", "?"))  # a row with a missing value
    halves = {"adult.data": lines[:30000], "adult.test": ["|1x3 Cross validator", *lines[30000:]]}
    sums = {}
    for name, part in halves.items():
        dot = "." if name == "adult.test" else ""
        content = "\n".join(line if line.startswith("|") else line + dot for line in part) + "\n\n"
        server.files[f"/ml/machine-learning-databases/adult/{name}"] = content.encode()
        sums[name] = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setattr(sources, "UCI", server.url)
    with pytest.raises(datasets.DataError, match=r"hash|SHA256"):  # the checksum is another
        datasets.fetch("adult")
    assert not list(empty_cache.glob("*"))
    monkeypatch.setattr(sources, "_ADULT_FILES", sums)
    inside = datasets.load("adult")
    assert inside.source == "package"
    assert datasets.fetch("adult") == empty_cache / "adult_d119.npz"
    fetched = datasets.load("adult")
    assert fetched.source == str(empty_cache / "adult_d119.npz")
    np.testing.assert_array_equal(fetched.X, inside.X)
    np.testing.assert_array_equal(fetched.y, inside.y)


# -- OpenML --------------------------------------------------------------------------------------


def serve_openml(server, monkeypatch, name, arff, columns, sparse):
    """Serve a data set as OpenML does."""
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
    # scikit-learn asks with and without the status, in lower case.
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


def test_in_sparse_data_the_most_frequent_class_is_positive(server, monkeypatch):
    columns = [("one", "numeric"), ("two", "numeric"), ("class", "nominal")]
    serve_openml(server, monkeypatch, "words", WORDS, columns, sparse=True)
    X, y = sources.openml("words")
    assert sp.issparse(X)
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X.toarray(), [[3, 0], [0, 1], [2, 5], [0, 0]])
    assert y.tolist() == [1, 1, -1, -1]
    assert sources.openml("words", positive="c")[1].tolist() == [-1, -1, -1, 1]


def test_in_dense_data_the_larger_label_is_positive_and_columns_can_be_ignored(server, monkeypatch):
    columns = [("ID_REF", "numeric"), ("one", "numeric"), ("class", "nominal")]
    serve_openml(server, monkeypatch, "numbers", NUMBERS, columns, sparse=False)
    X, y = sources.openml("numbers", ignore=("ID_REF",))
    np.testing.assert_array_equal(X, [[0.5], [1.5], [2.5]])
    assert y.tolist() == [1, -1, -1]  # although -1 is more frequent


def test_openml_that_does_not_answer(monkeypatch, empty_cache):
    with silent_server() as url:
        monkeypatch.setattr(sk_openml, "_SEARCH_NAME", url + "{}")
        monkeypatch.setattr(sources, "PATIENCE", 0.2)
        assert_refused("tr31.wc", "the server does not answer", empty_cache)
    assert socket.getdefaulttimeout() is None


def test_data_of_another_shape_are_refused(server, monkeypatch, empty_cache):
    columns = [("one", "numeric"), ("two", "numeric"), ("class", "nominal")]
    serve_openml(server, monkeypatch, "tr31.wc", WORDS, columns, sparse=True)
    with pytest.raises(datasets.DataError, match="4 rows and 2 columns and should have 927 and"):
        datasets.load("tr31.wc")
    assert not list(empty_cache.glob("*"))


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_data_are_refused(server, monkeypatch, empty_cache, damage):
    columns = [("one", "numeric"), ("two", "numeric"), ("class", "nominal")]
    path = serve_openml(server, monkeypatch, "tr31.wc", WORDS, columns, sparse=True)
    if damage == "cut":
        server.cut.add(path)
    else:
        server.files[path] = WORDS.replace("5", "6").encode()
    assert_refused("tr31.wc", "openml.org", empty_cache)


def test_tr31_from_openml_equals_the_file_in_the_folder(data_folder, server, monkeypatch):
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
        # In sparse ARFF, the first level is a zero, and zeros are left out.
        cells += [] if name == levels[0] else [f"400 {name}"]
        lines.append("{" + ",".join(cells) + "}")
    columns = [(f"w{j}", "numeric") for j in range(400)] + [("class", "nominal")]
    serve_openml(server, monkeypatch, "tr31.wc", "\n".join(lines) + "\n", columns, sparse=True)
    X, y = sources.openml("tr31.wc")
    assert (abs(X - want) > 0).nnz == 0
    names, counts = np.unique(classes, return_counts=True)
    np.testing.assert_array_equal(y == 1, classes == names[counts.argmax()])
    assert levels[0] in classes


# -- RCV1 ----------------------------------------------------------------------------------------


def test_rcv1_corporate_articles_are_positive(server, monkeypatch, empty_cache):
    """All 804,414 articles, of one word each: scikit-learn accepts no other number."""
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
    assert_refused("rcv1", "figshare", empty_cache)
    server.cut.clear()
    loaded = datasets.load("rcv1")
    assert loaded.X.shape == (n, d)
    assert (loaded.y == 1).sum() == (n + 2) // 3
    words = loaded.X.indices[:: loaded.X.indptr[1]]
    np.testing.assert_array_equal(np.sort(words), np.sort(np.arange(n) % d))
