"""Callbacks of scikit-learn 1.9 and later; with earlier versions, estimators fit without them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__all__ = ["CallbackSupportMixin"]

if TYPE_CHECKING or find_spec("sklearn.callback") is not None:
    from sklearn.callback import CallbackSupportMixin
else:

    class _NoContext:
        """The methods of `sklearn.callback.CallbackContext` that estimators call, doing nothing."""

        max_subtasks = 0

        def subcontext(self, **task: Any) -> _NoContext:
            return self

        def call_on_fit_task_begin(self, **arguments: Any) -> None:
            pass

        def call_on_fit_task_end(self, **arguments: Any) -> bool:
            return False  # do not stop

    class CallbackSupportMixin:
        """The interface of `sklearn.callback.CallbackSupportMixin` without any callbacks."""

        @property
        def set_callbacks(self) -> Any:
            from sklearn import __version__

            raise AttributeError(
                f"{type(self).__name__}.set_callbacks needs scikit-learn 1.9 or later. Got version "
                f"{__version__}: upgrade scikit-learn, or use verbose=1 to see progress."
            )

        def _init_callback_context(self, **task: Any) -> _NoContext:
            return _NoContext()
