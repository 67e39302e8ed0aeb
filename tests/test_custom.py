"""Custom φ and losses: functions of arrays, compiled functions, and functions that fail."""

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
from tests.examples import CUSTOM_BURG, kl, noisy, softplus, softplus_slope

Z = np.random.default_rng(0).exponential(size=200_000)


def libm(name: str) -> LowLevelCallable:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = getattr(library, name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
    return LowLevelCallable(function)


def check_kl(phi, dphi, inverse):
    custom = Divergence.custom(phi, dphi, inverse, phi_zero=1.0)
    for z in (Z, Z[:10]):
        result, right = worst_case(z, 0.1, custom), worst_case(z, 0.1, "kl")
        assert result.value == pytest.approx(right.value, rel=1e-12)
        np.testing.assert_allclose(result.weights, right.weights, rtol=1e-9)
    X, y = noisy()
    robust = solve(X, y, divergence=custom, tol=1e-10)
    assert robust.value == pytest.approx(solve(X, y, divergence="kl", tol=1e-10).value, rel=1e-8)


def check_logistic(value, slope):
    custom, (X, y) = Loss.custom(value, slope, of="margin", smoothness=0.25), noisy()
    for solver in ("newton", "gssg"):
        same = {"solver": solver, "random_state": 0, "max_iter": 20, "tol": None}
        result, right = solve(X, y, loss=custom, **same), solve(X, y, **same)
        assert result.value == pytest.approx(right.value, rel=1e-6)


def test_functions_of_arrays():
    check_kl(kl, np.log, np.exp)
    check_logistic(softplus, softplus_slope)


def test_functions_are_called_on_many_numbers_at_once():
    sizes = []

    def counted(t):
        sizes.append(t.size)
        return np.exp(t)

    custom = Divergence.custom(kl, np.log, counted, phi_zero=1.0)
    sizes.clear()
    worst_case(Z, 0.1, custom)
    assert max(sizes) == 65_536
    assert len(sizes) < 200


def test_a_function_may_keep_and_overwrite_its_argument():
    kept = []

    def overwriting(t):
        kept.append(t)
        return np.exp(t, out=t)

    result = worst_case(Z, 0.1, Divergence.custom(kl, np.log, overwriting, phi_zero=1.0))
    assert result.value == pytest.approx(worst_case(Z, 0.1, "kl").value, rel=1e-12)
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
    path = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if path is None or sys.platform == "win32":
        pytest.skip("there is no C compiler to make a compiled function with")
    return path


def test_a_shared_library(compiler, tmp_path):
    (tmp_path / "custom.c").write_text(SOURCE, encoding="utf-8")
    library = tmp_path / "custom.so"
    build = [compiler, "-O2", "-shared", "-fPIC", tmp_path / "custom.c", "-o", library, "-lm"]
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
    (tmp_path / "custom_phi.pyx").write_text(CYTHON, encoding="utf-8")
    cython.compile(str(tmp_path / "custom_phi.pyx"), language_level=3)
    library = tmp_path / ("custom_phi" + sysconfig.get_config_var("EXT_SUFFIX"))
    include = "-I" + sysconfig.get_paths()["include"]
    source = tmp_path / "custom_phi.c"
    build = [compiler, "-O2", "-shared", "-fPIC", include, source, "-o", library, "-lm"]
    subprocess.run(build, check=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    import custom_phi  # type: ignore[import-not-found]

    names = ("phi", "dphi", "inverse")
    check_kl(*(LowLevelCallable.from_cython(custom_phi, name) for name in names))


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


class Failing:
    """A function that raises once `fails` is set."""

    def __init__(self, function):
        self.function, self.fails = function, False

    def __call__(self, x):
        if self.fails:
            raise ZeroDivisionError("no longer")
        return self.function(x)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("size", [10, 200_000])
def test_exceptions_of_a_divergence_are_raised_as_they_are(which, size):
    functions = [Failing(kl), Failing(np.log), Failing(np.exp)]
    custom = Divergence.custom(*functions, phi_zero=1.0)
    functions[which].fails = True
    with pytest.raises(ZeroDivisionError, match="no longer"):
        worst_case(Z[:size], 0.1, custom)
    functions[which].fails = False
    assert worst_case(Z[:size], 0.1, custom).gap <= 1e-9


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "gssg"])
def test_exceptions_of_a_loss_are_raised_as_they_are(which, solver):
    functions = [Failing(softplus), Failing(softplus_slope)]
    custom, (X, y) = Loss.custom(*functions, of="margin", smoothness=0.25), noisy()
    functions[which].fails = True
    with pytest.raises(ZeroDivisionError, match="no longer"):
        solve(X, y, loss=custom, solver=solver, random_state=0)


def test_a_function_that_later_returns_another_length():
    state = {"short": False}

    def inverse(t):
        return np.exp(t)[: t.size // 2] if state["short"] else np.exp(t)

    custom = Divergence.custom(kl, np.log, inverse, phi_zero=1.0)
    state["short"] = True
    with pytest.raises(ValueError, match="'dphi_inverse' parameter must return one number"):
        worst_case(Z, 0.1, custom)


def test_compiled_functions_of_another_signature_are_refused():
    function = ctypes.CDLL(ctypes.util.find_library("m")).pow
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double, ctypes.c_double]
    with pytest.raises(
        ValueError, match=r"signature 'double \(double\)'.* Got 'double \(double, d"
    ):
        Divergence.custom(kl, LowLevelCallable(function), np.exp, phi_zero=1.0)


def test_pickling_errors_name_the_function():
    compiled = Divergence.custom(kl, libm("log"), libm("exp"), phi_zero=1.0)
    with pytest.raises(pickle.PicklingError, match=r"'dphi' function .* cannot be pickled"):
        pickle.dumps(compiled)
    local = Divergence.custom(lambda s: kl(s), np.log, np.exp, phi_zero=1.0)
    with pytest.raises((pickle.PicklingError, AttributeError), match="<lambda>"):
        pickle.dumps(local)
    copy = pickle.loads(pickle.dumps(Divergence.custom(kl, np.log, np.exp, phi_zero=1.0)))
    assert worst_case(Z, 0.1, copy).value == pytest.approx(worst_case(Z, 0.1, "kl").value)


@pytest.mark.parametrize("rho", [5.0, 10.0, 12.589, 15.849, 19.953, 25.119, 100.0])
def test_large_balls_of_a_custom_divergence_are_solved_exactly(rho):
    z = np.random.default_rng(0).standard_normal(5)
    custom, expected = worst_case(z, rho, CUSTOM_BURG), worst_case(z, rho, "reverse-kl")
    assert custom.gap <= 1e-13
    np.testing.assert_allclose(custom.achieved, rho, rtol=1e-9)
    np.testing.assert_allclose(custom.weights, expected.weights, rtol=1e-9)
