"""The error of model files."""

from __future__ import annotations

__all__ = ["ModelFileError"]


class ModelFileError(ValueError):
    """A model cannot be saved, or a file cannot be loaded; the message says why and what to do.

    Examples
    --------
    >>> from drolearn import ModelFileError, load
    >>> try:
    ...     load("model.pkl")
    ... except ModelFileError as error:
    ...     print(error)
    The name of a model file must end in .drl or .skops. Got 'model.pkl' instead.
    """
