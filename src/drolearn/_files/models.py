"""`save` and `load`: fitted models as files that hold no code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from drolearn._files.archive import read_bytes
from drolearn._files.errors import ModelFileError
from drolearn._storage import replacing

__all__ = ["load", "save"]


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Save a fitted model to a file that holds no code.

    Parameters
    ----------
    model : estimator
        For a name that ends in ".drl", one of drolearn's four estimators.  For ".skops", also a
        pipeline or another estimator of scikit-learn; this needs ``drolearn[files]``.
    path : str or path-like
        Name of the file.  An old file of this name is replaced in one step, or stays if the new
        one cannot be written.

    Raises
    ------
    ModelFileError
        If the model is not fitted, if it holds functions or objects that a file without code
        cannot hold, or if the name does not end in ".drl" or ".skops".
    ImportError
        If the name ends in ".skops" and skops is not installed.

    See Also
    --------
    load : Loads the file.

    Notes
    -----
    Callbacks are not saved.  Groups, worst-case weights (with store_weights=True) and names of
    columns are, so a file may hold personal data.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import drolearn
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> model = drolearn.RobustClassifier(rho=0.01).fit(X, ["no", "yes", "no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     drolearn.save(model, Path(folder) / "model.drl")
    ...     loaded = drolearn.load(Path(folder) / "model.drl")
    >>> loaded.predict([[-1.0], [4.0]])
    array(['no', 'yes'], dtype='<U3')
    """
    target = _checked(path)
    if target.suffix == ".drl":
        from drolearn._files import estimator as writer
    else:
        from drolearn._files import pipeline as writer
    content = writer.to_bytes(model)
    with replacing(target) as file:
        file.write(content)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model from a file that :func:`save` wrote.

    No code of the file is run: a ".drl" file holds numbers and texts, from which one of drolearn's
    estimators is made, and a ".skops" file may hold only types that drolearn trusts.  Names, sizes
    and checksums are checked first.

    Parameters
    ----------
    path : str or path-like
        Name of the file, which ends in ".drl" or ".skops".

    Returns
    -------
    estimator
        The model: predictions, parameters and attributes are those of the saved one, to the bit.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is damaged, has another version of the format, or holds
        types that are not trusted.
    ImportError
        If the name ends in ".skops" and skops is not installed.

    See Also
    --------
    save : Writes the file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import drolearn
    >>> model = drolearn.RobustRegressor(l2=0).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     drolearn.save(model, Path(folder) / "model.drl")
    ...     drolearn.load(Path(folder) / "model.drl").predict([[3.0]]).round(3)
    array([4.])
    """
    source = _checked(path)
    if source.suffix == ".drl":
        from drolearn._files import estimator as reader
    else:
        from drolearn._files import pipeline as reader
    return reader.from_bytes(read_bytes(source), source)


def _checked(path: str | os.PathLike[str]) -> Path:
    """A path with a known ending."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ModelFileError(
            f"The 'path' parameter must be the name of a file. Got {type(path).__name__} instead."
        )
    if Path(name).suffix not in (".drl", ".skops"):
        raise ModelFileError(
            f"The name of a model file must end in .drl or .skops. Got {Path(name).name!r} instead."
        )
    return Path(name)
