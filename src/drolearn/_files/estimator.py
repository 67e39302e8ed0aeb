"""One of drolearn's own estimators as JSON and arrays: the content of a .drl file.

A .drl file is a zip file without compression.  Its first member, `manifest.json`, has the version
of the format, versions of libraries, and size and SHA-256 of every other member: `model.json`, with
class, parameters and attributes, and one member in NumPy's format for each array.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import drolearn
from drolearn._estimators.classification import RobustClassifier
from drolearn._estimators.classifier_cv import RobustClassifierCV
from drolearn._estimators.regression import RobustRegressor
from drolearn._estimators.regressor_cv import RobustRegressorCV
from drolearn._files import attributes
from drolearn._files.archive import (
    DAMAGED,
    MANIFEST,
    array_of,
    bytes_of,
    checksum,
    json_of,
    pack,
    unpack,
)
from drolearn._files.errors import ModelFileError
from drolearn._files.values import Arrays, decode, encode

__all__ = ["CLASSES", "FORMAT", "from_bytes", "read_manifest", "to_bytes"]

#: The version of the format that is written; the readers of all versions stay.
FORMAT = 1
CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (RobustClassifier, RobustClassifierCV, RobustRegressor, RobustRegressorCV)
}
_MODEL = "model.json"
_NAMES = re.compile(r"manifest\.json|model\.json|arrays/[0-9]{1,6}\.npy")
# What scikit-learn keeps on an estimator while it fits, and what `partial_fit` needs to continue a
# stream; neither is a part of the model.
_NOT_KEPT = ("_skl_callbacks", "_skl_callbacks_to_teardown", "_parent_callback_ctx", "_stream")


def to_bytes(model: Any) -> bytes:
    """The content of the file of a fitted estimator."""
    name = type(model).__name__
    if CLASSES.get(name) is not type(model):
        raise ModelFileError(
            f"A .drl file holds one of {', '.join(CLASSES)}. Got {name} instead: use a name that "
            f"ends in .skops."
        )
    attributes.check(model, f"This {name}")
    arrays: Arrays = {}
    parameters = model.get_params(deep=False)
    described = {
        key: encode(value, f"The parameter {key!r} of {name}", arrays)
        for key, value in parameters.items()
    }
    fitted = {}
    for key, value in vars(model).items():
        if key in parameters or key in _NOT_KEPT:
            continue
        if key not in attributes.names(model):
            raise ModelFileError(
                f"This {name} has an attribute {key!r}, which a .drl file cannot hold: use a name "
                f"that ends in .skops."
            )
        fitted[key] = encode(value, f"The attribute {key!r} of {name}", arrays)
    content = {"class": name, "parameters": described, "attributes": fitted}
    members = {_MODEL: bytes_of(content)} | {key: bytes_of(each) for key, each in arrays.items()}
    manifest = {
        "format": FORMAT,
        "versions": {
            "drolearn": drolearn.__version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "python": platform.python_version(),
        },
        "members": {
            key: {"bytes": len(each), "sha256": checksum(each)} for key, each in members.items()
        },
    }
    return pack({MANIFEST: bytes_of(manifest)} | members)


def from_bytes(content: bytes, path: Path) -> Any:
    """The estimator of a file."""
    manifest, members = _read(content, path)
    try:
        arrays = {name: array_of(each) for name, each in members.items() if name != _MODEL}
        described = json_of(members[_MODEL])
        cls = CLASSES.get(described["class"])
        if cls is None:
            raise ModelFileError(
                f"{str(path)!r} holds a {_short(described['class'])}, which is not one of "
                f"{', '.join(CLASSES)}{_written_by(manifest)}."
            )
        parameters, fitted = described["parameters"], described["attributes"]
        _refuse_unknown("parameter", parameters, cls._get_param_names(), manifest, path)
        model = cls(**{name: decode(value, arrays) for name, value in parameters.items()})
        model._validate_params()
        _refuse_unknown("attribute", fitted, attributes.names(model), manifest, path)
        for name, value in fitted.items():
            setattr(model, name, decode(value, arrays))
        attributes.check(model, repr(str(path)))
    except ModelFileError:
        raise
    except DAMAGED as error:
        raise ModelFileError(
            f"{str(path)!r} is not a model file of drolearn, or is damaged "
            f"({_short(error)}): use another copy."
        ) from error
    return model


def read_manifest(content: bytes, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest, and the description of the estimator; nothing is made from it."""
    manifest, members = _read(content, path)
    try:
        return manifest, json_of(members[_MODEL])
    except DAMAGED as error:
        raise ModelFileError(
            f"{str(path)!r} is damaged ({_short(error)}): use another copy."
        ) from error


def _read(content: bytes, path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the other members, of which the checksums are right."""
    members = unpack(content, path, _NAMES)
    shown = repr(str(path))
    try:
        manifest = json_of(members.pop(MANIFEST))
        version, listed = manifest["format"], manifest["members"]
        if version != FORMAT or type(version) is not int:
            raise ModelFileError(
                f"{shown} has the format version {_short(version)}{_written_by(manifest)}; this is "
                f"drolearn {drolearn.__version__}, which reads version {FORMAT}: install a newer "
                f"drolearn."
            )
        for name in sorted({_MODEL, *listed} - set(members)):
            raise ModelFileError(f"{shown} lacks the member {name!r}: use another copy.")
        for name, each in members.items():
            if name not in listed:
                raise ModelFileError(
                    f"{shown} has a member {name!r} that it does not list: do not trust it."
                )
            if listed[name] != {"bytes": len(each), "sha256": checksum(each)}:
                raise ModelFileError(
                    f"{shown} is damaged: the checksum of {name!r} is wrong; use another copy."
                )
    except ModelFileError:
        raise
    except DAMAGED as error:
        raise ModelFileError(
            f"{shown} is not a model file of drolearn, or is damaged ({_short(error)}): use "
            f"another copy."
        ) from error
    return manifest, members


def _refuse_unknown(
    kind: str, given: Any, known: list[str], manifest: dict[str, Any], path: Path
) -> None:
    for name in given:
        if name not in known:
            raise ModelFileError(
                f"{str(path)!r} has the {kind} {_short(name)}, which this class of drolearn "
                f"{drolearn.__version__} does not have{_written_by(manifest)}."
            )


def _written_by(manifest: dict[str, Any]) -> str:
    """Which version of drolearn wrote a file, for errors."""
    versions = manifest.get("versions")
    version = versions.get("drolearn") if isinstance(versions, dict) else None
    return f" (it was written by drolearn {_short(version)})" if version is not None else ""


def _short(value: Any) -> str:
    """A text of the file for errors: one line, not too long."""
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= 100 else f"{text[:97]}..."
