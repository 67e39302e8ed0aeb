"""`partial_fit`: what classifiers and regressors share."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d, validate_data

from drolearn._estimators.base import RobustLinear
from drolearn._estimators.training_data import X_FORMATS, as_sample_weights
from drolearn._solvers.choice import as_solver
from drolearn._solvers.ending import Ending, describe_stream
from drolearn._solvers.inputs import make_problem
from drolearn._solvers.problem import Problem
from drolearn._solvers.solution import Solution
from drolearn._solvers.solvers import GSSG
from drolearn._solvers.stream import Rows, Stream
from drolearn._validation import as_generator, distinct, is_number, refuse_missing
from drolearn.divergence import as_divergence
from drolearn.loss import Loss

__all__ = ["ClassifierStreamMixin", "RegressorStreamMixin", "refuse_missing_labels"]

Array = NDArray[np.float64]


class StreamMixin(RobustLinear):
    """What `partial_fit` needs besides labels and classes."""

    _takes_streams: ClassVar[bool] = True
    n_features_in_: int
    _stream: Stream

    def _lacks_for_streams(self) -> str:
        """Why there is no `partial_fit` with these parameters, and what to use; "" if there is."""
        name = type(self).__name__
        if not self._takes_streams:
            return (
                f"{name} has no 'partial_fit': drolearn's RobustClassifier and RobustRegressor do."
            )
        needs = f"{name}.partial_fit needs"
        if not is_number(self.l2):
            return (
                f"{needs} a number for 'l2', as the number of rows of a stream is not known. "
                f"Got {self.l2!r} instead; use l2=1/N for about N rows."
            )
        if self.tau is not None:
            return (
                f"{needs} tau=None, as soft balls need exact solvers. Got {self.tau!r} instead; "
                f"use rho, or fit."
            )
        divergence = as_divergence(self.divergence)
        if divergence.family == "spectral":
            return (
                f"{needs} a φ-divergence, as a spectral risk needs the order of all losses. Got "
                f"{divergence!r} instead; use CVaR, or fit."
            )
        if divergence.has_radius and not is_number(self.rho):
            return (
                f"{needs} a number for 'rho', as the number of rows of a stream is not known. "
                f"Got {self.rho!r} instead; use for example rho=0.1."
            )
        if self.reference is not None:
            return (
                f"{needs} reference=None, as a reference is fitted to all rows. "
                f"Got {self.reference!r} instead; use fit."
            )
        if self.l1:
            return f"{needs} l1=0, as draws take no l1 penalty. Got {self.l1!r} instead; use fit."
        if self.trim:
            return (
                f"{needs} trim=0, as trimming compares all rows. Got {self.trim!r} instead; "
                f"use fit."
            )
        class_weight = getattr(self, "class_weight", None)
        if isinstance(class_weight, str):
            return (
                f"{needs} a dictionary as 'class_weight', as the shares of the classes of a stream "
                f"are not known. Got {class_weight!r} instead."
            )
        solver = as_solver(self.solver) or GSSG()
        if not isinstance(solver, GSSG) or solver.anchor:
            return (
                f"{needs} solver='auto', 'gssg' or GSSG(...) without an anchor, as others read all "
                f"rows. Got {self.solver!r} instead."
            )
        if solver.r == "auto" or solver.probabilities is not None or solver.checkpoint is not None:
            return (
                f"{needs} GSSG with a number as 'r', and without 'probabilities' and 'checkpoint'. "
                f"Got {solver!r} instead; to continue later, pickle the estimator."
            )
        return ""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say why there is no `partial_fit`."""
            if name == "partial_fit":
                raise AttributeError(self._lacks_for_streams())
            return super().__getattr__(name)

    @property
    def _is_new(self) -> bool:
        """Whether there is no model yet that a stream could continue."""
        return not hasattr(self, "coef_")

    def _learn(self, X: Any, y: Array, sample_weight: Any, factors: Array | None, m: int) -> Self:
        """Learn from validated rows; `factors` are class weights, and m the scores of a row."""
        weights, exponent = as_sample_weights(sample_weight, X)
        if weights is not None:
            weights = np.ldexp(weights, exponent)
        if factors is not None:
            weights = factors if weights is None else weights * factors
        if not isinstance(X, np.ndarray) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        rows = Rows(X, y, weights)
        if weights is not None and not weights.all():
            rows = rows.part(np.flatnonzero(weights))
        solver = as_solver(self.solver) or GSSG()
        if not isinstance(solver, GSSG):
            raise TypeError(self._lacks_for_streams())
        divergence, loss = as_divergence(self.divergence), self._loss()

        def problem_of(rows: Rows) -> Problem:
            problem = make_problem(
                *rows, None, rho=self.rho, divergence=divergence, loss=loss, l2=float(self.l2),
                fit_intercept=self.fit_intercept, n_jobs=self.n_jobs,
            )  # fmt: skip
            return replace(problem, m=m)

        stream = self._stream_for(X, m)
        written = len(stream.state.history.samples)
        try:
            stream.learn(rows, solver, problem_of)
        except KeyboardInterrupt:  # the attributes hold the model so far
            self._set_learned(stream, X.dtype)
            raise
        self._set_learned(stream, X.dtype)
        if self.verbose and len(self.history_.value) > written:
            print(
                f"[{type(self).__name__}] {stream.seen:,} rows, robust loss of the last "
                f"{len(stream.window):,} {self.history_.value[-1]:.6g}, {stream.seconds:.2f} s",
                flush=True,
            )
        if stream.diverged:
            warnings.warn(self.status_, ConvergenceWarning, stacklevel=4)
        return self

    def _stream_for(self, X: Any, m: int) -> Stream:
        """The stream of earlier calls, or a new one, which starts from the model, if any."""
        stream = vars(self).get("_stream")
        if stream is None:
            theta = np.zeros((m, X.shape[1] + 1))
            if not self._is_new:
                theta[:, :-1], theta[:, -1] = self.coef_, self.intercept_
            stream = Stream.new(
                theta, as_generator(self.random_state), not isinstance(X, np.ndarray)
            )
        elif stream.window.sparse == isinstance(X, np.ndarray):
            kinds = ("sparse", "dense") if stream.window.sparse else ("dense", "sparse")
            raise ValueError(
                f"The 'X' parameter of {type(self).__name__}.partial_fit must be {kinds[0]}, as in "
                f"the first call. Got {kinds[1]} rows instead: convert them."
            )
        return stream

    def _set_learned(self, stream: Stream, dtype: Any) -> None:
        """Set the attributes of a fitted estimator."""
        self._stream = stream
        for name, value in self._coefficients(stream.model, dtype).items():
            setattr(self, name, value)
        divergence, steps = as_divergence(self.divergence), int(stream.state.tally.step)
        self.divergence_, self.l2_, self.l1_, self.tau_ = divergence, float(self.l2), 0.0, None
        self.rho_ = 0.0 if self.rho is None else float(self.rho)
        self.robust_loss_ = self.objective_ = self.gap_ = math.nan
        self.robust_regret_ = self.groups_ = self.group_weights_ = None
        self.history_ = stream.state.history
        self.ending_ = Ending.DIVERGED if stream.diverged else Ending.ALL_PASSES
        self.status_ = describe_stream(self.ending_, stream.seen, steps)
        self.converged_, self.solver_, self.n_iter_ = self.ending_.converged, "gssg", 1
        self.n_samples_seen_, self.t_ = stream.seen, steps
        vars(self).pop("worst_case_weights_", None)

    def _set_attributes(self, problem: Problem, solution: Solution, dtype: Any) -> None:
        """Set the attributes after `fit`, which ends a stream."""
        super()._set_attributes(problem, solution, dtype)
        for name in ("_stream", "t_", "n_samples_seen_"):
            vars(self).pop(name, None)


class ClassifierStreamMixin(StreamMixin):
    """Adds checks of classes and their weights, and `partial_fit`."""

    classes_: NDArray[Any]
    class_weight: Any

    @available_if(lambda self: not self._lacks_for_streams())
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from the next rows of a stream, in one pass and with bounded memory.

        It keeps the last batch_size · 2^max_level rows of ``GSSG(batch_size=64, max_level=8)``, and
        minimises the mean robust loss of that many rows plus the penalty; see docs/streams.md.
        There is a `partial_fit` if `rho` and `l2` are numbers, `reference` is None, and `solver` is
        "auto", "gssg" or `GSSG` without an anchor. Pickling keeps the stream: what follows has the
        same bits. After `fit`, or when loaded from a model file, a new stream starts from the
        model; `fit` ends a stream.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The next rows; all dense, or all sparse. They should come in random order.
        y : array-like of shape (n_samples,)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that `y` can have; needed in the first call, optional in others.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows. Their scale has no effect; rows of weight 0 are ignored.

        Returns
        -------
        RobustClassifier
            The estimator itself.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C; the attributes then hold the model so far.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import RobustClassifier
        >>> rng = np.random.default_rng(0)
        >>> clf = RobustClassifier(rho=0.1, l2=1e-4, random_state=0)
        >>> for _ in range(20):
        ...     X = rng.standard_normal((1000, 2))
        ...     clf = clf.partial_fit(X, X @ [1.0, -1.0] > 0.5, classes=[False, True])
        >>> clf.n_samples_seen_, bool(clf.score(X, X @ [1.0, -1.0] > 0.5) > 0.98)
        (20000, True)
        """
        refuse_missing_labels(y)
        X, y = validate_data(self, X, y, reset=self._is_new, **X_FORMATS)
        known = None if self._is_new else self.classes_
        self.classes_ = _classes(classes, known)
        loss = self._loss()
        self._refuse_margin_of_many(loss)
        targets, factors = self._targets(y), None
        if self.class_weight is not None:
            factors = self._class_weights(self.classes_)[np.searchsorted(self.classes_, y)]
        scores = self.classes_.size if loss.of == "classes" else 1
        return self._learn(X, targets, sample_weight, factors, scores)

    def _refuse_margin_of_many(self, loss: Loss) -> None:
        """Reject losses of the margin for more than two classes."""
        if loss.of == "margin" and self.classes_.size > 2:
            raise ValueError(
                f"The 'loss' parameter of {type(self).__name__} must be 'logistic' for more than "
                f"two classes. Got {loss.name!r} for {self.classes_.size} classes instead."
            )

    def _class_weights(self, y: Any, weights: Array | None = None) -> Array:
        """Return the weights of the classes."""
        found: Any = compute_class_weight(
            self.class_weight, classes=self.classes_, y=y, sample_weight=weights
        )
        if not (np.isfinite(found).all() and found.min() >= 0.0):
            raise ValueError(
                f"The 'class_weight' parameter of {type(self).__name__} must hold finite "
                f"weights of at least 0. Got {self.class_weight!r} instead."
            )
        return found


class RegressorStreamMixin(StreamMixin):
    """Adds `partial_fit` to a regressor."""

    @available_if(lambda self: not self._lacks_for_streams())
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from the next rows of a stream, in one pass and with bounded memory.

        It keeps the last batch_size · 2^max_level rows of ``GSSG(batch_size=64, max_level=8)``, and
        minimises the mean robust loss of that many rows plus the penalty; see docs/streams.md.
        There is a `partial_fit` if `rho` and `l2` are numbers, `reference` is None, and `solver` is
        "auto", "gssg" or `GSSG` without an anchor. Pickling keeps the stream: what follows has the
        same bits. After `fit`, or when loaded from a model file, a new stream starts from the
        model; `fit` ends a stream.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            The next rows; all dense, or all sparse. They should come in random order.
        y : array-like of shape (n_samples,)
            Their target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Base weights of the rows. Their scale has no effect; rows of weight 0 are ignored.

        Returns
        -------
        RobustRegressor
            The estimator itself.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C; the attributes then hold the model so far.

        Examples
        --------
        >>> import numpy as np
        >>> from drolearn import RobustRegressor
        >>> rng = np.random.default_rng(0)
        >>> reg = RobustRegressor(rho=0.1, l2=1e-4, random_state=0)
        >>> for _ in range(20):
        ...     X = rng.standard_normal((1000, 2))
        ...     reg = reg.partial_fit(X, X @ [1.0, -2.0] + 0.1 * rng.standard_normal(1000))
        >>> reg.coef_.round(1)
        array([ 1., -2.])
        """
        X, y = validate_data(self, X, y, y_numeric=True, reset=self._is_new, **X_FORMATS)
        targets = np.ascontiguousarray(y, dtype=np.float64)
        return self._learn(X, targets, sample_weight, None, 1)


def refuse_missing_labels(y: Any, name: str = "y") -> None:
    """Reject pandas.NA and None before scikit-learn does, whose message does not help."""
    if y is not None and np.asarray(y).dtype.kind == "O":
        refuse_missing(name, np.asarray(y).ravel())


def _classes(classes: Any, known: NDArray[Any] | None) -> NDArray[Any]:
    """Check the `classes` of `partial_fit`; `known` are those of earlier calls."""
    if classes is None:
        if known is None:
            raise ValueError(
                "The first call of partial_fit needs the 'classes' parameter, all labels that 'y' "
                "can have. Got None instead."
            )
        return known
    given = column_or_1d(classes)
    refuse_missing_labels(given, "classes")
    found, _ = distinct("classes", given)
    if found.size < 2:
        raise ValueError(
            f"The 'classes' parameter must hold at least two labels. Got {found.size} instead."
        )
    if known is not None and not np.array_equal(found, known):
        raise ValueError(
            f"The 'classes' parameter must be the same in every call of partial_fit. Got {found} "
            f"after {known}."
        )
    return found
