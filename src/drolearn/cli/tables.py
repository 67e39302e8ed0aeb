"""Data for the commands: tables from files, the target, and groups."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drolearn._validation import did_you_mean
from drolearn.cli.running import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rows", "Table", "names_of", "read", "split", "task_of"]

_MOST_CLASSES = 20


@dataclass(frozen=True)
class Table:
    """What a file holds."""

    X: Any
    """A data frame, or a CSR matrix."""
    others: pd.DataFrame
    """Columns that are not features: y of .svm, and y and groups of .npz files."""

    def column(self, name: str, option: str) -> Any:
        """A column by name; `option` asked for it."""
        for frame in (self.others, self.X):
            if hasattr(frame, "columns") and name in frame.columns:
                return frame[name]
        known = [*self.others.columns, *getattr(self.X, "columns", [])]
        shown = ", ".join(map(str, known[:20])) + (" …" if len(known) > 20 else "")
        raise InputError(
            f"{option} names the column {name!r}, which the data does not have: choose from "
            f"{shown or 'none'}.{did_you_mean(name, map(str, known))}"
        )


@dataclass(frozen=True)
class Rows:
    """Features, target, groups, and weights of the rows."""

    X: Any
    y: Any
    groups: pd.DataFrame | None
    weights: Any = None


def read(source: str) -> Table:
    """Read a table by the ending of its name; "-" is CSV from standard input."""
    import pandas as pd

    path = Path(source)
    kind = ".csv" if source == "-" else path.suffix.lower()
    if kind not in _READERS:
        raise InputError(
            f"The name of the data must end in {', '.join(_READERS)}, or be - for CSV from "
            f"standard input. Got {source!r} instead."
        )
    if source != "-" and not path.is_file():
        raise InputError(f"There is no file {source!r}: check the name of the data.")
    try:
        found = _READERS[kind](io.BytesIO(sys.stdin.buffer.read()) if source == "-" else path)
    except (ImportError, InputError):
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{source!r} is not UTF-8 text: save it as UTF-8.") from error
    except MemoryError as error:
        raise InputError(
            f"{source!r} needs more memory than there is: use fewer rows or columns; if the file "
            f"is small, it is damaged."
        ) from error
    except Exception as error:  # a damaged file can fail in any way
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk, not the content: pyarrow raises OSError for both
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"{source!r} cannot be read as {kind[1:]} ({reason}): check the file."
        ) from error
    if isinstance(found, pd.DataFrame):
        found = Table(found, found.iloc[:, :0])
    _refuse_twins([*getattr(found.X, "columns", []), *found.others.columns])
    if found.X.shape[0] == 0:
        raise InputError(f"{source!r} has no rows: give data with at least one row.")
    return found


def _refuse_twins(names: list[Any]) -> None:
    """Refuse two columns of the same name."""
    seen = set()
    for name in names:
        if name in seen:
            raise InputError(f"The data has two columns of the name {name!r}: rename one of them.")
        seen.add(name)


def split(
    table: Table, target: str, groups: str | None, drop: str | None, weights: str | None = None
) -> Rows:
    """Take target, groups, weights and dropped columns from a table."""
    column = table.column(target, "--target")
    missing = int(column.isna().sum())
    if missing:
        raise InputError(
            f"--target names the column {target!r}, in which {missing} of {len(column)} values are "
            f"missing: remove these rows."
        )
    dropped = names_of(drop)
    for name in dropped:
        table.column(name, "--drop")
    of_rows = None if weights is None else _weights(table.column(weights, "--weights"))
    X = table.X
    if hasattr(X, "columns"):
        X = X.drop(columns=[name for name in [target, weights, *dropped] if name in X.columns])
        if X.shape[1] == 0:
            raise InputError("The data has no columns left for the model: drop fewer columns.")
        if bool(X.isna().all(axis=None)):
            raise InputError("All values of all columns are missing: check the data.")
    return Rows(X, _values(column), _groups(table, groups), of_rows)


def names_of(text: str | None) -> list[str]:
    """The names in a list with commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def task_of(y: Any, task: str) -> str:
    """The task, which "auto" derives from the target."""
    import numpy as np

    if task not in ("auto", "classification", "regression"):
        raise InputError(
            f"--task must be classification, regression or auto. Got {task!r} instead."
            f"{did_you_mean(task, ['auto', 'classification', 'regression'])}"
        )
    numbers = y.dtype.kind in "iuf"
    if task == "regression" and not numbers:
        raise InputError("--task regression needs numbers in the target: use classification.")
    if task != "auto":
        return task
    fractions = y.dtype.kind == "f"  # whole numbers have become integers
    many = numbers and np.unique(y).size > _MOST_CLASSES
    return "regression" if fractions or many else "classification"


def _values(column: Any) -> Any:
    """A target as Booleans, integers, floats or strings."""
    import numpy as np
    import pandas as pd

    if pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=bool)
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.to_numpy(dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise InputError(
                f"The target {column.name!r} holds infinite numbers: remove these rows."
            )
        whole = bool(np.all(numbers == np.round(numbers)) and abs(numbers).max() < 2.0**53)
        return numbers.astype(np.int64) if whole else numbers
    return column.astype(str).to_numpy(dtype=str)


def _weights(column: Any) -> Any:
    """The weights of the rows, as floats."""
    import numpy as np
    import pandas as pd

    numbers: Any = pd.to_numeric(column, errors="coerce")
    found = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    if not (np.isfinite(found).all() and found.min() >= 0.0 and found.max() > 0.0):
        raise InputError(
            f"--weights names the column {column.name!r}, which must hold numbers of at least 0, "
            f"some above 0, and no missing values: repair it, or name another column."
        )
    return found


def _groups(table: Table, groups: str | None) -> pd.DataFrame | None:
    """Columns of names; missing values are a group of their own."""
    import pandas as pd

    names = names_of(groups)
    if not names:
        return None
    columns = {name: table.column(name, "--groups") for name in names}
    found = {
        name: column.astype(str).where(column.notna(), "missing").to_numpy(dtype=str)
        for name, column in columns.items()
    }
    return pd.DataFrame(found)


# -- files ---------------------------------------------------------------------------------------


def _read_csv(file: Any) -> Any:
    import pandas as pd

    # Of two columns of one name, pandas would rename the second: a target would become a feature.
    heads = pd.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False)
    _refuse_twins([name for name in heads.iloc[0] if name])
    if isinstance(file, io.BytesIO):
        file.seek(0)
    return pd.read_csv(file, low_memory=False)


def _read_parquet(path: Path) -> Any:
    import pandas as pd

    return pd.read_parquet(path)


def _read_arrow(path: Path) -> Any:
    """Arrow's file format, which is Feather, or its stream format."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        try:
            opened: Any = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            opened = pa.ipc.open_stream(file)
        return opened.read_all().to_pandas()


def _read_svmlight(path: Path) -> Table:
    """Columns are counted from 1, as LIBSVM does: a guess could differ between two files."""
    import pandas as pd
    from sklearn.datasets import load_svmlight_file

    load: Any = load_svmlight_file
    X, y = load(str(path), zero_based=False)
    return Table(X, pd.DataFrame({"y": y}))


def _read_npz(path: Path) -> Table:
    """The form of drolearn's data sets: X or CSR parts, y, and groups as more arrays."""
    import numpy as np
    import pandas as pd
    import scipy.sparse as sp

    # Damage can make np.load seek to places for which files, but not bytes, raise an OSError.
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
        content = {name: stored[name] for name in stored.files}
    if "X" in content:
        X: Any = content.pop("X")
        names = content.pop("feature_names", None)
        columns = [f"x{k}" for k in range(X.shape[1])] if names is None else names.tolist()
        X = pd.DataFrame(X, columns=columns)
    else:
        parts = tuple(content.pop(name) for name in ("data", "indices", "indptr"))
        X = sp.csr_matrix(parts, shape=tuple(content.pop("shape")))
        X.check_format(full_check=True)
    rows = {name: each for name, each in content.items() if each.shape == (X.shape[0],)}
    others = pd.DataFrame(rows, index=range(X.shape[0]))
    if hasattr(X, "columns"):  # groups that are also features keep their names as features
        others = others.drop(columns=[name for name in others if name in X.columns])
    return Table(X, others)


_READERS: dict[str, Callable[[Any], Any]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".feather": _read_arrow,
    ".arrow": _read_arrow,
    ".svm": _read_svmlight,
    ".libsvm": _read_svmlight,
    ".svmlight": _read_svmlight,
    ".npz": _read_npz,
}
