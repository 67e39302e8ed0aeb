"""Pipelines and other estimators through skops: the content of a .skops file.

skops makes an object only if its type is trusted.  Trusted are the types that skops
trusts itself, those of NumPy, SciPy and scikit-learn that cannot run code, and the ones listed
here; a file adds nothing to the list.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from drolearn._files.archive import DAMAGED, check_array, pack, unpack
from drolearn._files.errors import ModelFileError
from drolearn._solvers import solvers
from drolearn.divergence import CLASSES

__all__ = ["TRUSTED", "from_bytes", "to_bytes"]

_OF_DROLEARN = (
    "drolearn._estimators.classification.RobustClassifier",
    "drolearn._estimators.classifier_cv.RobustClassifierCV",
    "drolearn._estimators.regression.RobustRegressor",
    "drolearn._estimators.regressor_cv.RobustRegressorCV",
    "drolearn._solvers.descent.History",
    *(f"drolearn._solvers.solvers.{cls.__name__}" for cls in solvers.CLASSES),
    *(f"drolearn._solvers.step_sizes.{name}" for name in ("Constant", "Decay")),
    *(f"drolearn.divergence.{cls.__name__}" for cls in CLASSES),
    *(f"drolearn.spectral.{name}" for name in ("Exponential", "Extremile", "Spectral")),
    "drolearn.loss.Loss",
)  # fmt: skip
# What skrub's tabular_pipeline is made of, for models of the command line: transformers, selectors
# of columns, and the functions that selectors call, which look at the type of a column.
_OF_SKRUB = (
    "skrub._apply_to_each_col.ApplyToEachCol",
    "skrub._check_input.CheckInputDataFrame",
    "skrub._clean_categories.CleanCategories",
    "skrub._clean_null_strings.CleanNullStrings",
    "skrub._dataframe._common.is_any_date",
    "skrub._dataframe._common.is_categorical",
    "skrub._dataframe._common.is_duration",
    "skrub._dataframe._common.is_numeric",
    "skrub._datetime_encoder.DatetimeEncoder",
    "skrub._datetime_encoder._SplineEncoder",
    "skrub._drop_uninformative.DropUninformative",
    "skrub._duration_to_float.DurationToFloat",
    "skrub._squashing_scaler.SquashingScaler",
    "skrub._squashing_scaler._MinMaxScaler",
    "skrub._string_encoder.StringEncoder",
    "skrub._table_vectorizer.PassThrough",
    "skrub._table_vectorizer.ShortReprDict",
    "skrub._table_vectorizer.TableVectorizer",
    "skrub._table_vectorizer._created_by_predicate",
    "skrub._to_datetime.ToDatetime",
    "skrub._to_float.ToFloat",
    "skrub._to_str.ToStr",
    "skrub.selectors._base.All",
    "skrub.selectors._base.And",
    "skrub.selectors._base.Cols",
    "skrub.selectors._base.Filter",
    "skrub.selectors._base.Sub",
    "skrub.selectors._selectors._cardinality_below",
    # Types of other packages that these hold.
    "datetime.timedelta",
    "datetime.timezone",
    "numpy.dtype",
    "pandas.DatetimeTZDtype",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "scipy.interpolate._bsplines.BSpline",
    "zoneinfo.ZoneInfo",
)
# For CalibratedClassifierCV(RobustClassifier()).  Trees are not trusted: wrong numbers in one make
# compiled code read memory that is not its own.
_OF_SCIKIT_LEARN = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
)
#: The types that are trusted besides those that skops itself trusts.
TRUSTED = (*_OF_DROLEARN, *_OF_SKRUB, *_OF_SCIKIT_LEARN)
_NAMES = re.compile(r"[0-9A-Za-z_-]{1,64}\.(json|npy|npz|bin)")


def require_skops() -> Any:
    """Import skops, or say how to install it."""
    try:
        import skops.io
    except ImportError:
        raise ImportError(
            "Model files that end in .skops need skops. Install it with "
            "pip install 'drolearn[files]'."
        ) from None
    return skops.io


def to_bytes(model: Any) -> bytes:
    """The content of the file of an estimator; only of one that `from_bytes` would read."""
    skops = require_skops()
    name = type(model).__name__
    if isinstance(model, type) or not hasattr(model, "get_params"):
        raise ModelFileError(f"A model file holds a fitted estimator. Got {name} instead.")
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise ModelFileError(f"This {name} is not fitted: fit it, and save it again.") from error
    try:
        content = _without_spaces(skops.dumps(model))
        untrusted = set(skops.get_untrusted_types(data=content)) - set(TRUSTED)
    except Exception as error:  # a state that skops does not know can fail in any way
        raise ModelFileError(
            f"This {name} cannot be saved as .skops ({' '.join(str(error).split())[:200]}): use "
            f"pickle, and open pickles only from people you trust."
        ) from error
    if untrusted:
        raise ModelFileError(
            f"This {name} holds {_listed(untrusted)}, which drolearn.load does not trust: use "
            f"pickle, and open pickles only from people you trust."
        )
    return content


def _without_spaces(content: bytes) -> bytes:
    """The same file with JSON in one line: skops indents it, which makes most of the file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    members["schema.json"] = json.dumps(schema, separators=(",", ":")).encode()
    return pack(members)


def from_bytes(content: bytes, path: Path) -> Any:
    """The estimator of a file, if all its types are trusted."""
    skops = require_skops()
    shown = repr(str(path))
    members = unpack(content, path, _NAMES)
    try:
        for name, each in members.items():
            if name.endswith(".npy"):
                check_array(each)
        untrusted = set(skops.get_untrusted_types(data=content)) - set(TRUSTED)
        if untrusted:
            raise ModelFileError(
                f"{shown} holds {_listed(untrusted)}, which drolearn does not trust: if you trust "
                f"who made the file, load it with skops.io.load(path, trusted=[...])."
            )
        return skops.loads(content, trusted=list(TRUSTED))
    except ModelFileError:
        raise
    except (*DAMAGED, ImportError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ModelFileError(
            f"{shown} is not a file of skops, is damaged, or was written with other versions of "
            f"the libraries ({reason}): use another copy, or the versions it was written with."
        ) from error


def _listed(types: set[str]) -> str:
    """Names of types, at most five of them."""
    shown = sorted(types)
    more = f" and {len(shown) - 5} more types" if len(shown) > 5 else ""
    return ", ".join(shown[:5]) + more
