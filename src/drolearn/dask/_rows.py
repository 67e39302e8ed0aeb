"""The rows of a partition: checks, what they contain, and the blocks that solvers work on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from drolearn._blocks import Pass
from drolearn._inner.groups import Groups
from drolearn._solvers.block_rows import RowBlock
from drolearn._solvers.inputs import make_problem
from drolearn._validation import refuse_masked, refuse_missing
from drolearn.dask._collections import Partition
from drolearn.dask._groups import FoundGroups, GroupNames
from drolearn.divergence import Divergence
from drolearn.loss import Loss

__all__ = ["Found", "FoundPass", "MakeRows", "MakeTable", "Setup", "Table", "WeightsPass"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a partition, checked."""

    number: int
    X: Any
    y: NDArray[Any]
    weights: Array | None
    groups: Any
    reference: Array | None


@dataclass(frozen=True, slots=True)
class MakeTable:
    """Makes a `Table` from a partition; None if it has no rows."""

    numbers: bool
    """Whether y must hold numbers, for regression."""
    checked: bool = False
    """Whether the numbers are known to be finite."""

    def __call__(self, number: int, data: Partition, threads: int) -> Table | None:
        """Check the rows of one partition."""
        where = f"partition {number}"
        X, y = _matrix(data.X), np.asarray(data.y)
        n = X.shape[0]
        weights = None if data.weights is None else np.asarray(data.weights)
        reference = None if data.reference is None else np.asarray(data.reference)
        vectors = {"y": y, "sample_weight": weights, "reference_losses": reference}
        for parameter, values in vectors.items():
            if values is not None and values.shape != (n,):
                raise ValueError(
                    f"The '{parameter}' parameter must have one entry for each row of X. Got "
                    f"{values.shape[0]} for the {n} rows of {where} instead."
                )
        if n == 0:
            return None
        if not self.checked:
            _refuse_not_finite("X", X.data if sp.issparse(X) else X, where)
        refuse_masked("y", data.y)
        if self.numbers and y.dtype.kind not in "fiub":
            raise ValueError(
                f"The 'y' parameter must hold numbers. Got type {y.dtype} in {where} instead."
            )
        if y.dtype.kind == "f":
            _refuse_not_finite("y", y, where)
        refuse_missing("y", y)
        if weights is not None:
            weights = np.ascontiguousarray(weights, dtype=np.float64)
            _refuse_not_finite("sample_weight", weights, where)
            if weights.min() < 0.0:
                raise ValueError(
                    f"The 'sample_weight' parameter must hold weights of at least 0. "
                    f"Got {weights.min()} in {where} instead."
                )
        if reference is not None:
            reference = np.ascontiguousarray(reference, dtype=np.float64)
            _refuse_not_finite("reference_losses", reference, where)
        return Table(number, X, y, weights, data.groups, reference)


def _matrix(X: Any) -> Any:
    """Rows as a float32 or float64 array, or as CSR; not copied if they are that already."""
    if sp.issparse(X):
        X = X.tocsr()
        return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if hasattr(X, "to_scipy_sparse"):  # blocks of pydata's sparse arrays
        return _matrix(X.to_scipy_sparse())
    array = np.asarray(X)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return array


def _refuse_not_finite(parameter: str, values: NDArray[Any], where: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(values.sum()))  # a sum needs no copy
    if finite:
        return
    wrong = np.argwhere(~np.isfinite(values))
    if wrong.size:
        place = "" if parameter == "X" and values.ndim == 1 else f"row {wrong[0][0]} of "
        raise ValueError(
            f"The '{parameter}' parameter must hold finite numbers. "
            f"Got {values[tuple(wrong[0])]} in {place}{where} instead."
        )


# -- what the partitions contain -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of the rows of some partitions."""

    rows: dict[int, int]
    """Number of rows of each partition."""
    columns: int
    sparse: bool
    dtype: Any
    stored: int
    weight: float
    largest_weight: float
    classes: dict[Any, float]
    """The weight of each class; empty for regression."""
    y_total: float
    y_square: float
    y_largest: float
    groups: FoundGroups | None


@dataclass(frozen=True)
class FoundPass(Pass[Table, Found]):
    """What the partitions contain."""

    numbers: bool

    def of(self, block: Table) -> Found:
        X, weights = block.X, block.weights
        w = np.ones(X.shape[0]) if weights is None else weights
        classes, y = {}, np.zeros(1)
        if self.numbers:
            y = np.where(w > 0.0, block.y, 0.0).astype(np.float64)
        else:
            names, codes = np.unique(block.y, return_inverse=True)
            totals = np.bincount(codes, w, names.size)
            classes = dict(zip(names.tolist(), totals.tolist(), strict=True))
        groups = None
        if block.groups is not None:
            labels = None if self.numbers else block.y
            groups = FoundGroups.of(block.groups, labels, w, f"partition {block.number}")
        with np.errstate(over="ignore"):  # y that is too large is refused later
            square = float((y * y * w).sum()) if self.numbers else 0.0
        return Found(
            rows={block.number: X.shape[0]},
            columns=X.shape[1],
            sparse=sp.issparse(X),
            dtype=X.dtype,
            stored=X.nnz if sp.issparse(X) else X.size,
            weight=float(w.sum()),
            largest_weight=float(w.max()),
            classes=classes,
            y_total=float(w @ y) if self.numbers else 0.0,
            y_square=square,
            y_largest=float(abs(y).max()),
            groups=groups,
        )

    def add(self, first: Found, second: Found) -> Found:
        for what in ("columns", "sparse"):
            one, other = getattr(first, what), getattr(second, what)
            if one != other:
                at = min(second.rows)
                kind = f"{other} columns" if what == "columns" else "blocks of another kind"
                expected = f"{one}" if what == "columns" else "all sparse or all dense"
                raise ValueError(
                    f"The partitions of X must have the same columns ({expected}). "
                    f"Got {kind} in partition {at}."
                )
        groups = None
        if first.groups is not None and second.groups is not None:
            groups = first.groups + second.groups
        classes = dict(first.classes)
        for name, weight in second.classes.items():
            classes[name] = classes.get(name, 0.0) + weight
        return Found(
            rows={**first.rows, **second.rows},
            columns=first.columns,
            sparse=first.sparse,
            dtype=np.promote_types(first.dtype, second.dtype),
            stored=first.stored + second.stored,
            weight=first.weight + second.weight,
            largest_weight=max(first.largest_weight, second.largest_weight),
            classes=classes,
            y_total=first.y_total + second.y_total,
            y_square=first.y_square + second.y_square,
            y_largest=max(first.y_largest, second.y_largest),
            groups=groups,
        )


# -- the blocks of solvers -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """What blocks need to know of the whole problem."""

    starts: dict[int, int]
    """The number of rows before each partition."""
    loss: Loss
    divergence: Divergence
    rho: float
    l2: float
    intercept: bool
    m: int
    classes: NDArray[Any] | None
    """The classes in order; None for regression."""
    class_weights: Array | None
    dust: float
    """Weights below this count as zero."""
    scale: float
    """The weights are multiplied by this."""
    groups: GroupNames | None


@dataclass(frozen=True, slots=True)
class MakeRows:
    """Makes a `RowBlock` from a partition; None if it has no rows."""

    setup: Setup

    def __call__(self, number: int, data: Partition, threads: int) -> RowBlock | None:
        """Make the block of one partition."""
        setup = self.setup
        table = MakeTable(setup.classes is None, checked=True)(number, data, threads)
        if table is None:
            return None
        y, weights = table.y, table.weights
        if setup.classes is not None:
            codes = np.searchsorted(setup.classes, y)
            if setup.class_weights is not None:
                factors = setup.class_weights[codes]
                weights = factors if weights is None else weights * factors
            y = codes.astype(np.float64) if setup.m > 1 else np.where(codes == 1, 1.0, -1.0)
        if weights is not None:
            weights = weights * setup.scale
            weights = np.where(weights < setup.dust, 0.0, weights)
        problem = make_problem(
            table.X,
            np.ascontiguousarray(y, dtype=np.float64),
            weights,
            None,
            rho=setup.rho if setup.divergence.has_radius else None,
            divergence=setup.divergence,
            loss=setup.loss,
            l2=setup.l2,
            fit_intercept=setup.intercept,
            n_jobs=threads,
            reference=table.reference,
        )
        problem = replace(problem, m=setup.m)  # a block may lack some classes
        if setup.groups is not None:
            where = f"partition {number}"
            membership = setup.groups.membership(table.groups, problem.n, where)
            groups = Groups.part_of(membership, weights, setup.scale * setup.groups.totals)
            if groups.matrix is not None:  # rows in several groups count several times
                weights = groups.rows(groups.shares)
            problem = replace(problem, groups=groups, weights=weights)
        return RowBlock(problem, setup.starts[number])


class WeightsPass(Pass[RowBlock, tuple[float, NDArray[np.int64] | None]]):
    """The smallest positive weight, and how many rows with weight each disjoint group has."""

    def of(self, block: RowBlock) -> tuple[float, NDArray[np.int64] | None]:
        b, groups = block.b, block.problem.groups
        positive = np.ones(1) if b is None else b[b > 0.0]
        counts = groups.sizes if groups is not None and groups.disjoint else None
        return float(positive.min(initial=np.inf)), counts

    def add(
        self,
        first: tuple[float, NDArray[np.int64] | None],
        second: tuple[float, NDArray[np.int64] | None],
    ) -> tuple[float, NDArray[np.int64] | None]:
        (one, some), (other, more) = first, second
        return min(one, other), None if some is None or more is None else some + more
