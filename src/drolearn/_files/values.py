"""Parameters and attributes as JSON: plain values, arrays, and objects from a fixed list.

None, Booleans, integers, finite floats, strings and lists are JSON themselves.  Everything else is
a JSON object with the key "$": a tuple, a dictionary, a number of NumPy's, an array, or the name of
one of the classes in `_CLASSES` with its fields.  Reading calls only these classes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import model_selection

from drolearn import divergence
from drolearn._divergence_base import CustomDivergence
from drolearn._files.archive import DTYPE
from drolearn._files.errors import ModelFileError
from drolearn._solvers import solvers, step_sizes
from drolearn._solvers.descent import History
from drolearn._solvers.ending import Ending
from drolearn._solvers.solvers import Solver
from drolearn.loss import Loss, as_loss
from drolearn.spectral import Exponential, Extremile, Spectral

__all__ = ["Arrays", "decode", "encode"]

Arrays = dict[str, NDArray[Any]]

_CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *divergence.CLASSES,
        Spectral, Extremile, Exponential,
        *solvers.CLASSES, step_sizes.Constant, step_sizes.Decay, History,
        model_selection.KFold, model_selection.StratifiedKFold, model_selection.GroupKFold,
        model_selection.StratifiedGroupKFold, model_selection.LeaveOneGroupOut,
        model_selection.TimeSeriesSplit,
    )
}  # fmt: skip
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any, where: str, arrays: Arrays) -> Any:
    """Describe a value; arrays are added to `arrays`.  `where` is its name for errors."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$": "float", "value": str(value)}
    if type(value) is list:
        return [encode(item, where, arrays) for item in value]
    if type(value) is tuple:
        return {"$": "tuple", "items": [encode(item, where, arrays) for item in value]}
    if type(value) is dict:
        items = [[encode(item, where, arrays) for item in pair] for pair in value.items()]
        return {"$": "dict", "items": items}
    if isinstance(value, np.generic) or type(value) is np.ndarray:
        return _encode_numpy(value, where, arrays)
    if isinstance(value, PurePath):
        return {"$": "path", "value": str(value)}
    if isinstance(value, Ending):
        return {"$": "Ending", "value": value.value}
    if isinstance(value, Loss):
        described = {"$": "Loss", "kind": value.kind, "width": encode(value.width, where, arrays)}
        if not value.sources and _loss(value.kind, value.width) == value:
            return described
    if type(value) in _CLASSES.values() and not isinstance(value, Loss):
        content = {name: getattr(value, name) for name in _settings(type(value))}
        described = {name: encode(each, where, arrays) for name, each in content.items()}
        return {"$": type(value).__name__, "fields": described}
    raise _cannot_describe(value, where)


def _encode_numpy(value: Any, where: str, arrays: Arrays) -> Any:
    """Describe an array or a number of NumPy's."""
    array = np.asarray(value)
    if array.dtype.kind == "O":
        items = [encode(item, where, arrays) for item in array.ravel().tolist()]
        return {"$": "objects", "shape": list(array.shape), "items": items}
    if not DTYPE.fullmatch(array.dtype.str):
        raise _cannot_describe(value, where)
    name = f"arrays/{len(arrays)}.npy"
    arrays[name] = array
    return {"$": "array" if isinstance(value, np.ndarray) else "scalar", "member": name}


def _cannot_describe(value: Any, where: str) -> ModelFileError:
    code = callable(value) or isinstance(value, CustomDivergence | Loss)
    way = "use pickle, and open pickles only from people you trust" if code else "use .skops"
    why = "holds a function of yours, and model files hold no code" if code else "cannot describe"
    what = f"which {why}" if code else f"which a .drl file {why}"
    return ModelFileError(f"{where} is {_shorten(value)}, {what}: {way}.")


def _shorten(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _settings(cls: type) -> list[str]:
    """The names of the arguments of a class."""
    if is_dataclass(cls):
        return [item.name for item in fields(cls) if item.init]
    if cls.__init__ is object.__init__:
        return []
    return list(inspect.signature(cls).parameters)


def _loss(kind: str, width: Any) -> Loss:
    """The loss of a formula; one of drolearn's own."""
    makers: dict[str, Callable[[Any], Loss]] = {
        "smoothed-hinge": Loss.smoothed_hinge,
        "huber": Loss.huber,
    }
    return makers[kind](width) if kind in makers else as_loss(kind)


def decode(value: Any, arrays: Arrays) -> Any:
    """Make a value from its description; a ValueError, LookupError or TypeError if it is wrong."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value["$"]
    if kind == "float":
        return _NOT_FINITE[value["value"]]
    if kind == "tuple":
        return tuple(decode(value["items"], arrays))
    if kind == "dict":
        return dict(decode(value["items"], arrays))
    if kind == "objects":
        found = decode(value["items"], arrays)
        objects = np.empty(len(found), dtype=object)
        for k, item in enumerate(found):  # NumPy would make a matrix of tuples
            objects[k] = item
        return objects.reshape(value["shape"])
    if kind == "array":
        return arrays[value["member"]]
    if kind == "scalar":
        return arrays[value["member"]].reshape(())[()]
    if kind == "path":
        return Path(value["value"])
    if kind == "Ending":
        return Ending(value["value"])
    if kind == "Loss":
        return _loss(value["kind"], decode(value["width"], arrays))
    return _make(_CLASSES[kind], value["fields"], arrays)


def _make(cls: type, described: dict[str, Any], arrays: Arrays) -> Any:
    """Call a class of the list with the fields that it has."""
    known = set(_settings(cls))
    # Files of older versions lack settings that solvers have got since.
    if set(described) != known and not (issubclass(cls, Solver) and set(described) < known):
        raise ValueError(f"{cls.__name__} does not have the fields {sorted(described)}")
    made = cls(**{name: decode(item, arrays) for name, item in described.items()})
    if isinstance(made, History):
        lists = [getattr(made, name) for name in _settings(cls)]
        if not all(isinstance(each, list) and all(map(_is_float, each)) for each in lists):
            raise ValueError("a history holds something that is not a number")
    return made


def _is_float(value: Any) -> bool:
    return type(value) is float
