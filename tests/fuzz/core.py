"""The entry points of the core with arguments of any size, shape and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from drolearn import _core
from drolearn.divergence import NAMES, as_divergence
from drolearn.loss import as_loss
from tests.fuzz.source import Source

__all__ = ["CORE", "seeds_of"]


def _divergence(source: Source) -> Any:
    return as_divergence(source.choice(list(NAMES))).core


def _worst_case(source: Source) -> None:
    n = source.integer(1, 40)
    z, p = source.vector(n), np.empty(source.size(n))
    base, rho = source.maybe(n), source.number()
    status, value, *_ = _core.solve(_divergence(source), rho, z, base, p, source.integer(-1, 3))
    # Callers check that losses and weights are finite, and weights not negative.
    tame = np.isfinite(z).all() and (
        base is None or (base.min() >= 0.0 and 1e-9 < base.sum() < 1e9)
    )
    if status == _core.OK and tame:
        slack = 1e-9 * np.abs(z).max()
        assert z.min() - slack <= value <= z.max() + slack
        assert abs(p.sum() - 1.0) <= 1e-9
        assert p.min() >= 0.0


def _search(source: Source) -> None:
    n = source.integer(1, 30)
    z, p, parts = source.vector(n), np.empty(source.size(n)), np.empty((source.size(1), 5))
    base, divergence = source.maybe(n), _divergence(source)
    _core.survey(z, base, parts)
    search = _core.Search(divergence, source.number(), n, parts, (source.number(), source.number()))
    state = bytearray(search.state)
    for _ in range(source.choice([0, 0, 1, 3])):
        state[source.integer(0, len(state) - 1)] = source.take(1)[0]
    search = _core.Search(divergence, bytes(state))
    sums = np.empty((source.size(1), 6))
    for _ in range(100):
        if search.done:
            search.answer()
            return
        search.sweep(z, base, p, sums)
        search.join(sums, np.empty(source.size(6)))
        search.advance(sums)


def _weights(source: Source) -> None:
    n = source.integer(1, 20)
    z, base, divergence = source.vector(n), source.maybe(n), _divergence(source)
    kind = source.integer(0, 4)
    if kind == 0:
        groups = None
        if source.integer(0, 1):
            groups = (source.integers(source.size(n), 3), source.vector(3))
        blocks = source.matrix(2, 4)
        _core.signed_weights(divergence, z, base, blocks, np.empty(source.size(n)), groups)
    elif kind == 1:
        derivatives = (source.vector(n), source.vector(n))
        out = np.empty((source.size(3), source.size(n)))
        multipliers = (source.number(), source.number())
        _core.second_order(divergence, (z, base), source.vector(n), multipliers, derivatives, out)
    elif kind == 2:
        s, rise = np.empty(source.size(n)), np.empty(source.size(n))
        _core.follow(divergence, z, source.number(), s, rise)
    elif kind == 3:
        _core.weigh(divergence, z, source.vector(n), source.number(), np.empty(source.size(n)))
    else:
        _core.sort_down(z, np.empty(source.size(n)))
        _core.tail_sums(z, source.vector(n), np.empty((source.size(5), source.size(n))))


def _rows(source: Source) -> tuple[Any, int, int]:
    """Dense or sparse rows, their number and that of the columns."""
    n, d = source.integer(1, 6), source.integer(1, 4)
    kind = source.choice([np.float64, np.float32])
    with np.errstate(over="ignore"):
        if source.integer(0, 1):
            X = source.numbers(n * d).reshape(n, d).astype(kind)
            X = source.choice([X, np.asfortranarray(X), X[::-1], np.repeat(X, 2, axis=1)[:, ::2]])
            return _core.Rows(X), n, d
        index = source.choice([np.int32, np.int64])
        counts = source.integers(n, d)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index)
        stored = source.size(int(max(indptr[-1], 0)))
        indices, data = source.integers(stored, d - 1), source.numbers(stored)
        return _core.Rows(data.astype(kind), indices.astype(index), indptr, d), n, d


def _passes(source: Source) -> None:
    rows, n, d = _rows(source)
    m, kind = source.integer(1, 3), source.integer(0, 4)
    if kind == 0:
        rows.scores(source.matrix(m, d + 1), np.empty(source.size(n * m)), source.integer(-1, 2))
    elif kind == 1:
        out = np.empty((source.size(m), source.size(d + 1)))
        rows.gradient(source.maybe(n), source.vector(n * m), out)
    elif kind == 2:
        some, out = (
            source.integers(source.size(n), n - 1),
            np.empty((source.size(3), source.size(d))),
        )
        rows.moments(some, source.maybe(n), source.maybe(d), out)
    elif kind == 3:
        columns, first = (source.vector(d), source.vector(d)), source.integer(0, n)
        out = np.empty((source.size(n - first), source.size(d + 1)))
        rows.scaled(columns, first, source.vector(n - first), out)
    else:
        out = np.zeros((source.size(d + 1), source.size(d + 1)))
        rows.gram(source.vector(n), source.vector(d), out)


def _losses(source: Source) -> None:
    n, m = source.integer(1, 10), source.integer(1, 3)
    names = ["logistic", "multinomial", "squared", "huber", "squared-hinge", "smoothed-hinge"]
    loss = as_loss(source.choice(names)).core
    y = source.integers(n, m - 1).astype(np.float64) if source.integer(0, 1) else source.vector(n)
    f = source.vector(n * m)
    if source.integer(0, 1):
        _core.losses(loss, f, y, np.empty(source.size(n)), np.empty(source.size(n * m)))
    else:
        _core.bends(loss, f, y, np.empty(source.size(n)))


def _plan(source: Source, n: int) -> Any:
    kind = source.choice(["full", "fixed", "growing", "multilevel", "multilevel"])
    growth = (source.choice([1, 2, n, source.integer(-1, 9)]), 1.0 + abs(source.number()))
    radius = (abs(source.number()), abs(source.number()), source.number() % 1.0)
    sizes, levels = [n], source.integer(1, 3)
    while sizes[0] > 1 and len(sizes) < levels:
        sizes.insert(0, sizes[0] // 2)
    rows = np.array(sizes, dtype=np.int64)[:, None]
    if source.integer(0, 7) == 0:
        rows = source.integers(len(sizes), n)[:, None]
    probabilities = np.abs(source.vector(len(sizes) - 1)) + source.choice([0.1, 0.0])
    groups = None
    if source.integer(0, 3) == 0:
        of = source.integers(source.size(n), 1)
        order = np.argsort(of, kind="stable")
        groups = (of, source.vector(2), order[: source.size(n)].astype(np.int64))
    return _core.Plan(kind, n, growth, radius, source.number(), (rows, probabilities), groups)


def _steps(source: Source) -> None:
    rows, n, d = _rows(source)
    plan = _plan(source, n)
    generator = np.random.default_rng(0).bit_generator
    if source.integer(0, 1):
        _core.draw(generator.capsule, plan, abs(source.integer(0, 1000)))
        _core.draw_level(generator.capsule, plan, source.integer(0, 4))
        return
    m = source.choice([1, 1, 2])
    loss = as_loss(source.choice(["logistic", "squared", "multinomial" if m > 1 else "huber"])).core
    y = source.integers(source.size(n), m - 1).astype(np.float64)
    labels = (y, source.maybe(n), source.maybe(n))
    columns = (source.vector(d), source.vector(source.choice([d, d + 1])))
    objective, l2 = (loss, _divergence(source)), source.number()
    descent = _core.Descent(objective, l2, plan, rows, labels, columns)
    model = (np.zeros((source.size(m), d + 1)), np.zeros((m, source.size(d + 1))))
    anchor = None
    if source.integer(0, 2) == 0:
        anchor = (source.matrix(m, d + 1), source.matrix(m, d + 1))
    steps = (source.vector(8), source.number(), source.number(), float(source.integer(0, 60)))
    descent.run(generator.capsule, model, anchor, steps, _core.Tally())


def _target(call: Callable[[Source], None]) -> Callable[[bytes], None]:
    def target(content: bytes) -> None:
        try:
            call(Source(content))
        except (ValueError, TypeError):
            return  # a message of the core's own, or of nanobind for arguments of another type

    return target


#: All targets by name.
CORE: dict[str, Callable[[bytes], None]] = {
    "worst_case": _target(_worst_case),
    "search": _target(_search),
    "weights": _target(_weights),
    "passes": _target(_passes),
    "losses": _target(_losses),
    "steps": _target(_steps),
}


def seeds_of(_: str) -> list[bytes]:
    """Inputs from which others are made by small changes."""
    return [bytes(range(7 * k, 256)) * 2 for k in range(0, 30, 3)]
