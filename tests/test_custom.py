"""Functions of the user: arrays, compiled ones, and what happens when they fail."""

from __future__ import annotations

import ctypes
import ctypes.util
import pickle
import shutil
import subprocess
import sys
import sysconfig

import numpy as np
import pytest
from scipy import LowLevelCallable

from drolearn import Divergence, Loss, solve, worst_case

Z = np.random.default_rng(0).exponential(size=200_000)


def kl(s):
    return s * np.log(s) - s + 1.0


def softplus(x):
    return np.logaddexp(0.0, -x)


def softplus_slope(x):
    return -1.0 / (1.0 + np.exp(x))


def libm(name: str) -> LowLevelCallable:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = getattr(library, name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    return LowLevelCallable(function)


def classes(n: int = 2000):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0, 1, -1)


def check_kl(phi, dphi, inverse):
    mine = Divergence.custom(phi, dphi, inverse, phi_zero=1.0)
    for z in (Z, Z[:10]):
        found, right = worst_case(z, 0.1, mine), worst_case(z, 0.1, "kl")
        assert found.value == pytest.approx(right.value, rel=1e-12)
        np.testing.assert_allclose(found.weights, right.weights, rtol=1e-9)
    X, y = classes()
    robust = solve(X, y, divergence=mine, tol=1e-10)
    assert robust.value == pytest.approx(solve(X, y, divergence="kl", tol=1e-10).value, rel=1e-8)


def check_logistic(value, slope):
    mine, (X, y) = Loss.custom(value, slope, of="margin", smoothness=0.25), classes()
    for solver in ("newton", "gssg"):
        same = {"solver": solver, "random_state": 0, "max_iter": 20, "tol": None}
        found, right = solve(X, y, loss=mine, **same), solve(X, y, **same)
        assert found.value == pytest.approx(right.value, rel=1e-6)


def test_functions_of_arrays():
    check_kl(kl, np.log, np.exp)
    check_logistic(softplus, softplus_slope)


def test_functions_are_called_on_many_numbers_at_once():
    sizes = []

    def counted(t):
        sizes.append(t.size)
        return np.exp(t)

    mine = Divergence.custom(kl, np.log, counted, phi_zero=1.0)
    sizes.clear()
    worst_case(Z, 0.1, mine)
    assert max(sizes) == 65_536
    assert len(sizes) < 200


def test_a_function_may_keep_and_change_its_argument():
    kept = []

    def greedy(t):
        kept.append(t)
        return np.exp(t, out=t)

    found = worst_case(Z, 0.1, Divergence.custom(kl, np.log, greedy, phi_zero=1.0))
    assert found.value == pytest.approx(worst_case(Z, 0.1, "kl").value, rel=1e-12)
    assert all(np.isfinite(each).all() for each in kept)


def test_ctypes():
    check_kl(kl, libm("log"), libm("exp"))


SOURCE = """
#include <math.h>
double phi(double s) { return s * log(s) - s + 1.0; }
double value(double x) { return x > 0 ? log1p(exp(-x)) : -x + log1p(exp(x)); }
double slope(double x) { return -1.0 / (1.0 + exp(x)); }
"""


@pytest.fixture
def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None or sys.platform == "win32":
        pytest.skip("there is no C compiler to make a compiled function with")
    return found


def test_a_library_of_ones_own(compiler, tmp_path):
    (tmp_path / "mine.c").write_text(SOURCE, encoding="utf-8")
    library = tmp_path / "mine.so"
    build = [compiler, "-O2", "-shared", "-fPIC", tmp_path / "mine.c", "-o", library, "-lm"]
    subprocess.run(build, check=True)
    loaded, functions = ctypes.CDLL(str(library)), {}
    for name in ("phi", "value", "slope"):
        function = getattr(loaded, name)
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        functions[name] = LowLevelCallable(function)
    check_kl(functions["phi"], libm("log"), libm("exp"))
    check_logistic(functions["value"], functions["slope"])


CYTHON = """
from libc.math cimport exp, log
cdef api double phi(double s) noexcept nogil: return s * log(s) - s + 1.0
cdef api double dphi(double s) noexcept nogil: return log(s)
cdef api double inverse(double t) noexcept nogil: return exp(t)
"""


def test_cython(compiler, tmp_path, monkeypatch):
    cython = pytest.importorskip("Cython.Compiler.Main", reason="Cython is not installed")
    (tmp_path / "phi_of_mine.pyx").write_text(CYTHON, encoding="utf-8")
    cython.compile(str(tmp_path / "phi_of_mine.pyx"), language_level=3)
    library = tmp_path / ("phi_of_mine" + sysconfig.get_config_var("EXT_SUFFIX"))
    include = "-I" + sysconfig.get_paths()["include"]
    source = tmp_path / "phi_of_mine.c"
    build = [compiler, "-O2", "-shared", "-fPIC", include, source, "-o", library, "-lm"]
    subprocess.run(build, check=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    import phi_of_mine  # type: ignore[import-not-found]

    names = ("phi", "dphi", "inverse")
    check_kl(*(LowLevelCallable.from_cython(phi_of_mine, name) for name in names))


def test_numba():
    numba = pytest.importorskip("numba", reason="numba is not installed")
    import math

    def compiled(function):
        return LowLevelCallable(numba.cfunc("float64(float64)")(function).ctypes)

    check_kl(
        compiled(lambda s: s * math.log(s) - s + 1.0), compiled(lambda s: math.log(s)),
        compiled(lambda t: math.exp(t)),
    )  # fmt: skip


# -- failures ----------------------------------------------------------------------------------


class Moody:
    """A function that works until it is told not to."""

    def __init__(self, function):
        self.function, self.angry = function, False

    def __call__(self, x):
        if self.angry:
            raise ZeroDivisionError("no longer")
        return self.function(x)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("size", [10, 200_000])
def test_exceptions_of_a_divergence_come_through(which, size):
    functions = [Moody(kl), Moody(np.log), Moody(np.exp)]
    mine = Divergence.custom(*functions, phi_zero=1.0)
    functions[which].angry = True
    with pytest.raises(ZeroDivisionError, match="no longer"):
        worst_case(Z[:size], 0.1, mine)
    functions[which].angry = False
    assert worst_case(Z[:size], 0.1, mine).gap <= 1e-9


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "gssg"])
def test_exceptions_of_a_loss_come_through(which, solver):
    functions = [Moody(softplus), Moody(softplus_slope)]
    mine, (X, y) = Loss.custom(*functions, of="margin", smoothness=0.25), classes()
    functions[which].angry = True
    with pytest.raises(ZeroDivisionError, match="no longer"):
        solve(X, y, loss=mine, solver=solver, random_state=0)


def test_a_function_that_changes_its_mind_about_lengths():
    state = {"short": False}

    def inverse(t):
        return np.exp(t)[: t.size // 2] if state["short"] else np.exp(t)

    mine = Divergence.custom(kl, np.log, inverse, phi_zero=1.0)
    state["short"] = True
    with pytest.raises(ValueError, match="'dphi_inverse' parameter must return one number"):
        worst_case(Z, 0.1, mine)


def test_another_signature_is_refused():
    function = ctypes.CDLL(ctypes.util.find_library("m")).pow
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double, ctypes.c_double]
    with pytest.raises(
        ValueError, match=r"signature 'double \(double\)'.* Got 'double \(double, d"
    ):
        Divergence.custom(kl, LowLevelCallable(function), np.exp, phi_zero=1.0)


def test_what_cannot_be_pickled_is_named():
    compiled = Divergence.custom(kl, libm("log"), libm("exp"), phi_zero=1.0)
    with pytest.raises(pickle.PicklingError, match=r"'dphi' function .* cannot be pickled"):
        pickle.dumps(compiled)
    local = Divergence.custom(lambda s: kl(s), np.log, np.exp, phi_zero=1.0)
    with pytest.raises((pickle.PicklingError, AttributeError), match="<lambda>"):
        pickle.dumps(local)
    own = pickle.loads(pickle.dumps(Divergence.custom(kl, np.log, np.exp, phi_zero=1.0)))
    assert worst_case(Z, 0.1, own).value == pytest.approx(worst_case(Z, 0.1, "kl").value)
