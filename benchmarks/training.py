"""Training of linear models: bias, cost per step, exact and stochastic solvers, threads."""

from __future__ import annotations

import resource
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from benchmarks import datasets
from benchmarks.exact_fits import exact, robust_and_plain
from benchmarks.machine import DOCS, load, save, side_by_side
from benchmarks.worst_case import Row, row
from drolearn import SGD, Multilevel, _core, solve, worst_case
from drolearn._solvers.descent import State, run_steps

SEEDS = 5
#: Settings of SGDClassifier: the logistic loss, and exactly `max_iter` passes.
SGD_CLASSIFIER: Any = {"loss": "log_loss", "tol": None, "random_state": 0}


def robust(X: Any, y: np.ndarray, theta: np.ndarray, rho: float, divergence: Any = "chi2") -> float:
    """Return the robust loss of a linear model, computed with NumPy and `worst_case` only."""
    z = np.logaddexp(0.0, -y * (X @ theta[:-1] + theta[-1]))
    return worst_case(z, rho, divergence).value


def gaps(X, y, rho, divergence, optimum, method, budget, seed) -> list[tuple[float, float]]:
    """Return (samples, gap of the averaged iterate) for each number of samples in `budget`."""
    n, points = X.shape[0], []
    for samples in budget:
        state = solve(
            X, y, rho=rho, divergence=divergence, solver=method, max_iter=samples / n, tol=None,
            random_state=seed,
        ).state  # fmt: skip
        assert state is not None
        points.append((samples, robust(X, y, state.averaged[0], rho, divergence) - optimum))
    return points


def bias() -> tuple[list[Row], dict[str, Any]]:
    """Gap to the optimum against the number of samples: multilevel draws and fixed batches."""
    rows, curves = [], {}
    cases = [
        ("hiv1", 0.1, "chi2"),
        ("hiv1", 1.0, "chi2"),
        ("hiv1", 0.1, "kl"),
        ("adult", 0.1, "kl"),
        ("w8a", 0.1, "chi2"),
        ("covtype.binary", 0.1, "kl"),
        ("ijcnn1", 1.0, "chi2"),
        ("skin_nonskin", 1.0, "chi2"),
    ]
    for name, rho, divergence in cases:
        X, y = datasets.load(name)
        optimum = solve(
            X, y, rho=rho, divergence=divergence, solver="exact", tol=1e-9, max_iter=1000
        ).value
        label = f"{name}, {divergence}, ρ = {rho}"
        budget = [1e5, 3e5, 1e6, 3e6] + [1e7] * (name == "hiv1")
        methods: dict[str, Any] = {"gssg": "gssg"}
        methods["sgd, M = 64"] = SGD(batch_size=64)
        methods["sgd, M = 16"] = SGD(batch_size=16)
        seeds = SEEDS if name == "hiv1" else 2
        curve = {
            solver: np.mean(
                [
                    [gap for _, gap in gaps(X, y, rho, divergence, optimum, method, budget, seed)]
                    for seed in range(seeds)
                ],
                axis=0,
            ).tolist()
            for solver, method in methods.items()
        }
        curves[label] = {"samples": budget, "optimum": optimum, **curve}
        ours, large, small = (np.array(curve[solver]) for solver in methods)
        bars = {("hiv1", "chi2"): ("≤ 0.125", "≤ 0.04"), ("hiv1", "kl"): ("≤ 0.0333", "")}
        bar = bars.get((name, divergence), ("", ""))
        first_bar = "≤ 1.3" if name == "hiv1" else ""
        note = f"optimum {optimum:.8f}, gap {ours[-1]:.1e}"
        last, first = f"gap at {budget[-1]:.0e} samples, {label}", f"gap at 1e+05 samples, {label}"
        rows.append(row(last, "sgd, M = 64", ours[-1] / large[-1], bar[0], note))
        rows.append(row(last, "sgd, M = 16", ours[-1] / small[-1], bar[1]))
        rows.append(row(first, "sgd, M = 64", ours[0] / large[0], first_bar))
    return rows, curves


def cost() -> list[Row]:
    """Time of a GSSG step at 10⁷ rows relative to 10⁴ rows."""
    rng, tasks = np.random.default_rng(0), {}
    for n in (10**4, 10**7):
        X = rng.standard_normal((n, 20), dtype=np.float32)
        y = np.where(X[:, 0] + rng.standard_normal(n, dtype=np.float32) > 0, 1.0, -1.0)
        tasks[n] = _steps(X, y)
    seconds = {n: [] for n in tasks}
    for _ in range(5):
        for n, task in tasks.items():
            seconds[n].append(task())
    ratio = float(np.median(seconds[10**7]) / np.median(seconds[10**4]))
    each = float(np.median(seconds[10**7]))
    return [
        row(
            "time of a gssg step at 10⁷ rows, d = 20",
            "at 10⁴ rows",
            ratio,
            "≤ 2",
            f"{each * 1e6:.0f} µs",
        )
    ]


def _steps(X, y):
    """Return a task that measures the seconds per step, without set-up."""
    from drolearn._solvers.problem import Problem
    from drolearn.divergence import as_divergence
    from drolearn.loss import as_loss

    problem = Problem(
        X, y, loss=as_loss("logistic"), divergence=as_divergence("chi2"), rho=0.1,
        l2=0.0, intercept=True, scaling="draws",
    )  # fmt: skip
    method, rng = Multilevel(X.shape[0], batch_size=45, fire=0.1), np.random.default_rng(0)
    state = State.new(problem.zeros(), rng)

    def task() -> float:
        began, before = time.perf_counter(), state.tally.step
        run_steps(problem, method, state, rng, (np.full(20_000, 0.1), 1.0, 0.0, np.inf))
        return (time.perf_counter() - began) / (state.tally.step - before)

    task()
    return task


def variance() -> dict[str, Any]:
    """Estimate E‖Δ_k‖²·4^k for inflation c = 0 and c = 1."""
    n, rng, out = 2**14, np.random.default_rng(0), {}
    x = rng.standard_normal((n, 10))
    margin = x @ rng.standard_normal(10) * 0.5 + 0.5 * rng.standard_normal(n)
    z, slope = np.logaddexp(0.0, -margin), -1.0 / (1.0 + np.exp(margin))
    for c in (0.0, 1.0):
        method, moments = Multilevel(n, inflation=c), []
        for level in range(1, method.sizes.size):
            repeats = max(20, 40_000 // int(method.sizes[level]))
            norms = []
            for _ in range(repeats):
                draw = method.draw_level(rng, level)
                u = draw.weights(z[draw.indices]) * slope[draw.indices]
                norms.append(float(np.sum(np.square(u @ x[draw.indices]))))
            moments.append(float(np.mean(norms)) * 4.0**level)
        out[f"c = {c:g}"] = moments
    return out


def stochastic() -> list[Row]:
    """Time to a relative gap of 1e-3 on covtype, and rows per second on sparse data."""
    return [*_dense(), *_sparse()]


def _dense() -> list[Row]:
    rows = []
    X, y = datasets.load("covtype.binary", standardised=True)
    optimum = solve(X, y, solver="exact", tol=1e-9, max_iter=1000).value
    passes = 0.0
    for passes in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0):
        values = [
            solve(X, y, solver="gssg", max_iter=passes, tol=None, random_state=seed).value
            for seed in range(5)
        ]
        if max(values) / optimum - 1.0 <= 1e-3:
            break
    rows.append(row("passes of gssg to 1e-3 on covtype, worst of 5 seeds", "", passes, "≤ 1.5"))
    tasks: dict[str, Any] = {
        "gssg": lambda: solve(X, y, solver="gssg", max_iter=passes, tol=None, random_state=0)
    }
    for name in ("lbfgs", "newton"):
        tasks[name] = lambda name=name: solve(
            X, y, solver=name, tol=1e-9,
            callback=lambda history: history.value[-1] <= optimum * (1 + 1e-3),
        )  # fmt: skip
    seconds = side_by_side(tasks, repeats=3)
    fastest = min(seconds["lbfgs"], seconds["newton"])
    note = ", ".join(f"{name} {taken:.2f} s" for name, taken in seconds.items())
    rows.append(
        row(
            "time of gssg to 1e-3 on covtype",
            "the faster exact solver",
            seconds["gssg"] / fastest,
            "≤ 0.2",
            note,
        )
    )
    return rows


def _sparse() -> list[Row]:
    rows = []
    X, y = datasets.load("rcv1_27k")
    tasks = {
        "plain": lambda: SGDClassifier(**SGD_CLASSIFIER, alpha=1e-5, max_iter=10).fit(X, y),
        "averaged": lambda: SGDClassifier(
            **SGD_CLASSIFIER, alpha=1e-5, max_iter=10, average=True
        ).fit(X, y),
        "gssg": lambda: solve(X, y, l2=1e-5, solver="gssg", max_iter=10, tol=None, random_state=0),
    }
    seconds = side_by_side(tasks, repeats=5)
    rate = f"{10 * X.shape[0] / seconds['gssg'] / 1e6:.2f} million rows per second"
    rows.append(
        row(
            "rows per second, rcv1_27k",
            "SGDClassifier",
            seconds["plain"] / seconds["gssg"],
            "≥ 1",
            rate,
        )
    )
    rows.append(
        row(
            "rows per second, rcv1_27k",
            "SGDClassifier(average=True)",
            seconds["averaged"] / seconds["gssg"],
            "",
        )
    )
    return rows


def precision() -> list[Row]:
    """Gradients of all rows in float32 and float64, and with NumPy on the same data."""
    rng, n = np.random.default_rng(0), 320_000
    X, u = rng.standard_normal((n, 50)), rng.standard_normal(n)
    single, out = X.astype(np.float32), np.empty((1, 51))
    rows, short = _core.Rows(X), _core.Rows(single)
    tasks = {
        "double": lambda: rows.gradient(None, u, out),
        "single": lambda: short.gradient(None, u, out),
        "numpy": lambda: X.T @ u,
    }
    seconds = side_by_side(tasks, repeats=25)
    note = f"{1e3 * seconds['single']:.1f} ms"
    return [
        row("gradient of 320,000 × 50 in float32", "float64", seconds["single"] / seconds["double"],
            "≤ 0.7", note),
        row("gradient of 320,000 × 50 in float64", "NumPy's Xᵀu",
            seconds["double"] / seconds["numpy"], ""),
    ]  # fmt: skip


def threads() -> list[Row]:
    """Speed-up of exact fits with two threads, relative to that of two independent fits.

    The latter is the most that this machine can gain.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10**6, 50))
    y = np.where(X @ rng.standard_normal(50) * 0.4 + rng.standard_normal(10**6) > 0, 1, -1)
    half = [(X.copy(), y.copy()) for _ in range(2)]
    rows = []
    for solver in ("lbfgs", "newton"):

        def fit(part, n_jobs=None, solver=solver):
            return solve(*part, solver=solver, tol=1e-6, n_jobs=n_jobs)

        with ThreadPoolExecutor(2) as pool:
            tasks = {
                "one": lambda fit=fit: fit((X, y)),
                "two": lambda fit=fit: fit((X, y), 2),
                "pair": lambda fit=fit, pool=pool: list(pool.map(fit, half)),
            }
            seconds = side_by_side(tasks, repeats=3)
        gain, ceiling = seconds["one"] / seconds["two"], 2.0 * seconds["one"] / seconds["pair"]
        note = f"{gain:.2f} × and {ceiling:.2f} ×; {seconds['two']:.2f} s"
        what = f"exact fit by {solver}, 10⁶ × 50: speed-up with n_jobs=2"
        against = "speed-up of two independent fits"
        rows.append(row(what, against, gain / ceiling, "≥ 0.9", note, "2"))
        what = f"exact fit by {solver}, 10⁶ × 50: time with n_jobs=2"
        rows.append(row(what, "n_jobs=1", 1.0 / gain, "≤ 1.05", "", "2 and 1"))
    return rows


def anchors() -> tuple[list[Row], dict[str, Any]]:
    """Relative gap against passes over the data, with and without anchors."""
    rows, curves = [], {}
    for name in ("adult", "ijcnn1", "electricity", "skin_nonskin", "a9a"):
        X, y = datasets.load(name)
        l2 = 1e-3
        optimum = solve(X, y, l2=l2, solver="newton", tol=1e-14, max_iter=200).value
        curve: dict[str, Any] = {}
        for solver in ("gssg", "gssg-anchor"):
            passes = [5, 10, 20, 30, 40, 60, 100, 150, 200]
            runs = [
                solve(X, y, l2=l2, solver=solver, max_iter=k, tol=None, random_state=0)
                for k in passes
            ]
            curve[solver] = {"passes": passes, "gap": [run.value / optimum - 1.0 for run in runs]}
        curves[name] = curve
        rows.append(
            row(
                f"relative gap after 200 passes with anchors, {name}, l2 = {l2:g}",
                "",
                curve["gssg-anchor"]["gap"][-1],
                "≤ 1e-10",
                f"without anchors: {curve['gssg']['gap'][-1]:.0e}",
            )
        )
    return rows, curves


def text() -> list[Row]:
    """Generated text of the full size of RCV1: test error, time and memory."""
    X, y = datasets.text_like(804_414)
    test = np.arange(X.shape[0]) % 5 == 0
    train, unseen = X[~test], X[test]
    labels, truth = y[~test], y[test]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    times, errors = {}, {}

    def measure(name, fit):
        began = time.perf_counter()
        w, c = fit()
        times[name] = time.perf_counter() - began
        errors[name] = 100.0 * float(np.mean(np.sign(unseen @ w + c) != truth))
        print(f"  {name}: {times[name]:.1f} s, error {errors[name]:.2f}%", flush=True)

    def ours(solver, **more):
        solution = solve(train, labels, l2=1e-6, solver=solver, random_state=0, **more)
        print("  ", solution.status)
        return solution.coef, solution.intercept

    def sgd():
        model: Any = SGDClassifier(**SGD_CLASSIFIER, alpha=1e-6, max_iter=5)
        model.fit(train, labels)
        return model.coef_[0], model.intercept_[0]

    measure("sgdclassifier", sgd)
    measure("gssg", lambda: ours("gssg", max_iter=0.5, tol=None))
    measure("exact", lambda: ours("exact"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    n, d = train.shape
    size = f"{n:,} × {d:,}, {train.nnz / n:.0f} non-zeros per row"
    difference = errors["gssg"] - errors["exact"]
    return [
        row("text: test error of gssg minus exact, percentage points", "", difference, "≤ 0.2",
            f"{size}; {errors['gssg']:.2f}% and {errors['exact']:.2f}%"),
        row("text: time of gssg", "exact", times["gssg"] / times["exact"], "≤ 0.2",
            f"{times['gssg']:.1f} s"),
        row("text: time of gssg", "SGDClassifier(max_iter=5)",
            times["gssg"] / times["sgdclassifier"], "≤ 3",
            f"test error of SGDClassifier: {errors['sgdclassifier']:.2f}%"),
        row("text: peak memory, GiB", "", peak, "≤ 3", f"data: {memory:.1f} GiB"),
    ]  # fmt: skip


def plots(curves: dict[str, Any], moments: dict[str, Any], steady: dict[str, Any]) -> None:
    """Draw the pictures of docs/training.md."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = {"gssg": "black", "sgd, M = 64": "tab:blue", "sgd, M = 16": "tab:cyan"}
    figure, axes = plt.subplots(2, 4, figsize=(14, 6), layout="constrained")
    for axis, (label, curve) in zip(axes.ravel(), curves.items(), strict=False):
        for solver, colour in colours.items():
            axis.loglog(curve["samples"], curve[solver], color=colour, marker=".", label=solver)
        axis.set(title=label, xlabel="samples", ylabel="gap")
    axes[0, 0].legend()
    figure.savefig(DOCS / "bias.png", dpi=110)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for label, moment in moments.items():
        axes[0].semilogy(range(1, len(moment) + 1), moment, marker=".", label=label)
    axes[0].set(title="Second moment of Δₖ × 4ᵏ, N = 16,384, χ², ρ = 0.1", xlabel="level k")
    axes[0].legend()
    for name, curve in steady.items():
        (line,) = axes[1].semilogy(
            curve["gssg-anchor"]["passes"], np.maximum(curve["gssg-anchor"]["gap"], 1e-16),
            label=name,
        )  # fmt: skip
        axes[1].semilogy(
            curve["gssg"]["passes"], curve["gssg"]["gap"], color=line.get_color(), linestyle=":"
        )
    axes[1].set(title="Relative gap with anchors (dotted: without)", xlabel="passes")
    axes[1].legend()
    figure.savefig(DOCS / "variance.png", dpi=110)


PARTS: dict[str, Any] = {
    "cost": cost,
    "exact": exact,
    "robust_and_plain": robust_and_plain,
    "stochastic": stochastic,
    "precision": precision,
    "threads": threads,
    "anchors": anchors,
    "bias": bias,
    "variance": variance,
    "text": text,
}


def main(*names: str) -> None:
    """Run all parts (about ten minutes) or those named; write results/training.json."""
    warnings.simplefilter("ignore")
    stored = load("training")
    rows = [row for row in stored.get("rows", []) if names and row["part"] not in names]
    curves = stored.get("curves", {})
    for name in names or PARTS:
        measured = PARTS[name]()
        new_rows, new_curves = measured if isinstance(measured, tuple) else (measured, None)
        if isinstance(new_rows, dict):
            new_rows, new_curves = [], new_rows
        rows += [{**row, "part": name} for row in new_rows]
        if new_curves is not None:
            curves[name] = new_curves
        order = list(PARTS)
        rows.sort(key=lambda row: order.index(row["part"]))
        save("training", rows, curves=curves)
    if {"bias", "variance", "anchors"} <= curves.keys():
        plots(curves["bias"], curves["variance"], curves["anchors"])


if __name__ == "__main__":
    main(*sys.argv[1:])
