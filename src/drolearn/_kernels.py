"""All compiled code: the inner maximum as sums over fixed chunks.

The inner maximum of losses z with base weights w is

    R = max { Σ p z : Σ w φ(p/w) ≤ ρ, Σ p = 1, p ≥ 0 }.

Its optimum has p = w s(t), t = (z − λ)/α, where s is the inverse of φ' (cut off at zero)
and α, λ are the multipliers of the two constraints.  Every solver below finds them by
*sweeps*: one pass over the data, in chunks of fixed size, that adds up a few numbers, and
one cheap `advance` that turns these numbers into the next guess.  Whoever adds the chunks
up in order (a loop, threads, processes, a cluster) gets the same bits.

    frame  = survey of the losses: scale, largest loss and its mass
    begin  -> [ sweep_range -> gather ]* -> conclude

Losses are seen as d = (z − max z) · 2^e ≤ 0, with e such that the spread of d is about
one: nothing below depends on the size or the offset of the losses, and d keeps its
relative precision next to the largest loss, where the weights are decided.

Numba caches one file at a time and does not see changes in other files, so all compiled
code of the package lives here.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, config, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

# -- the vocabulary shared with Python ------------------------------------------------

CHI2, KL, REVERSE_KL, HELLINGER, JENSEN_SHANNON, CRESSIE_READ, TOTAL_VARIATION, CVAR, CUSTOM = (
    range(9)
)

#: Solved by methods of their own; all others are curves.
PLAIN = (CHI2, KL, TOTAL_VARIATION, CVAR)

#: Losses per chunk. 4096 float64 fill the 32 KiB first-level cache of a core; the number
#: of chunks must not depend on the number of threads, so this never changes at run time.
CHUNK = 4096

#: Radii below this count as zero: D of weights so close to the base is rounding.
TINY = 1e-15

#: From this many losses on, the first guess comes from a regular sample of the losses.
SAMPLE_FROM = 1 << 15

# The answer's status.
OK, NOT_FINITE, NOT_SOLVED = 0, 1, 2

# What the next sweep has to do.
MOMENTS, SEARCH, FILL, DONE = 0.0, 1.0, 2.0, 3.0

# What the optimum looks like.
BASE, PEAK, INNER, LOST = 0.0, 1.0, 2.0, 3.0

# Places in the work array. LEVEL is η − SHIFT for χ², the tilt x of the largest loss for
# curves, the pivot for quantiles; LO and HI bracket the unknown of the outer search.
STATUS, KIND, BETA, LEVEL, LO, HI, NORM, SHIFT, ROUND, DUAL, LAST, KEEP = range(12)
# Bisecting mode of the curve solver: the bracket of x and the sums at its two ends, the best
# feasible and infeasible corners found so far, and the final mixture of up to four points.
XLO, XHI, PHASE, RESIDUAL, RESCALED = range(12, 17)
END_LO, END_HI = 17, 20
CORNER_LO, CORNER_HI = 23, 29
MIX = 35
SUMS = 47
PARTS = 53
WORK = 59

# Beyond this 1/α the weights of all but the largest loss are below the smallest double.
_HUGE = 1e290
# More sweeps than any search should need; nested bisections take thousands.
_PATIENCE = 50_000.0
_INF = math.inf
_EPS = 2.0**-52

# A function without `fastmath` of its own takes over that of whoever compiles it first, so
# each states it: `_exact` keeps the order of operations as written; `_summing` may reorder
# sums (that lets them vectorise) while NaN and infinity keep their meaning; `_element` is
# for what is done to one loss: it becomes part of the loop around it, where a constant
# divergence code leaves one branch, and may compute a·b + c in one step.  Only `_entry` is
# called from Python and kept on disk; the others are compiled into it.
_SUMS: Any = {"reassoc", "contract", "arcp", "nsz"}
_common: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_inner: Any = {**_common, "no_cpython_wrapper": True}
_entry: Any = njit(fastmath=False, cache=True, **_common)
_exact: Any = njit(fastmath=False, **_inner)
_summing: Any = njit(fastmath=_SUMS, **_inner)
_element: Any = njit(fastmath={"contract"}, forceinline=True, **_inner)


class Spec(NamedTuple):
    """A divergence as compiled code sees it.

    `origin` is where the tilt is measured from: t = origin + x.  It is the slope of φ at
    infinity where that is finite (or the slope at zero for steep powers), so that x keeps
    its relative precision where s is very large (or very small).
    """

    code: int
    straight: int  # 1 if φ has straight pieces
    k: float  # the parameter: power of Cressie-Read, level of CVaR
    origin: float
    phi_zero: float
    curvature: float  # φ''(1), or 1.0 where it is unknown
    slope_one: float  # φ'(1) of the user's own φ; zero for all others
    phi: int  # addresses of compiled functions, for the user's own φ
    dphi: int
    inverse: int


class Frame(NamedTuple):
    """What one look at the losses tells."""

    inv: float  # a power of two: d = z·inv − top
    top: float  # the largest loss, scaled
    bottom: float  # the smallest d
    unit: float  # one over the total of the raw base weights
    peak: float  # base mass of the largest loss, ties included
    ceiling: float  # divergence of the base from all mass on the largest loss
    size: int


class Answer(NamedTuple):
    """The solution, apart from the weights, which are written in place.

    Only compiled code returns it to compiled code.  Entries return `fields` of it: Numba makes a
    named tuple for Python by calling Python code without a check for errors, and if Ctrl-C raises
    KeyboardInterrupt there, the process crashes.
    """

    status: int
    value: float
    achieved: float
    alpha: float
    lam: float
    gap: float
    sweeps: int


# -- what Python cannot say: functions by address, and minima that vectorise -----------


def _by_address(typingctx, address, x):
    """Call the C function double(double) at an address known only at run time.

    Functions passed as arguments would be compiled anew in every process.
    """

    def generate(context, builder, signature, args):
        function = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), [args[1]])

    return types.float64(types.int64, types.float64), generate


def _extreme(name):
    """LLVM's minnum or maxnum for numbers other than NaN, which loops can vectorise."""

    def function(typingctx, a, b):
        def generate(context, builder, signature, args):
            double = ir.DoubleType()
            kind = ir.FunctionType(double, [double, double])
            declared = builder.module.declare_intrinsic(name, [double], kind)
            return builder.call(declared, args, fastmath=("nnan", "nsz"))

        return types.float64(types.float64, types.float64), generate

    return function


def _arrive(typingctx, counter):
    """Add one to counter[0], atomically."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "seq_cst")
        return context.get_dummy_value()

    return types.void(counter), generate


def _arrived(typingctx, counter):
    """counter[0], atomically."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.load_atomic(array.data, "seq_cst", 8)

    return types.int64(counter), generate


def _give_way(typingctx, address):
    """Call the C function int() at an address: the system's way to let others run."""

    def generate(context, builder, signature, args):
        function = ir.FunctionType(ir.IntType(32), [])
        builder.call(builder.inttoptr(args[0], function.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _prefetch(typingctx, address):
    """Tell the processor that the cache line at an address will be read soon."""

    def generate(context, builder, signature, args):
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        whole = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, whole, whole, whole])
        name = "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(function, [pointer, whole(0), whole(3), whole(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_call: Any
prefetch: Any
arrive: Any
arrived: Any
give_way: Any
_smaller: Any
_larger: Any
if config.DISABLE_JIT:  # type: ignore[attr-defined]
    _smaller, _larger = min, max

    def _interpreted_call(address, x):
        return ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(x)

    def _unavailable(*_):
        raise RuntimeError("Threads need the compiler: unset NUMBA_DISABLE_JIT.")

    def _no_hurry(address):
        pass

    prefetch = _no_hurry
    _call, arrive, arrived, give_way = _interpreted_call, *([_unavailable] * 3)
else:
    _call, prefetch = intrinsic(_by_address), intrinsic(_prefetch)
    arrive, arrived, give_way = intrinsic(_arrive), intrinsic(_arrived), intrinsic(_give_way)
    _smaller, _larger = intrinsic(_extreme("llvm.minnum")), intrinsic(_extreme("llvm.maxnum"))


# -- elementary functions --------------------------------------------------------------


@_element
def _exp_parts(x):
    """(2ⁿ, e^r − 1) with e^x = 2ⁿ e^r, |r| ≤ log(2)/2, for −708 ≤ x ≤ 708.

    Written with additions, products and shifts only, so that loops over it vectorise (the
    C library's functions do not): n = round(x/log 2) is read off the low bits of
    x/log 2 + 1.5·2⁵², and e^r is its Taylor polynomial of degree 13, whose remainder is
    below 4e-18.
    """
    y = min(max(x, -708.0), 708.0)
    shifted = np.float64(y * 1.4426950408889634 + 6755399441055744.0)
    n = shifted - 6755399441055744.0
    # log 2 in two parts, the first with trailing zeros, so that n·high is exact.
    r = (y - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    bits = np.float64(1.0).view(np.int64) + (shifted.view(np.int64) << np.int64(52))
    return np.int64(bits).view(np.float64), p * r * r + r


@_element
def fast_exp(x):
    """e^x for x ≤ 708 to about one unit in the last place; zero below −708."""
    scale, rest = _exp_parts(x)
    return scale + scale * rest if x >= -708.0 else 0.0


@_element
def fast_expm1(x):
    """e^x − 1 for x ≤ 708, with all its digits next to zero."""
    scale, rest = _exp_parts(x)
    return scale * rest + (scale - 1.0)


@_element
def fast_log(x):
    """Log x for x ≥ 2.3e-308 to about one unit in the last place, vectorisable.

    x = 2ⁿ m with m next to one, and log m = 2 artanh((m − 1)/(m + 1)) by its series, whose
    remainder for √½ ≤ m ≤ √2 is below 3e-17.
    """
    bits = np.float64(x).view(np.int64)
    n = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    m = np.int64(bits - (n << np.int64(52))).view(np.float64)
    # The conversion of n by its place in the low bits of 1.5·2⁵², for the same reason.
    k = np.int64(n + np.int64(0x4338000000000000)).view(np.float64) - 6755399441055744.0
    f = m - 1.0
    q = f / (m + 1.0)
    w = q * q
    p = 0.10526315789473684
    p = p * w + 0.11764705882352941
    p = p * w + 0.13333333333333333
    p = p * w + 0.15384615384615385
    p = p * w + 0.18181818181818182
    p = p * w + 0.2222222222222222
    p = p * w + 0.2857142857142857
    p = p * w + 0.4
    p = p * w + 0.6666666666666666
    # 2q = f − q f: the leading term f is exact.
    return k * 0.693147180369123816490 + (f - q * (f - w * p) + k * 1.90821492927058770002e-10)


@_element
def depth(z, inv, top):
    """D = z·inv − top, at most zero (only rows without mass can lie above the top).

    z·inv is exact, so d is one rounding away from the truth.
    """
    return min(z * inv - top, 0.0)


@_element
def excess(d, shift, level):
    """(d − shift) − level, in this order, whatever the sums around it may be turned into."""
    return (d - shift) - level


@_exact
def phi(spec, s):
    """φ(s) for s ≥ 0."""
    code = spec.code
    if s == 0.0:
        return spec.phi_zero
    if code == CHI2:
        return (s - 1.0) ** 2
    if code == KL:
        return s * math.log(s) - s + 1.0
    if code == REVERSE_KL:
        return s - 1.0 - math.log(s)
    if code == HELLINGER:
        return 0.5 * (math.sqrt(s) - 1.0) ** 2
    if code == JENSEN_SHANNON:
        return 0.5 * (s * math.log(s) - (1.0 + s) * math.log(0.5 * (1.0 + s)))
    if code == CRESSIE_READ:
        k = spec.k
        if k > 0.5:  # exact next to k = 1
            t = math.expm1((k - 1.0) * math.log(s)) / (k - 1.0)
            return (1.0 - s + s * t) / k
        return (math.expm1(k * math.log(s)) / k - (s - 1.0)) / (k - 1.0)  # exact next to k = 0
    if code == TOTAL_VARIATION:
        return 0.5 * abs(s - 1.0)
    if code == CVAR:
        return 0.0 if s <= 1.0 / spec.k else _INF
    return _call(spec.phi, s) - spec.slope_one * (s - 1.0)


@_entry
def phi_of(spec, s):
    """φ(s), for Python."""
    return phi(spec, s)


@_exact
def tilt(spec, s):
    """The x with s(origin + x) = s: φ'(s) − origin, for the divergences solved as curves."""
    code = spec.code
    if code == REVERSE_KL:
        return -1.0 / s
    if code == HELLINGER:
        return -0.5 / math.sqrt(s)
    if code == JENSEN_SHANNON:
        return -0.5 * math.log1p(1.0 / s)
    if code == CRESSIE_READ:
        k = spec.k
        if spec.origin == 0.0:
            return math.expm1((k - 1.0) * math.log(s)) / (k - 1.0)
        return s ** (k - 1.0) / (k - 1.0)
    return _call(spec.dphi, s) - spec.slope_one - spec.origin


@_element
def inverse(spec, x, cap):
    """S at t = origin + x, for the user's own φ: cut to [0, cap]."""
    s = _call(spec.inverse, spec.slope_one + spec.origin + x)
    if s >= cap:
        return cap
    return s if s > 0.0 else 0.0


@_element
def curve(code, spec, x, cap):
    """(s, ds/dt, φ(s)) at t = origin + x.

    The largest loss has s ≤ 1/peak = cap, and s grows with the loss: the cap excludes
    nothing, and gives φ with a finite slope at infinity a finite s everywhere.
    """
    if code == REVERSE_KL:
        s = -1.0 / x
        return s, s * s, s - 1.0 + fast_log(-x)
    if code == HELLINGER:
        q = -0.5 / x
        return q * q, 4.0 * q * q * q, 0.5 * (q - 1.0) * (q - 1.0)
    if code == JENSEN_SHANNON:
        s = fast_exp(2.0 * x) / -fast_expm1(2.0 * x)
        # φ(s) = s t − ½ log((1 + s)/2), as log(2s/(1 + s)) = 2t
        return s, 2.0 * s * (1.0 + s), s * (spec.origin + x) - 0.5 * fast_log(0.5 + 0.5 * s)
    if code == CRESSIE_READ:
        k = spec.k
        step = (k - 1.0) * x
        base = 1.0 + step if spec.origin == 0.0 else step
        positive = base > 1e-300
        safe = base if positive else 1.0
        log = fast_log(safe)
        if spec.origin == 0.0 and safe != 1.0:
            log *= step / (safe - 1.0)  # makes up for the rounding of 1 + step
        log /= k - 1.0
        s = fast_exp(log)
        if k > 0.5:
            value = (1.0 - s + s * (spec.origin + x)) / k
        else:
            value = (fast_expm1(k * log) / k - (s - 1.0)) / (k - 1.0)
        if positive:
            return s, s / safe, value
        return 0.0, 0.0, spec.phi_zero
    s = inverse(spec, x, cap)
    # A one-sided difference is enough for Newton's method: the brackets do the rest.
    h = 1e-7 * (1.0 + abs(x))
    return s, (inverse(spec, x + h, cap) - s) / h, phi(spec, s)


# -- one look at the losses ------------------------------------------------------------


@_summing
def survey(z, b, known):
    """(zero if all are finite, smallest, largest, mass at the largest, mass) of a chunk.

    Rows without mass count only for the first.  The mass at the largest loss is needed only
    where it reaches `known`, a loss seen elsewhere.
    """
    nothing, low, high, peak = 0.0, _INF, -_INF, 0.0
    if b.size == 0:
        for i in range(z.size):
            nothing += z[i] * 0.0
            low = _smaller(low, z[i])
            high = _larger(high, z[i])
        if high >= known:
            for i in range(z.size):
                peak += 1.0 if z[i] == high else 0.0
        return nothing, low, high, peak, float(z.size)
    mass = 0.0
    for i in range(z.size):
        nothing += z[i] * 0.0
        mass += b[i]
    for i in range(z.size):  # a loop of its own: with the sums it would not vectorise
        low = _smaller(low, z[i] if b[i] > 0.0 else _INF)
        high = _larger(high, z[i] if b[i] > 0.0 else -_INF)
    if high >= known:
        for i in range(z.size):
            peak += b[i] if z[i] == high else 0.0
    return nothing, low, high, peak, mass


@_exact
def join_survey(a, b):
    """Add up two surveys."""
    peak = a[3] if a[2] > b[2] else b[3] if b[2] > a[2] else a[3] + b[3]
    return a[0] + b[0], min(a[1], b[1]), max(a[2], b[2]), peak, a[4] + b[4]


@_exact
def survey_range(z, b, first, last, parts):
    """Survey the chunks from `first` up to `last`, a row of `parts` for each."""
    known = -_INF
    for chunk in range(first, last):
        start, stop = chunk * CHUNK, (chunk + 1) * CHUNK
        row = survey(z[start:stop], b[start:stop], known)
        known = max(known, row[2])
        for j in range(5):
            parts[chunk, j] = row[j]


@_exact
def gather_survey(parts):
    """Add up the surveys of all chunks."""
    total = (0.0, _INF, -_INF, 0.0, 0.0)
    for row in parts:
        total = join_survey(total, (row[0], row[1], row[2], row[3], row[4]))
    return total


@_exact
def make_frame(spec, size, surveyed):
    """The scale of the losses, and the divergence at which only the largest is left."""
    low, high, peak, mass = surveyed[1], surveyed[2], surveyed[3], surveyed[4]
    spread = 0.5 * high - 0.5 * low  # halves, as the difference may overflow
    exponent = math.frexp(spread)[1] if spread > 0.0 else 0
    inv = math.ldexp(1.0, -max(min(exponent, 1020), -1020))
    top = high * inv
    peak = min(peak / mass, 1.0)
    ceiling = _INF
    if spec.code != CVAR and spec.phi_zero < _INF:
        ceiling = peak * phi(spec, 1.0 / peak) + (1.0 - peak) * spec.phi_zero
    return Frame(inv, top, low * inv - top, 1.0 / mass, peak, ceiling, size)


# -- sums over one chunk ---------------------------------------------------------------


@_summing
def _chi2_sums(frame, z, b, level, shift):
    """Mass, first and second moment about `shift` of the losses above shift + level.

    The threshold comes in two parts, as it may lie much closer to the mean than to zero.
    """
    mass, first, second = 0.0, 0.0, 0.0
    if b.size == 0:
        for i in range(z.size):
            u = excess(depth(z[i], frame.inv, frame.top), shift, 0.0)
            w = 1.0 if u > level else 0.0
            mass += w
            first += w * u
            second += w * u * u
    else:
        for i in range(z.size):
            u = excess(depth(z[i], frame.inv, frame.top), shift, 0.0)
            w = b[i] if u > level else 0.0
            mass += w
            first += w * u
            second += w * u * u
    return mass, first, second, 0.0, 0.0, 0.0


@_summing
def _kl_sums(frame, z, b, beta):
    """Σ w eˣ xʲ for j = 0, 1, 2, 3 with x = β d."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    weighted = b.size > 0
    for i in range(z.size):
        x = beta * depth(z[i], frame.inv, frame.top)
        e = fast_exp(x)
        if weighted:
            e *= b[i]
        s0 += e
        e *= x
        s1 += e
        e *= x
        s2 += e
        s3 += e * x
    return s0, s1, s2, s3, 0.0, 0.0


@_summing
def _curve_sums(code, spec, frame, z, b, beta, x_top, out):
    """E s, E s d, E φ(s), and E s' yʲ for j = 0, 1, 2, at t = origin + x, x = x_top + β d.

    y is x for powers, which have no digits to lose where s' is large, and d for others.
    Next to the cost of s, writing it down is free: the last of these sweeps leaves the
    weights.
    """
    s0, s1, f, a0, a1, a2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    cap = 1.0 / frame.peak
    weighted = b.size > 0
    power = spec.origin != 0.0
    for i in range(z.size):
        d = depth(z[i], frame.inv, frame.top)
        x = x_top + beta * d
        y = x if power else d
        s, ds, value = curve(code, spec, x, cap)
        if weighted:
            s *= b[i]
            ds *= b[i]
            value *= b[i]
        out[i] = s * frame.unit
        s0 += s
        s1 += s * d
        f += value
        a0 += ds
        ds *= y
        a1 += ds
        a2 += ds * y
    return s0, s1, f, a0, a1, a2


@_summing
def _quantile_sums(frame, z, b, pivot):
    """Mass below, at and above the pivot, and the losses next to it on both sides."""
    below, equal, above = 0.0, 0.0, 0.0
    under, over = -_INF, _INF
    # Two loops, as one of both kinds does not vectorise.
    if b.size == 0:
        for i in range(z.size):
            d = depth(z[i], frame.inv, frame.top)
            below += 1.0 if d < pivot else 0.0
            above += 1.0 if d > pivot else 0.0
        for i in range(z.size):
            d = depth(z[i], frame.inv, frame.top)
            under = _larger(under, d if d < pivot else -_INF)
            over = _smaller(over, d if d > pivot else _INF)
        return below, z.size - below - above, above, under, over, 0.0
    for i in range(z.size):
        d = depth(z[i], frame.inv, frame.top)
        below += b[i] if d < pivot else 0.0
        equal += b[i] if d == pivot else 0.0
        above += b[i] if d > pivot else 0.0
    for i in range(z.size):
        d = depth(z[i], frame.inv, frame.top) if b[i] > 0.0 else pivot
        under = _larger(under, d if d < pivot else -_INF)
        over = _smaller(over, d if d > pivot else _INF)
    return below, equal, above, under, over, 0.0


# -- weights of one chunk --------------------------------------------------------------
# Each returns the mass, the first moment and the divergence of what it wrote, and a term
# of the dual. Rows without mass get exact zeros.


@_summing
def _fill_level(frame, z, b, kind, out):
    """The base itself (BASE), or all mass on the largest loss, shared over ties (PEAK)."""
    mass, first = 0.0, 0.0
    share = frame.unit if kind == BASE else frame.unit / frame.peak
    for i in range(z.size):
        d = depth(z[i], frame.inv, frame.top)
        w = b[i] if b.size > 0 else 1.0
        p = w * share if (kind == BASE or d == 0.0) else 0.0
        out[i] = p
        mass += p
        first += p * d
    return mass, first, 0.0, 0.0, 0.0, 0.0


@_summing
def _fill_chi2(frame, z, b, level, shift, norm, out):
    """p = w (d − η)₊ / norm with η = shift + level."""
    mass, first, divergence = 0.0, 0.0, 0.0
    scale, unit = 1.0 / norm, frame.unit
    if b.size == 0:
        for i in range(z.size):
            d = depth(z[i], frame.inv, frame.top)
            s = max(excess(d, shift, level), 0.0) * scale
            out[i] = s * unit
            mass += s
            first += s * d
            divergence += (s - 1.0) * (s - 1.0)
    else:
        for i in range(z.size):
            d = depth(z[i], frame.inv, frame.top)
            s = max(excess(d, shift, level), 0.0) * scale
            out[i] = b[i] * (s * unit)
            mass += b[i] * s
            first += b[i] * s * d
            divergence += b[i] * (s - 1.0) * (s - 1.0)
    return mass * unit, first * unit, divergence * unit, 0.0, 0.0, 0.0


@_summing
def _fill_kl(frame, z, b, beta, norm, out):
    """P = w exp(β d) / norm."""
    mass, first = 0.0, 0.0
    scale = frame.unit / norm
    weighted = b.size > 0
    for i in range(z.size):
        d = depth(z[i], frame.inv, frame.top)
        p = fast_exp(beta * d) * scale
        if weighted:
            p *= b[i]
        out[i] = p
        mass += p
        first += p * d
    return mass, first, 0.0, 0.0, 0.0, 0.0


@_summing
def _fill_mixture(spec, frame, z, b, work, out):
    """P = w Σⱼ cⱼ s(xⱼ + βⱼ d) over the up to four points j of a mixture."""
    mass, first, divergence = 0.0, 0.0, 0.0
    cap = 1.0 / frame.peak
    for i in range(z.size):
        w = frame.unit * b[i] if b.size > 0 else frame.unit
        d = depth(z[i], frame.inv, frame.top)
        s = 0.0
        for j in range(MIX, MIX + 12, 3):
            if work[j] > 0.0:
                s += work[j] * curve(spec.code, spec, work[j + 2] + work[j + 1] * d, cap)[0]
        s /= work[NORM]
        out[i] = w * s
        mass += w * s
        first += w * s * d
        if w > 0.0:
            divergence += w * phi(spec, s)
    return mass, first, divergence, 0.0, 0.0, 0.0


@_summing
def _fill_quantile(spec, frame, z, b, rho, work, out):
    """Total variation moves mass ρ from the smallest losses to the largest; CVaR keeps
    the largest losses up to a share of `level`. At the pivot, `keep` is left.
    """
    mass, first, divergence, dual = 0.0, 0.0, 0.0, 0.0
    pivot, keep = work[LEVEL], work[KEEP]
    if spec.code == TOTAL_VARIATION:
        high, top = 1.0, 1.0 + rho / frame.peak
    else:
        high = 1.0 / spec.k
        top = high if pivot < 0.0 else keep
    keep, high, top = keep / work[NORM], high / work[NORM], top / work[NORM]
    weighted = b.size > 0
    for i in range(z.size):
        w = frame.unit * b[i] if weighted else frame.unit
        d = depth(z[i], frame.inv, frame.top)
        s = keep if d == pivot else high
        s = 0.0 if d < pivot else s
        s = top if d == 0.0 else s
        out[i] = w * s
        mass += w * s
        first += w * s * d
        divergence += w * abs(s - 1.0)
        dual += w * max(d - pivot, 0.0)
    return mass, first, 0.5 * divergence, dual, 0.0, 0.0


# -- sweeps ----------------------------------------------------------------------------


@_exact
def sweep_range(curves, spec, frame, z_all, b_all, rho, work, out_all, first, last, parts):
    """Do what `work` asks of the chunks from `first` up to `last`: six sums for each.

    `curves` is None for χ², KL, total variation and CVaR and 1 for all others, here and
    below: the compiler leaves out whichever half is not needed, and a first call is faster.
    """
    code, status, kind = spec.code, work[STATUS], work[KIND]
    beta, level = work[BETA], work[LEVEL]
    for chunk in range(first, last):
        start, stop = chunk * CHUNK, (chunk + 1) * CHUNK
        z, b, out = z_all[start:stop], b_all[start:stop], out_all[start:stop]
        row = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        if status == FILL and kind != INNER:
            row = _fill_level(frame, z, b, kind, out)
        elif status == MOMENTS:
            row = _chi2_sums(frame, z, b, level, work[SHIFT])
        elif curves is None:
            if code == CHI2:
                if status == FILL:
                    row = _fill_chi2(frame, z, b, level, work[SHIFT], work[NORM], out)
                else:
                    row = _chi2_sums(frame, z, b, level, work[SHIFT])
            elif code == KL:
                if status == FILL:
                    row = _fill_kl(frame, z, b, beta, work[NORM], out)
                else:
                    row = _kl_sums(frame, z, b, beta)
            elif status == FILL:
                row = _fill_quantile(spec, frame, z, b, rho, work, out)
            else:
                row = _quantile_sums(frame, z, b, level)
        else:
            # The code as a constant: these loops are compiled for one divergence each.
            if status == FILL:
                row = _fill_mixture(spec, frame, z, b, work, out)
            elif code == REVERSE_KL:
                row = _curve_sums(REVERSE_KL, spec, frame, z, b, beta, level, out)
            elif code == HELLINGER:
                row = _curve_sums(HELLINGER, spec, frame, z, b, beta, level, out)
            elif code == JENSEN_SHANNON:
                row = _curve_sums(JENSEN_SHANNON, spec, frame, z, b, beta, level, out)
            elif code == CRESSIE_READ:
                row = _curve_sums(CRESSIE_READ, spec, frame, z, b, beta, level, out)
            else:
                row = _curve_sums(code, spec, frame, z, b, beta, level, out)
        for j in range(6):
            parts[chunk, j] = row[j]


# -- from sums to the next guess -------------------------------------------------------


@_exact
def begin(curves, spec, frame, rho, alpha, lam, work):
    """Settle the cases without a search, or start one.

    α and λ are multipliers found elsewhere, those of a sample, say; an infinite α stands
    for none, and asks for the moments of all losses first.
    """
    work[:SUMS] = 0.0
    work[NORM] = 1.0
    work[KIND] = INNER
    selects = spec.code == TOTAL_VARIATION or spec.code == CVAR
    if frame.bottom == 0.0 or (rho == 0.0 and spec.code != CVAR):
        work[STATUS], work[KIND] = FILL, BASE
        return
    # Radii that differ from the ceiling by rounding have the same answer, to rounding.
    if rho >= frame.ceiling * (1.0 - 1e-14) and spec.code != CVAR:
        work[STATUS], work[KIND] = FILL, PEAK
        return
    alpha, lam = alpha * frame.inv, lam * frame.inv - frame.top
    known = (alpha > 0.0 or spec.code == CVAR) and alpha < _INF and lam < 0.0
    work[STATUS] = SEARCH if known or selects else MOMENTS
    work[HI] = _INF
    work[LEVEL], work[SHIFT] = -_INF, 0.5 * frame.bottom
    if selects:
        work[LO], work[HI] = frame.bottom, 0.0
        work[XLO], work[XHI] = 0.0, 1.0
        target = rho if spec.code == TOTAL_VARIATION else 1.0 - spec.k
        pivot = frame.bottom * (1.0 - target)
        if known:
            pivot = lam - 0.5 * alpha
        work[LEVEL] = max(min(pivot, 0.0), frame.bottom)
    elif known:
        work[BETA] = 1.0 / alpha
        if curves is not None:
            _enter(spec, frame, lam, work)
        elif spec.code == CHI2:
            work[LEVEL] = work[SHIFT] = 0.5 * (lam - 2.0 * alpha)


@_exact
def _open_tilt(spec, frame, work):
    """The largest loss has 1 ≤ s ≤ 1/peak, which brackets its tilt."""
    high = tilt(spec, 1.0 / frame.peak)
    work[XLO] = -spec.origin
    work[XHI] = high + 1e-12 * abs(high)


@_exact
def _set_tilt(work, x):
    """x if it lies in its bracket, else the bracket's middle."""
    if not work[XLO] < x < work[XHI]:
        x = 0.5 * (work[XLO] + work[XHI])
        if work[XHI] < 0.0:  # next to the pole of s at zero, on a log scale
            x = -math.sqrt(work[XLO] * work[XHI])
    work[LEVEL] = x


@_exact
def _enter(spec, frame, lam, work):
    """Start a curve at λ and the β of `work`, or near it if λ lies beyond the pole of s."""
    beta = work[BETA]
    if spec.origin == 0.0:
        _open_tilt(spec, frame, work)
        _set_tilt(work, -lam * beta)
        return
    sign = -1.0 if spec.origin > 0.0 else 1.0
    c = sign * (-lam - spec.origin / beta)
    if not c > 0.0:
        c = 4.0 * frame.peak / beta  # the largest loss then has about a quarter of the mass
    work[LEVEL] = sign * beta * c


@_exact
def _go_bisecting(spec, frame, work):
    _open_tilt(spec, frame, work)
    work[PHASE], work[LO], work[HI] = 1.0, 0.0, _INF
    work[LEVEL] = work[XLO]
    if not 0.0 < work[BETA] < _INF:
        work[BETA] = 1.0


@_exact
def _close_enough(divergence, rho):
    """Relative 1e-12, and what rounding leaves of a sum of numbers next to zero."""
    return abs(divergence - rho) <= 1e-12 * rho + 1e-15


@_exact
def _next(work, value, step):
    """value · e^step if that lies in the bracket, else the bracket's middle on a log scale."""
    lo, hi = work[LO], work[HI]
    trial = value * math.exp(max(min(step, 5.0), -5.0))
    closed = lo > 0.0 and hi < _INF
    every = 8.0 if work[ROUND] < 16.0 else 2.0
    if lo < trial < hi and not (closed and work[ROUND] % every == every - 1.0):
        return trial
    if closed:
        return math.sqrt(lo) * math.sqrt(hi)
    # Without a bracket: a bit beyond the step, or without one further out each time, as the
    # answer may have hundreds of digits.
    factor = math.exp2(min(work[ROUND], 100.0))
    if abs(step) < 1.0:
        factor = math.exp(4.0 * abs(step) + 1e-12)
    return min(value * factor, _HUGE) if hi == _INF else max(value / factor, 1.0 / _HUGE)


@_exact
def _logit_terms(divergence, rho, ceiling):
    """h = log D/(C − D) − log ρ/(C − ρ) and two derivatives in D.

    D grows like β² at first and levels off at C: h is close to linear in log β.
    """
    h, first, second = math.log(divergence / rho), 1.0 / divergence, -1.0 / divergence**2
    if ceiling < _INF:
        room = ceiling - divergence
        h += math.log((ceiling - rho) / room)
        first += 1.0 / room
        second += 1.0 / room**2
    return h, first, second


@_exact
def _beta_of_moments(spec, rho, work):
    """First guess of β = 1/α from the variance: D ≈ β² Var d / (2 φ''(1)) for small ρ."""
    offset = work[SUMS + 1] / work[SUMS]
    variance = work[SUMS + 2] / work[SUMS] - offset * offset
    if variance <= 1e-6 * offset * offset and work[ROUND] < 3.0:
        work[SHIFT] += offset  # once more about the mean: the digits have cancelled
        return 0.0
    work[STATUS] = SEARCH
    return math.sqrt(2.0 * spec.curvature * rho / max(variance, 1e-300))


@_exact
def _advance_moments(spec, frame, rho, work):
    """The first point of a curve."""
    mean = work[SHIFT] + work[SUMS + 1] / work[SUMS]
    work[BETA] = _beta_of_moments(spec, rho, work)
    if work[STATUS] == MOMENTS:
        return
    if spec.straight:
        _go_bisecting(spec, frame, work)
    else:
        _enter(spec, frame, mean, work)


@_exact
def _advance_chi2(frame, rho, work):
    """The next threshold η of p ∝ (d − η)₊.

    On a fixed active set of mass B, mean m and variance v, D = ρ means
    m − η = sqrt(v / (B(1 + ρ) − 1)).  Dropping what falls below η and solving again
    gives a growing sequence of η that never passes the optimum and ends at it.
    """
    mass, shift = work[SUMS] * frame.unit, work[SHIFT]
    offset = work[SUMS + 1] / work[SUMS] if mass > 0.0 else 0.0
    second = work[SUMS + 2] / work[SUMS] if mass > 0.0 else 0.0
    mean, variance = shift + offset, second - offset * offset
    room = mass * (1.0 + rho) - 1.0
    moved = mean - shift
    old = work[LEVEL] - moved  # the threshold that was used, seen from the mean
    work[SHIFT] = mean
    if second > 16.0 * variance and moved != 0.0 and mass > 0.0 and work[ROUND] < 60.0:
        work[LEVEL] = old  # once more about the mean: the digits have cancelled
        return
    if not (variance >= 0.0 and room > 0.0):
        if work[STATUS] == MOMENTS:
            work[STATUS], work[KIND] = FILL, PEAK
        else:  # the guess lay too high
            work[STATUS], work[LEVEL] = MOMENTS, -_INF
        return
    width = math.sqrt(variance / room)
    if variance < 1e-200:  # as good as ties, whose squares vanish: share evenly over them
        width = max(width, 1e-90)
    work[LEVEL] = (offset - moved) - width
    work[NORM] = mass * width
    # The set is settled if it did not change, or if the step is too small to be likely to
    # have changed it; the weights are checked after they are written.
    same = mass == work[LAST] or mean - width < frame.bottom
    if same or abs(work[LEVEL] - old) <= max(3e-7, 2.0 / frame.size) * width:
        work[STATUS] = FILL
    else:
        work[STATUS] = SEARCH
    work[LAST] = mass


@_exact
def _advance_kl(frame, rho, work):
    """Halley's method on log β for K(β) = β ψ'(β) − ψ(β) = ρ, ψ(β) = log Σ w e^(β d)."""
    total = work[SUMS] * frame.unit
    m1, m2, m3 = (
        work[SUMS + 1] / work[SUMS],
        work[SUMS + 2] / work[SUMS],
        work[SUMS + 3] / work[SUMS],
    )
    log_total = math.log(total)
    divergence = m1 - log_total
    work[NORM] = total
    if _close_enough(divergence, rho):
        work[STATUS] = FILL
        return
    if divergence < rho:
        work[LO] = work[BETA]
        if work[BETA] >= _HUGE:
            work[STATUS] = FILL
            return
    else:
        work[HI] = work[BETA]
    step = math.nan
    variance = m2 - m1 * m1
    if variance > 0.0 and 0.0 < divergence < frame.ceiling:
        h, first, second = _logit_terms(divergence, rho, frame.ceiling)
        bend = 2.0 * variance + m3 - 3.0 * m1 * m2 + 2.0 * m1**3
        slope = variance * first
        step = -h / slope
        halley = 1.0 - 0.5 * h * (bend * first + variance**2 * second) / slope**2
        if 0.5 < halley < 2.0:
            step /= halley
        if abs(step) * (1.0 - m1) <= 1e-5:
            # Third order: the next error is below rounding, and so is that of the norm.
            work[BETA] *= math.exp(step)
            work[NORM] = math.exp(log_total + step * (m1 + 0.5 * step * (m1 + variance)))
            work[STATUS] = FILL
            return
    if work[HI] - work[LO] <= 4.0 * _EPS * work[LO]:
        work[STATUS] = FILL
        return
    work[BETA] = min(_next(work, work[BETA], step), _HUGE)


@_exact
def _advance_quantile(spec, frame, rho, work):
    """Close in on the loss at which the target mass lies below (or above)."""
    pivot = work[LEVEL]
    below, equal, above = (
        work[SUMS] * frame.unit,
        work[SUMS + 1] * frame.unit,
        work[SUMS + 2] * frame.unit,
    )
    under, over = work[SUMS + 3], work[SUMS + 4]
    if spec.code == TOTAL_VARIATION:
        target = rho
        too_high, too_low = below > rho, below + equal < rho
        share = (below + equal - rho) / equal if equal > 0.0 else 0.0
    else:
        target = 1.0 - spec.k
        too_high, too_low = above + equal < spec.k, above > spec.k
        share = (spec.k - above) / (equal * spec.k) if equal > 0.0 else 0.0
    # Rounding of the masses can leave nothing on the side that should be searched.
    if (too_high and under == -_INF) or (too_low and over == _INF):
        too_high = too_low = False
    if not (too_high or too_low):
        most = 1.0 if spec.code == TOTAL_VARIATION else 1.0 / spec.k
        work[KEEP] = min(max(share, 0.0), most)
        work[STATUS] = FILL
        return
    if too_high:
        work[HI], work[XHI] = under, below
    else:
        work[LO], work[XLO] = over, below + equal
    lo, hi = work[LO], work[HI]
    turn = work[ROUND] % 4.0
    if turn == 3.0:  # halve the doubles in between: at most 64 times
        middle = (np.float64(-lo).view(np.int64) + np.float64(-hi).view(np.int64)) >> 1
        pivot = -np.int64(middle).view(np.float64)
    elif turn == 2.0 or work[XHI] <= work[XLO]:
        pivot = lo + 0.5 * (hi - lo)
    else:
        part = (target - work[XLO]) / (work[XHI] - work[XLO])
        pivot = lo + part * (hi - lo)
    work[LEVEL] = max(min(pivot, hi), lo)


@_exact
def _lagrangian(spec, rho, beta, x, total, first, divergence):
    """The dual value at the multipliers of (β, x).

    An upper bound on every feasible Σ p d, given that s minimises φ(s) − t s.
    """
    alpha, lam = 1.0 / beta, -(spec.origin + x) / beta
    return first + lam * (1.0 - total) + alpha * (rho - divergence)


@_exact
def _tilt_step(total, slope):
    """Newton's step in x towards E s = 1, on a log scale: s grows like an exponential."""
    if not (slope > 0.0 and slope < _INF and total > 0.0):
        return math.nan
    return -math.log(total) * total / slope


@_exact
def _outer_step(rho, ceiling, divergence, slope):
    """Newton's step in a logarithmic variable in which D has this slope."""
    if slope == 0.0 or not 0.0 < divergence < ceiling:
        return math.nan
    h, first, _ = _logit_terms(divergence, rho, ceiling)
    return -h / (slope * first)


@_exact
def _advance_curve(spec, frame, rho, work):
    """Newton's method on (log β, x) for E s = 1 and E φ(s) = ρ at once.

    Differentiating along E s = 1 gives dD/d log β = β² (E s'd² − (E s'd)²/E s').
    """
    beta, x, unit = work[BETA], work[LEVEL], frame.unit
    total, divergence = work[SUMS] * unit, work[SUMS + 2] * unit
    a0, a1, a2 = work[SUMS + 3] * unit, work[SUMS + 4] * unit, work[SUMS + 5] * unit
    if abs(1.0 - total) <= 2e-13 and _close_enough(divergence, rho):
        work[STATUS] = DONE
        return
    if work[ROUND] > 30.0:
        _go_bisecting(spec, frame, work)
        return
    to_one = _tilt_step(total, a0)
    at_one = divergence + (x * a0 + beta * a1) * to_one
    if not (abs(1.0 - total) < 0.2 and 0.0 < at_one < _INF):  # mend E s first, at this β
        if total < 1.0:
            work[XLO] = x
        else:
            work[XHI] = x
        _set_tilt(work, x + to_one)
        return
    if abs(at_one - divergence) <= 0.1 * abs(at_one - rho):
        if at_one < rho:
            work[LO] = beta
        else:
            work[HI] = beta
    step = _outer_step(rho, frame.ceiling, at_one, beta * beta * (a2 - a1 * a1 / a0))
    new = min(_next(work, beta, step), _HUGE)
    _open_tilt(spec, frame, work)
    move = to_one - (new - beta) * a1 / a0
    bound = 0.75 * ((work[XHI] if move > 0.0 else work[XLO]) - x)
    if abs(move) > abs(bound):  # stay inside the bracket: a shorter step, in β too
        new = beta + (new - beta) * (bound / move)
        move = bound
    work[BETA] = new
    work[LEVEL] = x + move


@_exact
def _advance_bisecting(spec, frame, rho, work):
    """Bisection in β around bisection in x, for φ where Newton's method does not settle.

    Where φ has straight pieces, s jumps: E s = 1 and E φ(s) = ρ then hold only for a
    mixture of the weights on both sides of the jump.  D is convex, so mixing by linear
    interpolation stays inside the ball, and on a straight piece it is exact.
    """
    beta, x, unit = work[BETA], work[LEVEL], frame.unit
    total, first, divergence = (
        work[SUMS] * unit,
        work[SUMS + 1] * unit,
        work[SUMS + 2] * unit,
    )
    end = END_HI if total >= 1.0 else END_LO
    if work[PHASE] == 1.0:
        end = END_LO
    elif work[PHASE] == 2.0:
        end = END_HI
    work[XLO if end == END_LO else XHI] = x
    work[end], work[end + 1], work[end + 2] = total, first, divergence
    if work[PHASE] == 1.0:  # both ends first
        work[PHASE], work[LEVEL] = 2.0, work[XHI]
        return
    xlo, xhi = work[XLO], work[XHI]
    converged = abs(total - 1.0) <= 1e-14
    if not converged and xhi - xlo > 2.0 * _EPS * max(abs(xlo), abs(xhi)):
        newton = x + _tilt_step(total, work[SUMS + 3] * unit)
        good = work[PHASE] > 2.0 and abs(total - 1.0) < 0.25 * work[RESIDUAL]
        work[RESIDUAL] = abs(total - 1.0)
        work[PHASE] = 3.0
        work[LEVEL] = newton if (good and xlo < newton < xhi) else 0.5 * (xlo + xhi)
        return
    # E s = 1 at this β, by a mixture of both ends if need be.
    lo_end, hi_end = END_LO, END_HI
    if converged:
        lo_end = hi_end = end
        xlo = xhi = x
    share = 0.0
    if work[hi_end] > work[lo_end]:
        share = (1.0 - work[lo_end]) / (work[hi_end] - work[lo_end])
        share = max(min(share, 1.0), 0.0)
    mixed = (1.0 - share) * work[lo_end + 2] + share * work[hi_end + 2]
    dual = min(
        _lagrangian(spec, rho, beta, xlo, work[lo_end], work[lo_end + 1], work[lo_end + 2]),
        _lagrangian(spec, rho, beta, xhi, work[hi_end], work[hi_end + 1], work[hi_end + 2]),
    )
    corner = CORNER_LO if mixed <= rho else CORNER_HI
    work[corner], work[corner + 1], work[corner + 2] = beta, xlo, xhi
    work[corner + 3], work[corner + 4], work[corner + 5] = share, mixed, dual
    work[LO if corner == CORNER_LO else HI] = beta
    lo, hi = work[LO], work[HI]
    closed = lo > 0.0 and hi < _INF and hi - lo <= 2.0 * _EPS * hi
    if _close_enough(mixed, rho) or closed or (beta >= _HUGE and mixed <= rho):
        _mix(rho, work, corner, closed)
        work[STATUS] = FILL
        return
    work[BETA] = _next(work, beta, math.nan)
    _open_tilt(spec, frame, work)
    work[PHASE], work[LEVEL] = 1.0, work[XLO]


@_exact
def _mix(rho, work, corner, closed):
    """Weights of the feasible and the infeasible corner such that D ≤ ρ."""
    share = 0.0 if corner == CORNER_LO else 1.0
    work[DUAL] = work[corner + 5]
    if closed:
        below, above = work[CORNER_LO + 4], work[CORNER_HI + 4]
        share = (rho - below) / (above - below)
        work[DUAL] = min(work[CORNER_LO + 5], work[CORNER_HI + 5])
    for side in range(2):
        place = CORNER_LO if side == 0 else CORNER_HI
        part = 1.0 - share if side == 0 else share
        mix = MIX + 6 * side
        work[mix], work[mix + 3] = part * (1.0 - work[place + 3]), part * work[place + 3]
        work[mix + 1] = work[mix + 4] = work[place]
        work[mix + 2], work[mix + 5] = work[place + 1], work[place + 2]
    work[BETA], work[LEVEL] = work[corner], work[corner + 1]


@_exact
def _advance_power(spec, frame, rho, work):
    """Newton's method on (log c, log β), where x = β d ± β c.

    For these φ, s is a power of x, or close to one: it has a pole or a zero at a distance c
    from the largest loss.  Scaling β at fixed c then scales s, and E s = 1 is one step
    away; what remains is one equation for c, from ∞ (ρ = 0) down to 0 (the largest loss).
    """
    beta, x, unit = work[BETA], work[LEVEL], frame.unit
    total, divergence = work[SUMS] * unit, work[SUMS + 2] * unit
    a0, a1, a2 = work[SUMS + 3] * unit, work[SUMS + 4] * unit, work[SUMS + 5] * unit
    c = abs(x) / beta
    off = abs(1.0 - total)
    if off <= 2e-13:
        at_end = c <= 1.0 / _HUGE and divergence < rho
        if at_end or _close_enough(divergence, rho):
            work[STATUS] = DONE
            return
    if work[ROUND] > 100.0:
        _go_bisecting(spec, frame, work)
        return
    # In log β, where x scales, E s and D have slopes E s'x and E t s'x.
    to_one = max(min(-math.log(total) * total / a1, 5.0), -5.0)
    at_one = divergence + (spec.origin * a1 + a2) * to_one
    if not (abs(1.0 - total) < 0.2 and 0.0 < at_one < _INF):  # mend E s first, at this c
        work[BETA] = min(beta * math.exp(to_one), _HUGE)
        work[LEVEL] = math.copysign(c * work[BETA], x)
        return
    if off <= 1e-9 and abs(at_one - rho) <= 1e-12 * rho:
        # Losses with too few digits between them for E s = 1: divide by E s instead.
        work[MIX], work[MIX + 1], work[MIX + 2], work[NORM] = 1.0, beta, x, total
        work[DUAL] = _lagrangian(spec, rho, beta, x, total, work[SUMS + 1] * unit, divergence)
        work[STATUS], work[PHASE] = FILL, 1.0
        return
    if off <= 1e-6 and off * off <= 0.01 * abs(at_one - rho):  # the sign is certain
        corner = CORNER_LO if at_one < rho else CORNER_HI
        work[HI if at_one < rho else LO] = c
        work[corner], work[corner + 1], work[corner + 2] = beta, x, x
        work[corner + 3], work[corner + 4] = 0.0, at_one
        work[corner + 5] = _lagrangian(spec, rho, beta, x, total, work[SUMS + 1] * unit, divergence)
        if work[LO] > work[HI]:  # rounding can put them the wrong way round
            work[LO], work[HI] = 0.0, _INF
        elif 0.0 < work[HI] - work[LO] <= 4.0 * _EPS * work[LO]:
            # Steep powers: one more bit of c moves D across ρ. A mixture lies in between.
            _mix(rho, work, corner, True)
            work[STATUS], work[PHASE] = FILL, 1.0
            return
    follow = -x * a0 / a1  # d log β / d log c along E s = 1
    slope = x * (a1 - a2 * a0 / a1)
    step = _outer_step(rho, frame.ceiling, at_one, slope)
    new = max(_next(work, c, step), 1.0 / _HUGE)
    work[BETA] = min(beta * math.exp(to_one + follow * math.log(new / c)), _HUGE)
    work[LEVEL] = math.copysign(new * work[BETA], x)


@_exact
def _check_fill(spec, rho, work):
    """Whether the weights sum to one and, for χ², lie on the ball as predicted."""
    work[STATUS] = DONE
    mass = work[SUMS]
    if work[KIND] != INNER or work[RESCALED] == 1.0:
        return
    right = abs(mass - 1.0) <= 1e-9 and _close_enough(work[SUMS + 2], rho)
    right |= work[LEVEL] > -1e-80  # shared evenly over what is as good as ties
    if spec.code == CHI2 and not right and work[ROUND] < 60.0:
        work[STATUS] = SEARCH  # the active set was a prediction
        return
    if abs(mass - 1.0) > 2e-13:
        # Losses with few digits between them leave the norm with fewer than it needs.
        work[NORM] *= mass
        work[RESCALED] = 1.0
        work[STATUS] = FILL


@_exact
def advance(curves, spec, frame, rho, work):
    """Turn the sums of a sweep into what the next sweep has to do."""
    work[ROUND] += 1.0
    if work[ROUND] > _PATIENCE:
        work[STATUS], work[KIND] = DONE, LOST
    elif work[STATUS] == FILL:
        _check_fill(spec, rho, work)
    elif curves is None:
        if spec.code == CHI2:
            _advance_chi2(frame, rho, work)
        elif spec.code == KL:
            if work[STATUS] == MOMENTS:
                work[BETA] = _beta_of_moments(spec, rho, work)
            else:
                _advance_kl(frame, rho, work)
        else:
            _advance_quantile(spec, frame, rho, work)
    else:
        if work[STATUS] == MOMENTS:
            _advance_moments(spec, frame, rho, work)
        elif work[PHASE] > 0.0:
            _advance_bisecting(spec, frame, rho, work)
        elif spec.origin != 0.0:
            _advance_power(spec, frame, rho, work)
        else:
            _advance_curve(spec, frame, rho, work)


@_entry
def is_curved(spec):
    return spec.code not in PLAIN


@_exact
def multipliers(spec, frame, work):
    """(α, λ) in units of d."""
    if work[KIND] == PEAK:
        return 0.0, 0.0
    if work[KIND] == BASE:
        return (_INF, work[SUMS + 1]) if frame.bottom < 0.0 else (0.0, 0.0)
    if spec.code == CHI2:
        return 0.5 * work[NORM], work[SHIFT] + (work[LEVEL] + work[NORM])
    if spec.code == KL:
        return 1.0 / work[BETA], math.log(work[NORM]) / work[BETA]
    if spec.code == TOTAL_VARIATION:
        return -work[LEVEL], 0.5 * work[LEVEL]
    if spec.code == CVAR:
        return 0.0, work[LEVEL]
    return 1.0 / work[BETA], -(spec.origin + spec.slope_one + work[LEVEL]) / work[BETA]


@_exact
def conclude(spec, frame, rho, work):
    """Value, divergence and duality gap of the weights written by the last sweep."""
    mass, first, divergence, dual = work[SUMS], work[SUMS + 1], work[SUMS + 2], work[SUMS + 3]
    if is_curved(spec) and work[KIND] == INNER and work[PHASE] == 0.0:
        # The weights are those of a search, whose sums are of raw base weights.
        mass, first, divergence = mass * frame.unit, first * frame.unit, divergence * frame.unit
    alpha, lam = multipliers(spec, frame, work)
    value = first / mass
    if work[KIND] == BASE:
        divergence, dual = 0.0, value
    elif work[KIND] == PEAK:
        divergence, dual, value = frame.ceiling, 0.0, 0.0
    elif spec.code == CHI2:
        # With s = (d − η)₊/(2α): α φ*(t) = α (s² − 1), so the dual is η + α (2 + ρ + D).
        dual = work[SHIFT] + (work[LEVEL] + alpha * (2.0 + rho + divergence))
    elif spec.code == KL:
        divergence = max(work[BETA] * value - math.log(work[NORM]), 0.0)
        dual = alpha * rho + lam
    elif spec.code == TOTAL_VARIATION:
        dual += alpha * rho + work[LEVEL]
    elif spec.code == CVAR:
        divergence, dual = 0.0, lam + dual / spec.k
    elif work[PHASE] > 0.0:
        dual = work[DUAL]
    else:
        dual = _lagrangian(spec, rho, work[BETA], work[LEVEL], mass, first, divergence)
    inv, top = frame.inv, frame.top
    gap = max(dual - value, 0.0)
    # Only a φ that is not what it says, or base weights beyond all proportion, can get here
    # with weights outside the ball, or with a gap to speak of.
    scale = -frame.bottom
    right = divergence <= rho * (1.0 + 1e-6) + 1e-12 and abs(mass - 1.0) <= 1e-9
    # In small balls α is large, and rounding of the dual is of its size.
    right &= -1e-9 * scale - 1e-15 * alpha <= dual - value <= 1e-6 * scale
    return Answer(
        OK if right and work[KIND] != LOST else NOT_SOLVED,
        (top + value) / inv,
        divergence,
        alpha / inv,
        (top + lam) / inv,
        gap / inv,
        int(work[ROUND]),
    )


# -- the loop --------------------------------------------------------------------------


@_exact
def gather(curves, spec, frame, rho, work, parts):
    """Add up the sums of all chunks, in order, and decide what comes next."""
    selecting = work[STATUS] == SEARCH and (spec.code == TOTAL_VARIATION or spec.code == CVAR)
    work[SUMS : SUMS + 6] = 0.0
    if selecting:
        work[SUMS + 3], work[SUMS + 4] = -_INF, _INF
    for row in parts:
        work[SUMS] += row[0]
        work[SUMS + 1] += row[1]
        work[SUMS + 2] += row[2]
        if selecting:
            work[SUMS + 3] = max(work[SUMS + 3], row[3])
            work[SUMS + 4] = min(work[SUMS + 4], row[4])
        else:
            work[SUMS + 3] += row[3]
            work[SUMS + 4] += row[4]
            work[SUMS + 5] += row[5]
    advance(curves, spec, frame, rho, work)


@_entry
def chunk_count(size):
    return (size + CHUNK - 1) // CHUNK


@_entry
def sample_stride(spec, size):
    """Every how many losses a first guess is made from; zero if it is not worth it."""
    if size < SAMPLE_FROM or (spec.straight and spec.code == CUSTOM):
        return 0
    return size // (SAMPLE_FROM // 4)


@_exact
def _solve(curves, spec, z, b, rho, work, out):
    """Survey, begin, sweep until done, conclude.

    Many losses are solved twice: first a regular sample of them, whose multipliers are
    within a percent or so of the right ones, then all of them.
    """
    rho = 0.0 if rho < TINY else rho
    stride = sample_stride(spec, z.size)
    answer = Answer(OK, 0.0, 0.0, _INF, 0.0, 0.0, 0)
    for last in range(stride == 0, 2):
        losses, base, weights = z, b, out
        if not last:
            size = (z.size + stride - 1) // stride
            losses, weights = np.empty(size), np.empty(size)
            base = np.empty(min(size, b.size))
            for i in range(size):
                losses[i] = z[i * stride]
            for i in range(base.size):
                base[i] = b[i * stride]
        chunks = chunk_count(losses.size)
        # One chunk needs no memory of its own: blocks of a few losses come by the billion.
        parts = work[PARTS : PARTS + 6].reshape((1, 6)) if chunks == 1 else np.empty((chunks, 6))
        survey_range(losses, base, 0, chunks, parts)
        surveyed = gather_survey(parts)
        if surveyed[0] != 0.0:
            return Answer(NOT_FINITE, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
        if surveyed[4] == 0.0:  # a sample without any mass
            continue
        frame = make_frame(spec, losses.size, surveyed)
        begin(curves, spec, frame, rho, answer.alpha, answer.lam, work)
        while work[STATUS] != DONE:
            sweep_range(curves, spec, frame, losses, base, rho, work, weights, 0, chunks, parts)
            gather(curves, spec, frame, rho, work, parts)
        answer = conclude(spec, frame, rho, work)
    return answer


@_exact
def fields(answer):
    """An `Answer` as a plain tuple."""
    return (
        answer.status,
        answer.value,
        answer.achieved,
        answer.alpha,
        answer.lam,
        answer.gap,
        answer.sweeps,
    )


@_entry
def solve_plain(spec, z, b, rho, work, out):
    """`solve` for χ², KL, total variation and CVaR."""
    return fields(_solve(None, spec, z, b, rho, work, out))


@_entry
def solve_curve(spec, z, b, rho, work, out):
    """`solve` for all other divergences."""
    return fields(_solve(1, spec, z, b, rho, work, out))


@_entry
def solve(spec, z, b, rho, work, out):
    """Write the worst-case weights of the losses z into `out`; the fields of an `Answer`.

    z, out: contiguous float64 arrays of one length; b: raw base weights, or an array of
    length zero for equal weights; work: WORK float64 numbers of scratch space.
    """
    if is_curved(spec):
        return solve_curve(spec, z, b, rho, work, out)
    return solve_plain(spec, z, b, rho, work, out)


# -- the loop, shared by threads -------------------------------------------------------


@_exact
def _meet(counter, goal, pause):
    """Wait until all threads have come here; `goal` counts all arrivals so far."""
    arrive(counter)
    spins = 0
    while arrived(counter) < goal:
        spins += 1
        if spins > 10_000:  # some ten microseconds: others may need this processor
            give_way(pause)


@_exact
def _solve_shared(
    curves, spec, z, b, rho, alpha, lam, work, out, parts, counter, pause, rank, threads
):
    """The part of one of several threads in solving the same problem.

    Each sweeps its own chunks; the first decides, between two meetings, what comes next.
    α and λ are those of a sample, see `begin`; `counter` is one zero to count meetings by,
    `pause` the address of the system's function to give way to other threads.
    """
    rho = 0.0 if rho < TINY else rho
    chunks = parts.shape[0]
    first, last = chunks * rank // threads, chunks * (rank + 1) // threads
    survey_range(z, b, first, last, parts)
    goal = threads
    _meet(counter, goal, pause)
    surveyed = gather_survey(parts)
    if surveyed[0] != 0.0:
        return Answer(NOT_FINITE, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    frame = make_frame(spec, z.size, surveyed)
    if rank == 0:
        begin(curves, spec, frame, rho, alpha, lam, work)
    goal += threads
    _meet(counter, goal, pause)
    while work[STATUS] != DONE:
        sweep_range(curves, spec, frame, z, b, rho, work, out, first, last, parts)
        goal += threads
        _meet(counter, goal, pause)
        if rank == 0:
            gather(curves, spec, frame, rho, work, parts)
        goal += threads
        _meet(counter, goal, pause)
    return conclude(spec, frame, rho, work)


@_entry
def share_plain(spec, z, b, rho, alpha, lam, work, out, parts, counter, pause, rank, threads):
    """`solve_plain` for one of several threads."""
    answer = _solve_shared(
        None, spec, z, b, rho, alpha, lam, work, out, parts, counter, pause, rank, threads
    )
    return fields(answer)


@_entry
def share_curve(spec, z, b, rho, alpha, lam, work, out, parts, counter, pause, rank, threads):
    """`solve_curve` for one of several threads."""
    answer = _solve_shared(
        1, spec, z, b, rho, alpha, lam, work, out, parts, counter, pause, rank, threads
    )
    return fields(answer)


# -- losses of single examples ---------------------------------------------------------

LOGISTIC, SQUARED_HINGE, SMOOTHED_HINGE, SQUARED, HUBER, OWN, MULTINOMIAL = range(7)


class LossSpec(NamedTuple):
    """A loss as compiled code sees it: a function of the margin y·f or the residual f − y."""

    code: int
    residual: int  # 1 if it looks at f − y, 0 if at y·f
    k: float  # the parameter: width of the bend
    value: int  # addresses of compiled functions, for the user's own loss
    slope: int


@_element
def _logistic(x):
    """log(1 + e⁻ˣ) and its slope −1/(1 + eˣ), with all digits on both sides."""
    e = fast_exp(-abs(x))
    s = 1.0 + e
    # log(1 + e) = log s + (e − (s − 1))/s: what the sum has rounded away comes back.
    value = fast_log(s) + (e - (s - 1.0)) / s
    return value + max(-x, 0.0), -(e if x > 0.0 else 1.0) / s


@_element
def _squared_hinge(x):
    u = max(1.0 - x, 0.0)
    return u * u, -2.0 * u


@_element
def _smoothed_hinge(x, k):
    """0 from x = 1 on, slope −1 below 1 − k, a parabola in between."""
    u = max(1.0 - x, 0.0)
    v = min(u, k)
    return v * v / (2.0 * k) + (u - v), -v / k


@_element
def _squared(x):
    return 0.5 * x * x, x


@_element
def _huber(x, k):
    v = min(max(x, -k), k)
    return 0.5 * v * v + k * (abs(x) - abs(v)), v


@_exact
def _own(spec, x):
    return _call(spec.value, x), _call(spec.slope, x)


@_exact
def _one_loss(spec, x):
    """Value and slope at a margin or residual x."""
    if spec.code == LOGISTIC:
        return _logistic(x)
    if spec.code == SQUARED_HINGE:
        return _squared_hinge(x)
    if spec.code == SMOOTHED_HINGE:
        return _smoothed_hinge(x, spec.k)
    if spec.code == SQUARED:
        return _squared(x)
    if spec.code == HUBER:
        return _huber(x, spec.k)
    return _own(spec, x)


@_exact
def _softmax_losses(f, y, z, slope):
    """log Σ exp f − f_y and its gradient softmax(f) − e_y; y holds the places of the classes."""
    m = f.size // z.size
    for n in range(z.size):
        row, out = f[n * m : (n + 1) * m], slope[n * m : (n + 1) * m]
        top = row[0]
        for c in range(1, m):
            top = max(top, row[c])
        total = 0.0
        for c in range(m):
            out[c] = math.exp(row[c] - top)
            total += out[c]
        own = int(y[n])
        z[n] = math.log(total) + (top - row[own])
        for c in range(m):
            out[c] /= total
        out[own] -= 1.0


@_exact
def losses(spec, f, y, z, slope):
    """The losses z of scores f, and their slopes in f.  f and slope: m numbers for each row."""
    code = spec.code
    if code == MULTINOMIAL:
        _softmax_losses(f, y, z, slope)
    elif spec.residual:
        for n in range(z.size):
            z[n], slope[n] = _one_loss(spec, f[n] - y[n])
    elif code == LOGISTIC:  # a loop of its own vectorises
        for n in range(z.size):
            value, derivative = _logistic(f[n] * y[n])
            z[n] = value
            slope[n] = derivative * y[n]
    else:
        for n in range(z.size):
            value, derivative = _one_loss(spec, f[n] * y[n])
            z[n] = value
            slope[n] = derivative * y[n]


@_entry
def losses_of(spec, f, y, z, slope):
    """`losses`, for Python."""
    losses(spec, f, y, z, slope)


@_entry
def loss_at(spec, x):
    """Value and slope at a margin or residual x, for Python."""
    return _one_loss(spec, x)


@_entry
def bends_of(spec, f, y, out):
    """The second derivative of each loss in its score (of losses of one score)."""
    for n in range(out.size):
        x = f[n] - y[n] if spec.residual else f[n] * y[n]
        if spec.code == LOGISTIC:
            e = fast_exp(-abs(x))
            out[n] = e / ((1.0 + e) * (1.0 + e))
        elif spec.code == SQUARED_HINGE:
            out[n] = 2.0 if x < 1.0 else 0.0
        elif spec.code == SMOOTHED_HINGE:
            out[n] = 1.0 / spec.k if 1.0 - spec.k <= x < 1.0 else 0.0
        elif spec.code == SQUARED:
            out[n] = 1.0
        elif spec.code == HUBER:
            out[n] = 1.0 if abs(x) <= spec.k else 0.0
        else:
            step = 6e-6 * (1.0 + abs(x))
            rise = _call(spec.slope, x + step) - _call(spec.slope, x - step)
            out[n] = max(rise / (2.0 * step), 0.0)


# -- second order: how the worst-case weights follow the losses ------------------------


@_exact
def _flex(spec, s):
    """1/φ''(s): how fast s follows its tilt; zero where it is held by a straight piece."""
    code = spec.code
    if s <= 0.0 or spec.straight:
        return 0.0
    if code == CHI2:
        return 0.5
    if code == KL:
        return s
    if code == REVERSE_KL:
        return s * s
    if code == HELLINGER:
        return 4.0 * s * math.sqrt(s)
    if code == JENSEN_SHANNON:
        return 2.0 * s * (1.0 + s)
    if code == CRESSIE_READ:
        return s ** (2.0 - spec.k)
    step = 1e-5 * s
    rise = _call(spec.dphi, s + step) - _call(spec.dphi, s - step)
    return 2.0 * step / rise if rise > 0.0 else 0.0


@_entry
def second_order(spec, z, p, b, alpha, lam, slope, bend, h, first, second):
    """What the Hessian of the robust loss needs, from losses z and their weights p.

    The robust loss is the minimum over α and λ of a function that is jointly convex in
    them and the scores f; eliminating both gives, with v = b s'(t)/α and t = (z − λ)/α,

        diag(p l'' + v l'²) − C M⁻¹ Cᵀ,   C = [v l', v t l'],   M = [Σv, Σvt; Σvt, Σvt²].

    Writes the diagonal to `h`, the columns of C to `first` and `second`; returns M.
    """
    total = 0.0
    for n in range(b.size):
        total += b[n]
    aa, ab, bb = 0.0, 0.0, 0.0
    for n in range(z.size):
        own = 1.0 / z.size if b.size == 0 else b[n] / total
        v, t = 0.0, 0.0
        if own > 0.0 and alpha < _INF:
            v = own * _flex(spec, p[n] / own) / alpha
            t = (z[n] - lam) / alpha
        h[n] = p[n] * bend[n] + v * slope[n] * slope[n]
        first[n] = v * slope[n]
        second[n] = v * t * slope[n]
        aa += v
        ab += v * t
        bb += v * t * t
    return aa, ab, bb


@_entry
def follow(spec, t, cap, s, rise):
    """Write s(t) = (φ')⁻¹(t), at most `cap`, and its slope."""
    for i in range(t.size):
        if spec.code == CHI2:
            value, slope = max(1.0 + 0.5 * t[i], 0.0), 0.5
        elif spec.code == KL:
            value = math.exp(min(t[i], 700.0))
            slope = value
        else:
            x = t[i] - spec.origin
            value, slope = cap, 0.0
            if spec.origin <= 0.0 or x < 0.0:  # else beyond the slope of φ at infinity
                value, slope, _ = curve(spec.code, spec, x, cap)
        inside = 0.0 < value < cap
        s[i] = min(value, cap)
        rise[i] = slope if inside else 0.0


# -- rows of data: dense, or compressed sparse rows ------------------------------------

# One of X and csr is None; numba leaves out what is only for arguments that are not None.


class CSR(NamedTuple):
    """A scipy.sparse matrix in its own three arrays."""

    data: Any
    indices: Any
    indptr: Any


@_exact
def _send_for(X, csr, rows):
    """Have the first cache lines of some rows brought in: at random they come late."""
    if X is not None:  # noqa: SIM102
        if X.strides[1] == X.itemsize:
            width = min(X.shape[1] * X.itemsize, 256)
            for i in rows:
                start = X.ctypes.data + i * X.strides[0]
                for line in range(0, width, 64):
                    prefetch(start + line)
    if csr is not None:
        indptr, columns, values = csr.indptr, csr.indices, csr.data
        for i in rows:
            first, last = np.int64(indptr[i]), np.int64(indptr[i + 1])
            last = min(last, first + 256)
            start = columns.ctypes.data + first * columns.itemsize
            for line in range(0, (last - first) * columns.itemsize, 64):
                prefetch(start + line)
            start = values.ctypes.data + first * values.itemsize
            for line in range(0, (last - first) * values.itemsize, 64):
                prefetch(start + line)


@_summing
def row_score(X, csr, i, w):
    """The scalar product of row i and w; the last of w is the intercept."""
    total = 0.0
    if X is not None:
        row = X[i]
        for j in range(row.size):
            total += row[j] * w[j]
    if csr is not None:
        first, last = csr.indptr[i], csr.indptr[i + 1]
        values, columns = csr.data[first:last], csr.indices[first:last]
        for j in range(values.size):
            total += values[j] * w[np.uint64(columns[j])]
    return total + w[w.size - 1]


@_summing
def add_row(X, csr, i, u, g):
    """g += u · (row i, 1)."""
    if X is not None:
        row = X[i]
        for j in range(row.size):
            g[j] += u * row[j]
    if csr is not None:
        first, last = csr.indptr[i], csr.indptr[i + 1]
        values, columns = csr.data[first:last], csr.indices[first:last]
        for j in range(values.size):
            g[np.uint64(columns[j])] += u * values[j]
    g[g.size - 1] += u


@_entry
def scores_range(X, csr, theta, first, last, f):
    """f = X θ for rows first to last."""
    m = theta.shape[0]
    if X is not None:  # noqa: SIM102 - numba leaves it out only if it stands alone
        if X.strides[0] < X.strides[1]:  # column after column in memory: read it that way
            for c in range(m):
                w = theta[c]
                for i in range(first, last):
                    f[i * m + c] = w[w.size - 1]
                for j in range(X.shape[1]):
                    column = X[first:last, j]
                    for i in range(column.size):
                        f[(first + i) * m + c] += w[j] * column[i]
            return
    for i in range(first, last):
        for c in range(m):
            f[i * m + c] = row_score(X, csr, i, theta[c])


@_entry
def gradient_range(X, csr, u, first, last, g):
    """g = Xᵀu over rows first to last; the last column of g is that of the intercept."""
    m = g.shape[0]
    g[:] = 0.0
    if X is not None:  # noqa: SIM102
        if X.strides[0] < X.strides[1]:
            for c in range(m):
                for j in range(X.shape[1]):
                    column = X[first:last, j]
                    total = 0.0
                    for i in range(column.size):
                        total += column[i] * u[(first + i) * m + c]
                    g[c, j] = total
                for i in range(first, last):
                    g[c, g.shape[1] - 1] += u[i * m + c]
            return
    for i in range(first, last):
        for c in range(m):
            if u[i * m + c] != 0.0:
                add_row(X, csr, i, u[i * m + c], g[c])


@_entry
def scaled_rows(X, first, last, mean, scale, root, out):
    """out = root · (X − mean) · scale for rows first to last, and root in the last column.

    `root` and `out` are those of these rows only.
    """
    d = X.shape[1]
    for i in range(last - first):
        row, to = X[first + i], out[i]
        for j in range(d):
            to[j] = root[i] * ((row[j] - mean[j]) * scale[j])
        to[d] = root[i]


@_entry
def gram_sparse(csr, h, first, last, scale, out):
    """out += Σ h (x·scale, 1)(x·scale, 1)ᵀ, its lower half, over rows first to last."""
    d = out.shape[0] - 1
    for i in range(first, last):
        if h[i] == 0.0:
            continue
        start, stop = csr.indptr[i], csr.indptr[i + 1]
        for a in range(start, stop):
            j = csr.indices[a]
            v = h[i] * csr.data[a] * scale[j]
            out[d, j] += v
            for b in range(start, a + 1):
                k = csr.indices[b]
                out[max(j, k), min(j, k)] += v * csr.data[b] * scale[k]
        out[d, d] += h[i]


@_entry
def column_moments(X, csr, base, rows, d):
    """Sum, sum of squares and largest size of each column over some rows, by their weights."""
    total, square, largest = np.zeros(d), np.zeros(d), np.zeros(d)
    for i in rows:
        b = base[i] if base.size > 0 else 1.0
        if b == 0.0:
            continue
        if X is not None:
            row = X[i]
            for j in range(d):
                x = np.float64(row[j])
                total[j] += b * x
                square[j] += b * x * x
                largest[j] = max(largest[j], abs(x))
        if csr is not None:
            for a in range(csr.indptr[i], csr.indptr[i + 1]):
                x, j = np.float64(csr.data[a]), csr.indices[a]
                total[j] += b * x
                square[j] += b * x * x
                largest[j] = max(largest[j], abs(x))
    return total, square, largest


@_entry
def centred_moments(X, base, rows, mean):
    """Sum of squares and largest size of each column about its mean over some rows."""
    d = mean.size
    square, largest = np.zeros(d), np.zeros(d)
    for i in rows:
        b = base[i] if base.size > 0 else 1.0
        if b == 0.0:
            continue
        row = X[i]
        for j in range(d):
            x = row[j] - mean[j]
            square[j] += b * x * x
            largest[j] = max(largest[j], abs(x))
    return square, largest


# -- draws: rows without replacement, and signed blocks of them ------------------------

FULL, FIXED, GROWING, MULTILEVEL = range(4)


class Plan(NamedTuple):
    """A method of drawing, as compiled code sees it."""

    kind: int
    n: int
    size: int
    rate: float
    rho: float
    inflation: float
    delta: float
    sizes: Any  # rows of the block at each level, from the base block to all n
    cumulative: Any  # probability of a correction at level 1, at most 2, at most 3, ...
    coefficients: Any  # one over the probability of each level
    warm: float  # steps over which corrections become as frequent as that


@_exact
def block_radius(plan, size):
    """ρ_M = ρ + c (1/M − 1/N)^((1−δ)/2)."""
    if plan.inflation == 0.0 or size >= plan.n:
        return plan.rho
    return plan.rho + plan.inflation * (1.0 / size - 1.0 / plan.n) ** (0.5 * (1.0 - plan.delta))


@_exact
def choose(rng, plan, t):
    """Level and number of rows of the draw at step t, and how many of them are its base block."""
    if plan.kind == FULL:
        return 0, plan.n, plan.n
    if plan.kind != MULTILEVEL:
        size = plan.size
        if plan.kind == GROWING:
            size = int(min(plan.size * plan.rate ** np.float64(t), np.float64(plan.n)))
        return 0, size, size
    first = plan.sizes[0]
    if plan.cumulative.size > 0:
        u = rng.random()
        if t < plan.warm:
            u *= plan.warm / max(t, 1.0)
        for k in range(plan.cumulative.size):
            if u < plan.cumulative[k]:
                return k + 1, first + plan.sizes[k + 1], first
    return 0, first, first


@_exact
def _slot(keys, mask, key):
    """Where a key is, or belongs, in a hash table with open addresses."""
    at = ((key * 0x9E3779B97F4A7C1) >> 20) & mask
    while keys[at] != key and keys[at] >= 0:
        at = (at + 1) & mask
    return at


@_exact
def _capacity(count):
    """Places of a hash table for so many keys: a power of two, at most half of them full."""
    capacity = 4
    while capacity < 2 * count:
        capacity *= 2
    return capacity


@_exact
def draw_rows(rng, n, out, table):
    """Fill `out` with different rows of n in random order, in time proportional to out.size.

    The first steps of a shuffle of 0 … n−1, of which only the places that changed are kept:
    in a hash table, or where the draw is a good part of all rows, in an array.
    """
    count = out.size
    if 8 * count >= n:
        places = np.arange(n)
        for i in range(count):
            j = min(i + int(rng.random() * (n - i)), n - 1)
            out[i] = places[j]
            places[j] = places[i]
        return
    capacity = _capacity(count)
    keys, values = table[:capacity], table[capacity : 2 * capacity]
    keys[:] = -1
    for i in range(count):
        j = min(i + int(rng.random() * (n - i)), n - 1)
        at = _slot(keys, capacity - 1, j)
        out[i] = values[at] if keys[at] == j else j
        here = _slot(keys, capacity - 1, i)
        moved = values[here] if keys[here] == i else i
        keys[at] = j
        values[at] = moved


@_exact
def table_size(n, one, other):
    """Length of the table with which `draw_rows` can draw that many rows."""
    longest = 0
    for count in (one, other):
        if 0 < 8 * count < n:
            longest = max(longest, 2 * _capacity(count))
    return longest


@_exact
def _correct(plan, level, start, weight, blocks):
    """Write the blocks of a correction: all rows, then the two parts of them.

    With an odd number of rows the last is in neither part.
    """
    size, half = plan.sizes[level], plan.sizes[max(level - 1, 0)]
    for b in range(3):
        blocks[b, 0] = start + max(b - 1, 0) * half
        blocks[b, 1] = start + (size if b == 0 else b * half)
        blocks[b, 2] = weight if b == 0 else -0.5 * weight
        blocks[b, 3] = block_radius(plan, size if b == 0 else half)


@_exact
def place(rng, plan, level, count, indices, blocks, table):
    """Draw the rows and write the blocks (start, stop, coefficient, radius); their number."""
    if plan.kind == FULL:
        for i in range(count):
            indices[i] = i
    first = count if level == 0 else plan.sizes[0]
    if plan.kind != FULL:
        draw_rows(rng, plan.n, indices[:first], table)
    blocks[0, 0] = 0.0
    blocks[0, 1] = first
    blocks[0, 2] = 1.0
    blocks[0, 3] = block_radius(plan, first)
    if level == 0:
        return 1
    draw_rows(rng, plan.n, indices[first:count], table)
    _correct(plan, level, first, plan.coefficients[level - 1], blocks[1:])
    return 4


@_entry
def draw(rng, plan, t):
    """Rows, blocks and the size of the base block of step t, for Python."""
    level, count, first = choose(rng, plan, t)
    indices, blocks = np.empty(count, dtype=np.int64), np.empty((4, 4))
    table = np.empty(table_size(plan.n, count - first, first), dtype=np.int64)
    number = place(rng, plan, level, count, indices, blocks, table)
    return indices, blocks[:number], first


@_entry
def draw_level(rng, plan, level):
    """The base block alone (level 0), or a correction alone, not divided by its probability."""
    size = plan.sizes[level]
    indices, blocks = np.empty(size, dtype=np.int64), np.empty((3, 4))
    draw_rows(rng, plan.n, indices, np.empty(table_size(plan.n, size, 0), dtype=np.int64))
    _correct(plan, level, 0, 1.0, blocks)
    return indices, blocks[: 3 if level > 0 else 1], size if level == 0 else 0


# -- signed weights of the rows of a draw ----------------------------------------------


@_exact
def _weigh(curves, spec, z, b, blocks, work, out):
    """Σ over blocks of coefficient × worst-case weights; a status.

    The second half of `out` is scratch space.  A block without any base weight counts as
    zero: what it stands for may be any function of its rows, as long as each level uses the
    same.
    """
    size = z.size
    out[:size] = 0.0
    for k in range(blocks.shape[0]):
        start, stop = int(blocks[k, 0]), int(blocks[k, 1])
        weights = out[size : size + stop - start]
        base = b[start:stop] if b.size > 0 else b
        if b.size > 0:
            total = 0.0
            for i in range(base.size):
                total += base[i]
            if total == 0.0:
                continue
        answer = _solve(curves, spec, z[start:stop], base, blocks[k, 3], work, weights)
        if answer.status != OK:
            return answer.status
        for i in range(weights.size):
            out[start + i] += blocks[k, 2] * weights[i]
    return OK


@_exact
def _unpack(packed):
    return Spec(
        int(packed[0]),
        int(packed[1]),
        packed[2],
        packed[3],
        packed[4],
        packed[5],
        packed[6],
        int(packed[7]),
        int(packed[8]),
        int(packed[9]),
    )


def _weigh_plain(packed, z, size, b, base, blocks, number, work, out):
    return _weigh(
        None,
        _unpack(carray(packed, 10)),
        carray(z, size),
        carray(b, base),
        carray(blocks, (number, 4)),
        carray(work, WORK),
        carray(out, 2 * size),
    )


def _weigh_curve(packed, z, size, b, base, blocks, number, work, out):
    return _weigh(
        1,
        _unpack(carray(packed, 10)),
        carray(z, size),
        carray(b, base),
        carray(blocks, (number, 4)),
        carray(work, WORK),
        carray(out, 2 * size),
    )


@functools.cache
def weigher(curved: bool) -> Any:
    """The inner maximum of blocks as a C function, compiled once for all loops that call it.

    Loops come in many kinds (dense, sparse, 32 and 64 bits); each would otherwise compile
    the solvers anew.
    """
    doubles = types.CPointer(types.float64)
    size = types.int64
    signature = types.int64(doubles, doubles, size, doubles, size, doubles, size, doubles, doubles)
    function = _weigh_curve if curved else _weigh_plain
    return cfunc(signature, cache=True, error_model="numpy", fastmath=False)(function)


def pack(spec: Spec) -> tuple[int, Any]:
    """A divergence as a loop needs it: the address of its solver, and its numbers."""
    curved = spec.code not in PLAIN
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return int(curved), np.array(spec, dtype=np.float64)
    return weigher(curved).address, np.array(spec, dtype=np.float64)


def _weigh_by_address(typingctx, address, packed, z, size, b, base, blocks, number, work, out):
    """Call the C function at an address, with pointers to the data of arrays."""

    def generate(context, builder, signature, args):
        whole = ir.IntType(64)
        function = ir.FunctionType(whole, [whole] * 9)
        return builder.call(builder.inttoptr(args[0], function.as_pointer()), args[1:])

    return types.int64(*([types.int64] * 10)), generate


weigh: Any
if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def _weigh_interpreted(address, packed, z, b, blocks, work, out):
        """Signed weights of losses z into the first half of `out`; a status."""
        return _weigh(1 if address else None, _unpack(packed), z, b, blocks, work, out)

    weigh = _weigh_interpreted
else:
    _by_pointers: Any = intrinsic(_weigh_by_address)

    @_exact
    def _weigh_compiled(address, packed, z, b, blocks, work, out):
        """Signed weights of losses z into the first half of `out`; a status."""
        return _by_pointers(
            address,
            packed.ctypes.data,
            z.ctypes.data,
            z.size,
            b.ctypes.data,
            b.size,
            blocks.ctypes.data,
            blocks.shape[0],
            work.ctypes.data,
            out.ctypes.data,
        )

    weigh = _weigh_compiled


@_entry
def signed_weights(address, packed, z, b, blocks):
    """`weigh`, for Python: the weights and a status."""
    out = np.empty(2 * z.size)
    status = weigh(address, packed, z, b, blocks, np.empty(WORK), out)
    return out[: z.size], status


# -- the loop --------------------------------------------------------------------------

# Places in the tally, the numbers that live from chunk to chunk.
STEP, SAMPLES, BASE_NORM, AVERAGED, CORRECTIONS, CLIPPED = range(6)
ANCHORED, ANCHOR_VALUE, SHORTER, SHORTENED = range(6, 10)
TALLY = 10

# How a chunk ended.
RUNNING, LOST_FINITE, LOST_INNER = 0, 1, 2


@_element
def _settle(w, total, elapsed, scale, l2, drift, omega):
    """A coordinate after `elapsed` step sizes in which only penalty and drift acted on it.

    It follows w' = −D (drift + l2 w); `total` gathers ω ∫ w.
    """
    if l2 == 0.0:
        move = -scale * drift * elapsed
        return w + move, total + omega * elapsed * (w + 0.5 * move)
    x = scale * l2 * elapsed
    if x < 0.01:  # the usual case: a short series of (1 − e⁻ˣ)/x
        mean = 1.0 - x * (0.5 - x * (1.0 / 6.0 - x * (1.0 / 24.0 - x * (1.0 / 120.0))))
    else:
        mean = -fast_expm1(-x) / x
    # The goal −drift/l2 is where a column without a scale never goes.
    goal = -drift / l2 if scale > 0.0 else 0.0
    away = w - goal
    return w - away * x * mean, total + omega * elapsed * (goal + away * mean)


# Sparse data: what a column needs lies side by side in its cell, so that a touch loads one
# cache line: its scale and the time of the last touch, then for each score its coefficient, its
# sum, and with anchors its drift.  Cells lie in one flat array: views would count references.
_SCALE, _LAST, _W, _SUM, _DRIFT = range(5)
# Rows to be sent for before they are scored.
_AHEAD = 4


@_exact
def _fill_cells(theta, average, drift, scale, each):
    m, d = theta.shape[0], theta.shape[1] - 1
    width = _W + each * m
    room = np.zeros(d * width + 8)
    first = (64 - room.ctypes.data % 64) % 64 // 8  # a cell of four numbers is in one line
    cells = room[first : first + d * width]
    for j in range(d):
        cells[j * width + _SCALE] = scale[j]
        for c in range(m):
            at = j * width + each * c
            cells[at + _W] = theta[c, j]
            cells[at + _SUM] = average[c, j]
            if each > 2:
                cells[at + _DRIFT] = drift[c, j]
    return cells


@_exact
def _empty_cells(cells, theta, average, each, l2, omega, clock):
    """Bring all columns up to date and write them back."""
    m, d = theta.shape[0], theta.shape[1] - 1
    for j in range(d):
        _settle_cell(cells, np.uint64(j * (_W + each * m)), m, each, l2, omega, clock)
        for c in range(m):
            at = j * (_W + each * m) + each * c
            theta[c, j], average[c, j] = cells[at + _W], cells[at + _SUM]


@_element
def _settle_cell(cells, at, m, each, l2, omega, clock):
    """Bring the column whose cell begins at `at` up to date."""
    elapsed, scale = clock - cells[at + np.uint64(_LAST)], cells[at + np.uint64(_SCALE)]
    cells[at + np.uint64(_LAST)] = clock
    for c in range(m):
        w, total = at + np.uint64(_W + each * c), at + np.uint64(_SUM + each * c)
        drift = cells[at + np.uint64(_DRIFT + each * c)] if each > 2 else 0.0
        cells[w], cells[total] = _settle(cells[w], cells[total], elapsed, scale, l2, drift, omega)


@_exact
def _score_cells(csr, rows, cells, m, each, l2, omega, clock, intercepts, f):
    """Bring the columns of some rows up to date, and score the rows.

    A column that is met again has nothing to catch up with: no need to ask whether it is.
    """
    indices, indptr, data = csr.indices, csr.indptr, csr.data
    width = np.uint64(_W + each * m)
    _send_for(None, csr, rows[:_AHEAD])
    for i in range(rows.size):
        _send_for(None, csr, rows[i + _AHEAD : i + _AHEAD + 1])
        for c in range(m):
            f[i * m + c] = intercepts[c]
        total = 0.0
        for a in range(indptr[rows[i]], indptr[rows[i] + 1]):
            at = np.uint64(indices[a]) * width
            _settle_cell(cells, at, m, each, l2, omega, clock)
            if m == 1:
                total += data[a] * cells[at + np.uint64(_W)]
            else:
                for c in range(m):
                    f[i * m + c] += data[a] * cells[at + np.uint64(_W + each * c)]
        f[i * m] += total


@_exact
def _step_rows(csr, rows, u, cells, m, each, gamma, g):
    """One step along −u · row, row by row, of columns that are up to date; g for intercepts."""
    indices, indptr, data = csr.indices, csr.indptr, csr.data
    width, last = np.uint64(_W + each * m), g.shape[1] - 1
    for i in range(rows.size):
        for c in range(m):
            slope = u[i * m + c]
            if slope == 0.0:
                continue
            g[c, last] += slope
            slope *= gamma
            own = np.uint64(_W + each * c)
            for a in range(indptr[rows[i]], indptr[rows[i] + 1]):
                at = np.uint64(indices[a]) * width
                cells[at + own] -= slope * cells[at + np.uint64(_SCALE)] * data[a]


@_exact
def _touch(csr, rows, stamp, mark, touched):
    """List the columns of some rows, each once; their number.

    Whether a column was seen before is a coin toss: every one is written down, and only the
    count depends on it.
    """
    indices, indptr = csr.indices, csr.indptr
    number = 0
    for i in rows:
        for a in range(indptr[i], indptr[i + 1]):
            j = np.uint64(indices[a])
            touched[number] = j
            number += stamp[j] != mark
            stamp[j] = mark
    return number


@_summing
def _cell_norm(g, cells, width, touched):
    """‖g‖² in the metric of the steps: Σ D g² of the touched columns."""
    total = 0.0
    for c in range(g.shape[0]):
        for i in range(touched.size):
            j = np.uint64(touched[i])
            total += cells[j * np.uint64(width) + np.uint64(_SCALE)] * g[c, j] * g[c, j]
    return total


@_exact
def _cell_step(g, correction, factor, cells, each, touched, gamma):
    """One step of the touched columns; penalty and drift follow when they are settled."""
    m = g.shape[0]
    width = np.uint64(_W + each * m)
    for i in range(touched.size):
        j = np.uint64(touched[i])
        at = j * width
        size = gamma * cells[at + np.uint64(_SCALE)]
        for c in range(m):
            own = at + np.uint64(_W + each * c)
            cells[own] -= size * (g[c, j] + factor * correction[c, j])
            g[c, j] = 0.0
            correction[c, j] = 0.0


@_summing
def _dense_norm(g, mean, scale):
    """‖g‖² in the metric of the steps: Σ D g² of g − mean · g_intercept, without intercept."""
    d = g.shape[1] - 1
    total = 0.0
    for c in range(g.shape[0]):
        row = g[c]
        own = row[d]
        for j in range(d):
            v = row[j] - mean[j] * own
            total += scale[j] * v * v
    return total


@_summing
def _dense_step(theta, average, g, correction, factor, drift, mean, scale, gamma, l2, omega):
    """One step of all coordinates but the intercepts, which take up the shift of the means."""
    d = theta.shape[1] - 1
    for c in range(theta.shape[0]):
        w, total, base, more, steady = theta[c], average[c], g[c], correction[c], drift[c]
        own = base[d] + factor * more[d]
        shift = 0.0
        for j in range(d):
            slope = (base[j] + factor * more[j] - mean[j] * own) + steady[j]
            # The penalty looks at where the step ends: no penalty is too large for a step.
            size = gamma * scale[j]
            move = w[j] - (w[j] - size * slope) / (1.0 + size * l2)
            w[j] -= move
            shift += mean[j] * move
            total[j] += omega * gamma * w[j]
            base[j] = 0.0
            more[j] = 0.0
        w[d] += shift


@_exact
def _intercept_step(theta, average, g, correction, factor, drift, scale, gamma, omega):
    d = theta.shape[1] - 1
    for c in range(theta.shape[0]):
        theta[c, d] -= gamma * scale[d] * (g[c, d] + factor * correction[c, d] + drift[c, d])
        average[c, d] += omega * gamma * theta[c, d]
        g[c, d] = 0.0
        correction[c, d] = 0.0


@_exact
def _intercept_norm(g, scale):
    d = g.shape[1] - 1
    total = 0.0
    for c in range(g.shape[0]):
        total += scale[d] * g[c, d] * g[c, d]
    return total


@_exact
def _slopes(spec, address, packed, f, y, b, blocks, z, slope, work, out):
    """Signed weight × slope of the loss in the score, for each row of a draw; a status."""
    m = f.size // z.size
    losses(spec, f, y, z, slope)
    status = weigh(address, packed, z, b, blocks, work, out)
    if status == OK:
        for i in range(z.size):
            for c in range(m):
                slope[i * m + c] *= out[i]
    return status


@_entry
def descend(
    rng, plan, spec, address, packed, X, csr, y, base,
    theta, average, mean, scale, anchor, drift, gammas, l2, clip, omega, limit, tally,
):  # fmt: skip
    """Some steps θ ← θ − γ D (G + l2 θ), G the gradient of a draw; how they ended.

    θ, its weighted sum `average` and the tally are changed in place.  `mean` and `scale`
    are those of the columns, `anchor` a second point whose gradients are subtracted (or an
    array without rows) and `drift` the gradient of the robust loss there.  Stops before the
    sample count passes `limit` or when the step sizes run out.
    """
    m, d = theta.shape[0], theta.shape[1] - 1
    g, correction = np.zeros((m, d + 1)), np.zeros((m, d + 1))
    anchored = anchor.shape[0] > 0
    cells, each, columns = np.empty(0), 3 if anchored else 2, 0
    if csr is not None:
        cells, columns = _fill_cells(theta, average, drift, scale, each), d
    stamp = np.full(columns, -1, dtype=np.int32)
    touched = np.empty(columns + 1, dtype=np.int32)
    work, blocks = np.empty(WORK), np.empty((4, 4))
    room = 0
    indices, table = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    labels, b = np.empty(0), np.empty(0)
    f, z, slope, other, out = np.empty(0), np.empty(0), np.empty(0), np.empty(0), np.empty(0)
    clock, status, number = 0.0, RUNNING, 0
    for s in range(gammas.size):
        if tally[SAMPLES] >= limit:
            break
        gamma = gammas[s]
        level, count, first = choose(rng, plan, tally[STEP])
        needed = table_size(plan.n, count - first, first)
        if needed > table.size:
            table = np.empty(needed, dtype=np.int64)
        if count > room:
            room = count
            indices, labels = np.empty(room, dtype=np.int64), np.empty(room)
            b = np.empty(room if base.size > 0 else 0)
            f, slope, other = np.empty(room * m), np.empty(room * m), np.empty(room * m)
            z, out = np.empty(room), np.empty(2 * room)
        parts = blocks[: place(rng, plan, level, count, indices, blocks, table)]
        rows = indices[:count]
        if X is not None:
            _send_for(X, csr, rows)
        for i in range(count):
            labels[i] = y[rows[i]]
        if base.size > 0:
            for i in range(count):
                b[i] = base[rows[i]]
        own_b = b[: count if base.size > 0 else 0]
        own_y, own_f, own_z = labels[:count], f[: count * m], z[:count]
        u, weights = slope[: count * m], out[: 2 * count]
        if csr is not None:
            # Compiled once more for the usual case, with what is fixed there.
            if m == 1 and each == 2:
                _score_cells(csr, rows, cells, 1, 2, l2, omega, clock, theta[:, d], own_f)
            else:
                _score_cells(csr, rows, cells, m, each, l2, omega, clock, theta[:, d], own_f)
        if X is not None:
            for i in range(count):
                for c in range(m):
                    own_f[i * m + c] = row_score(X, csr, rows[i], theta[c])
        inner = _slopes(spec, address, packed, own_f, own_y, own_b, parts, own_z, u, work, weights)
        if inner == OK and anchored:
            v = other[: count * m]
            for i in range(count):
                for c in range(m):
                    own_f[i * m + c] = row_score(X, csr, rows[i], anchor[c])
            inner = _slopes(
                spec, address, packed, own_f, own_y, own_b, parts, own_z, v, work, weights
            )
            for i in range(count * m):
                u[i] -= v[i]
        if inner != OK:
            status = LOST_FINITE if inner == NOT_FINITE else LOST_INNER
            break
        # The mean of the norms so far, and later of the last hundred or so.  It changes
        # slowly: after the first steps, one in eight is looked at.
        measured = level > 0 or tally[STEP] < 100.0 or tally[STEP] % 8.0 == 0.0
        if csr is not None:
            number = 0
            if measured:
                number = _touch(csr, rows, stamp, s, touched)
            elif m == 1 and each == 2:
                _step_rows(csr, rows, u, cells, 1, 2, gamma, g)
            else:
                _step_rows(csr, rows, u, cells, m, each, gamma, g)
        if measured or csr is None:
            for i in range(count):
                for c in range(m):
                    if u[i * m + c] != 0.0:
                        to = g[c] if i < first else correction[c]
                        add_row(X, csr, rows[i], u[i * m + c], to)
        seen, width = touched[:number], _W + each * m
        factor, size = 1.0, 0.0
        if measured:
            size = _intercept_norm(g, scale)
            if csr is None:
                size += _dense_norm(g, mean, scale)
            else:
                size += _cell_norm(g, cells, width, seen)
            size = math.sqrt(size)
            tally[BASE_NORM] += (size - tally[BASE_NORM]) / min(tally[STEP] + 1.0, 100.0)
        if level > 0:
            tally[CORRECTIONS] += 1.0
            extra = _intercept_norm(correction, scale)
            if csr is None:
                extra += _dense_norm(correction, mean, scale)
            else:
                extra += _cell_norm(correction, cells, width, seen)
            extra = math.sqrt(extra)
            bound = clip * tally[BASE_NORM] * math.sqrt(1.0 + tally[STEP] / 100.0)
            if extra > bound:
                factor = bound / extra
                tally[CLIPPED] += 1.0
            size += factor * extra
        if not size < _INF:
            status = LOST_FINITE
            break
        if csr is None:
            _dense_step(theta, average, g, correction, factor, drift, mean, scale, gamma, l2, omega)
        else:
            _cell_step(g, correction, factor, cells, each, seen, gamma)
        _intercept_step(theta, average, g, correction, factor, drift, scale, gamma, omega)
        clock += gamma
        tally[STEP] += 1.0
        tally[SAMPLES] += count
        tally[AVERAGED] += omega * gamma
    if csr is not None:
        _empty_cells(cells, theta, average, each, l2, omega, clock)
    return status
