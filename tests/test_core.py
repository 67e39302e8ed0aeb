"""The compiled core: elementary functions, chunks, sweeps in parts, passes over rows, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from drolearn import ChiSquare, Fixed, Multilevel, _core, worst_case
from drolearn.loss import as_loss
from tests.examples import ALL, CUSTOM_BENT, name

#: From this many losses on, the first guess comes from a sample.
SAMPLE_FROM = 1 << 15


@pytest.mark.parametrize("portable", [False, True])
def test_elementary_functions_are_exact_to_rounding(portable):
    x = np.concatenate(
        [-np.logspace(-300, np.log10(708.0), 20_001), np.logspace(-12, 2.84, 20_001)]
    )
    small = np.logspace(-300, 0, 20_001)
    cases = {
        "exp": (x, np.exp(x)),
        "expm1": (x, np.expm1(x)),
        "log": (abs(x), np.log(abs(x))),
        "log1p": (small, np.log1p(small)),
    }
    for function, (at, right) in cases.items():
        result = np.empty(at.size)
        _core.elementary(function, at, result, portable)
        np.testing.assert_allclose(result, right, rtol=5e-16)
    far, out = np.array([-709.0, -1e300, -np.inf]), np.empty(3)
    _core.elementary("exp", far, out, portable)
    assert out.tolist() == [0.0, 0.0, 0.0]
    nan, out = np.array([np.nan]), np.empty(1)
    _core.elementary("exp", nan, out, portable)
    assert np.isnan(out[0])


@pytest.mark.parametrize(
    "numbers",
    [
        np.zeros(0),
        np.array([3.0]),
        np.random.default_rng(0).standard_normal(3 * _core.CHUNK + 1),
        np.random.default_rng(1).integers(-3, 4, 1_000).astype(float),
        np.array([5e-324, -5e-324, 0.0, 1.8e308 / 2, -1.7e308, np.inf, -np.inf, 1.0, 1.0 + 2e-16]),
    ],
)
def test_losses_are_sorted(numbers):
    out = np.full(numbers.size, np.nan)
    _core.sort_down(numbers, out)
    assert out.tolist() == np.sort(numbers)[::-1].tolist()


def test_sums_over_the_largest_losses():
    rng = np.random.default_rng(0)
    z, b = np.sort(rng.random(_core.CHUNK + 7))[::-1].copy(), rng.random(_core.CHUNK + 7)
    sums = np.empty((5, z.size))
    _core.tail_sums(z, b, sums)
    for place in (0, 1, 17, _core.CHUNK, z.size - 1):
        above = np.maximum(z - z[place], 0.0)
        direct = [b[: place + 1].sum(), *(b @ above**j for j in range(1, 5))]
        np.testing.assert_allclose(sums[:, place], direct, rtol=1e-11)


def test_results_do_not_depend_on_chunks():
    """One loss more or less than a chunk, or than the threshold for sampling, changes nothing."""
    rng = np.random.default_rng(0)
    for edge in (_core.CHUNK, 2 * _core.CHUNK, SAMPLE_FROM):
        z = rng.standard_normal(edge + 1)
        for size in (edge - 1, edge, edge + 1):
            wc = worst_case(z[:size], 0.2)
            eta = wc.lam - 2.0 * wc.alpha
            expected = np.maximum(z[:size] - eta, 0.0)
            np.testing.assert_allclose(
                wc.weights, expected / expected.sum(), rtol=1e-12, atol=1e-18
            )
            assert wc.achieved == pytest.approx(0.2, rel=1e-12)


def test_an_unrepresentative_sample_does_no_harm():
    """The first guess comes from every n-th loss: make just these unlike all others."""
    size = 1 << 16
    stride = _core.sample_stride(ChiSquare().core, size)
    assert stride > 1
    for divergence in ALL[:6]:
        z = np.random.default_rng(1).standard_normal(size)
        others = 50.0 * np.random.default_rng(2).standard_normal(size)[::stride]
        for sampled in (100.0, -100.0, others):
            z[::stride] = sampled
            wc = worst_case(z, 0.1, divergence)
            assert wc.gap <= 1e-10 * 300.0
            assert wc.achieved <= 0.1 * (1.0 + 1e-9)
        only = np.zeros(size)
        only[1::stride] = 1.0
        assert worst_case(z, 0.1, divergence, only).gap <= 1e-10 * 300.0


def in_parts(divergence, rho, z, base, blocks):
    """The worst case of losses in blocks, by sweeps whose state is passed on as bytes."""
    edges = [0, *np.cumsum(blocks)]
    parts = [slice(a, b) for a, b in itertools.pairwise(edges)]
    inputs = [(z[part], None if base is None else base[part]) for part in parts]
    surveys, weights = [], [np.empty(part.stop - part.start) for part in parts]
    for losses, b in inputs:
        seen = np.empty((-(-losses.size // _core.CHUNK), 5))
        _core.survey(losses, b, seen)
        surveys.append(seen)
    search = _core.Search(divergence.core, rho, z.size, np.vstack(surveys), (np.inf, 0.0))
    while not search.done:
        sums = []
        for (losses, b), out in zip(inputs, weights, strict=True):
            other = _core.Search(divergence.core, search.state)  # as in another process
            part = np.empty((-(-losses.size // _core.CHUNK), 6))
            other.sweep(losses, b, out, part)
            sums.append(part)
        search.advance(np.vstack(sums))
    return search.answer(), np.concatenate(weights)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("divergence", ALL, ids=name)
def test_sweeps_in_parts_give_the_same_bits(divergence, weighted):
    """Sums over blocks of whole chunks equal those of one call."""
    rng = np.random.default_rng(0)
    chunk = _core.CHUNK
    # The bent φ takes thousands of sweeps: fewer chunks.
    chunks = 3 if divergence is CUSTOM_BENT else 5
    z = rng.exponential(size=chunks * chunk + 100)
    base = rng.exponential(size=z.size) if weighted else None
    out = np.empty(z.size)
    at_once = _core.solve(divergence.core, 0.1, z, base, out)
    inner = (chunks - 2) * chunk
    for blocks in ([z.size], [chunk, inner, chunk + 100], [2 * chunk, inner, 100]):
        answer, weights = in_parts(divergence, 0.1, z, base, blocks)
        assert answer == at_once
        np.testing.assert_array_equal(weights, out)


@pytest.mark.parametrize("divergence", ALL, ids=name)
def test_sums_of_blocks_may_be_joined_first(divergence):
    """The joined sums take the place of those of the chunks, up to rounding."""
    z = np.random.default_rng(0).exponential(size=3 * _core.CHUNK + 100)
    out, seen, parts = np.empty(z.size), np.empty((4, 5)), np.empty((4, 6))
    at_once = _core.solve(divergence.core, 0.1, z, None, out.copy())
    _core.survey(z, None, seen)
    search = _core.Search(divergence.core, 0.1, z.size, seen, (np.inf, 0.0))
    while not search.done:
        search.sweep(z, None, out, parts)
        total = np.empty(6)
        search.join(parts[2:], total)
        search.advance(np.vstack([parts[:2], total]))
    assert search.answer()[1] == pytest.approx(at_once[1], rel=1e-12)
    with pytest.raises(ValueError, match="ended"):
        search.join(parts, total)


def test_a_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match="another size"):
        _core.Search(ChiSquare().core, b"too short")


# -- errors ------------------------------------------------------------------------------------

Z, OUT = np.arange(10.0), np.zeros(10)
CHI2 = ChiSquare().core
LOGISTIC = as_loss("logistic").core
MULTINOMIAL = as_loss("multinomial").core
X = np.arange(12.0).reshape(4, 3)
ROWS = _core.Rows(X)
PLAN = Multilevel(4, batch_size=1).plan
GENERATOR = np.random.default_rng(0).bit_generator.capsule


NO_LEVELS = (np.zeros((0, 0), np.int64), np.zeros(0))
BLOCK = np.array([[0.0, 10.0, 1.0, 0.1]])


def grouped(kind="multilevel", sizes=((1, 1), (3, 3)), q=(1.0,), **changes):
    """A plan for six rows in two groups."""
    groups = {
        "of": np.repeat([0, 1], 3), "shares": np.full(2, 0.5), "members": np.arange(6), **changes,
    }  # fmt: skip
    levels = (np.array(sizes), np.array(q))
    groups = (groups["of"], groups["shares"], groups["members"])
    return _core.Plan(kind, 6, (6, 1.0), (0.1, 0.0, 0.0), 0.0, levels, groups)


def test_plans_of_groups_are_accepted():
    assert grouped().coefficients == [1.0]
    assert grouped("fixed", sizes=[[3, 3]], q=()).coefficients == []


def descent(**changes):
    parts = {
        "objective": (LOGISTIC, CHI2), "l2": 0.0, "plan": PLAN, "rows": ROWS,
        "labels": (np.ones(4), None, None), "columns": (np.zeros(3), np.ones(4)), **changes,
    }  # fmt: skip
    return _core.Descent(**parts)


def run(**changes):
    parts = {
        "generator": GENERATOR, "model": (np.zeros((1, 4)), np.zeros((1, 4))), "anchor": None,
        "steps": (np.ones(3), 1.0, 0.0, 1e9), "tally": _core.Tally(), **changes,
    }  # fmt: skip
    return descent().run(**parts)


def csr(data, indices, indptr, columns):
    return _core.Rows(np.array(data), np.array(indices), np.array(indptr), columns)


def solve_parts(sums):
    seen = np.empty((1, 5))
    _core.survey(Z, None, seen)
    _core.Search(CHI2, 0.1, 10, seen, (np.inf, 0.0)).sweep(Z, None, OUT, sums)


WRONG = {
    "another type": lambda: _core.solve(CHI2, 0.1, Z.astype(np.float32), None, OUT),
    "a list": lambda: _core.solve(CHI2, 0.1, [1.0, 2.0], None, OUT),
    "every second number": lambda: _core.solve(CHI2, 0.1, Z[::2], None, OUT[:5]),
    "a matrix": lambda: _core.solve(CHI2, 0.1, Z.reshape(2, 5), None, OUT),
    "a short output": lambda: _core.solve(CHI2, 0.1, Z, None, OUT[:9]),
    "an output of another type": lambda: _core.solve(CHI2, 0.1, Z, None, OUT.astype(np.float32)),
    "a short base": lambda: _core.solve(CHI2, 0.1, Z, Z[:9], OUT),
    "no losses": lambda: _core.solve(CHI2, 0.1, Z[:0], None, OUT[:0]),
    "a negative radius": lambda: _core.solve(CHI2, -0.1, Z, None, OUT),
    "not a divergence": lambda: _core.solve("chi2", 0.1, Z, None, OUT),
    "an unknown family": lambda: _core.Divergence("chi3", 0.0, 0.0, 1.0, 2.0, False),
    "custom without functions": lambda: _core.Divergence("custom", 0.0, 0.0, 1.0, 2.0, False),
    "few surveys": lambda: _core.survey(np.ones(5000), None, np.empty((1, 5))),
    "few sums": lambda: solve_parts(np.empty((1, 5))),
    "a block beyond the rows": lambda: _core.signed_weights(
        CHI2, Z, None, np.array([[0.0, 11.0, 1.0, 0.1]]), OUT
    ),
    "a block before the rows": lambda: _core.signed_weights(
        CHI2, Z, None, np.array([[-1.0, 5.0, 1.0, 0.1]]), OUT
    ),
    "a block that is not a number": lambda: _core.signed_weights(
        CHI2, Z, None, np.array([[np.nan, 5.0, 1.0, 0.1]]), OUT
    ),
    "few scores": lambda: _core.losses(LOGISTIC, Z[:5], Z, OUT, OUT[:5]),
    "short slopes": lambda: _core.losses(LOGISTIC, Z, Z, OUT, OUT[:5]),
    "an unknown class": lambda: _core.losses(
        MULTINOMIAL, np.zeros(4), np.array([0.0, 2.0]), np.empty(2), np.empty(4)
    ),
    "bends of many scores": lambda: _core.bends(
        MULTINOMIAL, np.zeros(4), np.array([0.0, 1.0]), np.empty(2)
    ),
    "integers as data": lambda: _core.Rows(np.ones((2, 2), dtype=np.int64)),
    "few coefficients": lambda: ROWS.scores(np.zeros((1, 3)), np.empty(4)),
    "few scores of rows": lambda: ROWS.scores(np.zeros((1, 4)), np.empty(3)),
    "few slopes": lambda: ROWS.gradient(None, np.ones(3), np.empty((1, 4))),
    "few weights": lambda: ROWS.gradient(np.ones(3), np.ones(4), np.empty((1, 4))),
    "a row that is not there": lambda: ROWS.moments(np.array([4]), None, None, np.empty((3, 3))),
    "a row before the first": lambda: ROWS.moments(np.array([-1]), None, None, np.empty((3, 3))),
    "scaled rows beyond the last": lambda: ROWS.scaled(
        (np.zeros(3), np.ones(4)), 3, np.ones(2), np.empty((2, 4))
    ),
    "a dense Gram matrix": lambda: ROWS.gram(np.ones(4), np.ones(4), np.empty((4, 4))),
    "a column that is not there": lambda: csr([1.0], [3], [0, 1], 3),
    "a negative column": lambda: csr([1.0], [-1], [0, 1], 3),
    "rows that end too late": lambda: csr([1.0], [0], [0, 2], 3),
    "rows that run backwards": lambda: csr([1.0, 1.0], [0, 1], [0, 2, 1], 3),
    "indices of two types": lambda: _core.Rows(
        np.ones(1), np.zeros(1, np.int32), np.array([0, 1], np.int64), 3
    ),
    "levels that do not halve": lambda: _core.Plan(
        "multilevel", 8, (8, 1.0), (0.1, 0.0, 0.0), 0.0, (np.array([[3], [8]]), np.ones(1))
    ),
    "few probabilities": lambda: _core.Plan(
        "multilevel", 8, (8, 1.0), (0.1, 0.0, 0.0), 0.0, (np.array([[4], [8]]), np.ones(0))
    ),
    "draws larger than the data": lambda: _core.Plan(
        "fixed", 8, (9, 1.0), (0.1, 0.0, 0.0), 0.0, NO_LEVELS
    ),
    "few groups": lambda: grouped(of=np.zeros(5, np.int64)),
    "a group that is not there": lambda: grouped(of=np.array([0, 0, 0, 1, 1, 2])),
    "a negative group": lambda: grouped(of=np.array([0, 0, 0, 1, 1, -1])),
    "a negative share": lambda: grouped(shares=np.array([0.5, -0.5])),
    "a share without rows": lambda: grouped(members=np.array([0, 1, 2])),
    "a member that is not there": lambda: grouped(members=np.array([0, 1, 2, 3, 4, 6])),
    "a negative member": lambda: grouped(members=np.array([-1, 1, 2, 3, 4, 5])),
    "a member twice": lambda: grouped(members=np.array([0, 1, 1, 3, 4, 5])),
    "members in no order": lambda: grouped(members=np.array([0, 3, 1, 2, 4, 5])),
    "groups that do not halve": lambda: grouped(sizes=[[2, 1], [3, 3]]),
    "groups without rows": lambda: grouped(sizes=[[1, 0], [3, 3]]),
    "a block larger than its group": lambda: grouped(sizes=[[2, 1], [4, 2]]),
    "a block that lacks a group": lambda: grouped(sizes=[[1], [3]]),
    "growing groups": lambda: grouped("growing"),
    "a batch of another size": lambda: grouped("fixed", sizes=[[1, 1]], q=()),
    "groups of other rows": lambda: _core.signed_weights(
        CHI2, Z, None, BLOCK, OUT, (np.zeros(9, np.int64), np.ones(1))
    ),
    "unknown groups of rows": lambda: _core.signed_weights(
        CHI2, Z, None, BLOCK, OUT, (np.arange(10), np.ones(9))
    ),
    "weights of other losses": lambda: _core.weigh(CHI2, Z, np.full(10, 0.1), 0.1, np.empty(9)),
    "an output of another size": lambda: _core.sort_down(Z, np.empty(9)),
    "sums of other losses": lambda: _core.tail_sums(Z, np.full(10, 0.1), np.empty((5, 9))),
    "four sums": lambda: _core.tail_sums(Z, np.full(10, 0.1), np.empty((4, 10))),
    "few base weights": lambda: _core.weigh(CHI2, Z, np.full(9, 0.1), 0.1, np.empty(10)),
    "a level that is not there": lambda: _core.draw_level(GENERATOR, PLAN, 3),
    "another capsule": lambda: _core.draw(
        np.random.default_rng(0).bit_generator.seed_seq, PLAN, 0.0
    ),
    "a plan for other rows": lambda: descent(plan=Fixed(5, 2).plan),
    "few labels": lambda: descent(labels=(np.ones(3), None, None)),
    "few weights of labels": lambda: descent(labels=(np.ones(4), np.ones(3), None)),
    "few losses of a reference": lambda: descent(labels=(np.ones(4), None, np.ones(3))),
    "labels without a reference": lambda: descent(labels=(np.ones(4), None)),
    "few scales": lambda: descent(columns=(np.zeros(3), np.ones(3))),
    "scales of sparse columns": lambda: descent(
        rows=csr([1.0], [0], [0, 1, 1, 1, 1], 3), columns=(np.zeros(3), np.full(4, 0.3))
    ),
    "a model of another shape": lambda: run(model=(np.zeros((1, 3)), np.zeros((1, 3)))),
    "two scores of one": lambda: run(model=(np.zeros((2, 4)), np.zeros((2, 4)))),
    "a model that cannot be written": lambda: run(
        model=(frozen(np.zeros((1, 4))), np.zeros((1, 4)))
    ),
    "an anchor of another shape": lambda: run(anchor=(np.zeros((1, 3)), np.zeros((1, 4)))),
}


def frozen(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_calls_raise(call):
    """The core never reads or writes outside the arrays it is given."""
    with pytest.raises((TypeError, ValueError)):
        call()


def test_read_only_data_are_accepted():
    z = frozen(np.arange(10.0))
    np.testing.assert_array_equal(worst_case(z, 0.1).weights, worst_case(z.copy(), 0.1).weights)
    assert _core.solve(CHI2, 0.1, z, frozen(np.ones(10)), OUT)[0] == _core.OK


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize(
    "form", ["C", "F", "reversed", "every second", "transposed slice", "csr", "csr of 64 bits"]
)
def test_passes_over_rows(form, m, dtype):
    """Scores and gradients equal those of NumPy for every layout and type of the data."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 7)).astype(dtype)
    X *= rng.random(X.shape) < 0.5
    data = {
        "C": X,
        "F": np.asfortranarray(X),
        "reversed": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
        "every second": np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
        "transposed slice": np.ascontiguousarray(np.pad(X, ((0, 3), (0, 2))).T).T[:5000, :7],
        "csr": sp.csr_matrix(X),
        "csr of 64 bits": sp.csr_matrix(X),
    }[form]
    if isinstance(data, np.ndarray):
        rows = _core.Rows(data)
    else:
        index = np.int64 if "64" in form else np.int32
        rows = _core.Rows(data.data, data.indices.astype(index), data.indptr.astype(index), 7)
    theta, u = rng.standard_normal((m, 8)), rng.standard_normal((5000, m))
    p = rng.random(5000) * (rng.random(5000) < 0.5)
    full = np.column_stack([X.astype(np.float64), np.ones(5000)])
    f, g = np.empty(5000 * m), np.empty((m, 8))
    for threads in (1, 2):
        rows.scores(theta, f, threads)
        np.testing.assert_allclose(f.reshape(5000, m), full @ theta.T, rtol=1e-12, atol=1e-12)
        rows.gradient(p, u.ravel(), g, threads)
        np.testing.assert_allclose(g, (p[:, None] * u).T @ full, rtol=1e-10, atol=1e-10)
        rows.gradient(None, u.ravel(), g, threads)
        np.testing.assert_allclose(g, u.T @ full, rtol=1e-10, atol=1e-10)


def test_descent_draws_the_same_rows_as_python():
    """The loop and `Method.draw` use one stream of random numbers."""
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    method = Multilevel(4, batch_size=1)
    loop, tally = descent(plan=method.plan), _core.Tally()
    model, steps = (np.zeros((1, 4)), np.zeros((1, 4))), (np.full(20, 0.1), np.inf, 0.0, np.inf)
    loop.run(one.bit_generator.capsule, model, None, steps, tally)
    drawn = sum(method.draw(other, step).indices.size for step in range(20))
    assert tally.samples == drawn
    assert one.bit_generator.state == other.bit_generator.state
