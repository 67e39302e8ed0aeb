"""The paper's claims, what was measured, and whether they hold: a page made from rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from drolearn.paper import supplement
from drolearn.paper.protocol import Protocol, Search
from drolearn.paper.rows import (
    Interval,
    Results,
    Rows,
    column,
    errors_at,
    interval,
    percent,
    seconds_to,
    settling_time,
)
from drolearn.paper.tables import Cell, Table, published_errors

__all__ = ["MARK", "beside_the_rows", "claims", "with_claims"]

#: The line of a page below which the claims are written.
MARK = "<!-- made by `drolearn reproduce all --page docs/paper.md` -->\n"

_HOLDS, _PARTLY, _NOT, _OPEN = "**holds**", "**holds in part**", "**does not hold**", "not measured"


@dataclass
class Claim:
    """One claim of the paper, what was measured, and the verdict."""

    title: str
    states: str
    measured: list[str] = field(default_factory=list)
    verdict: str = _OPEN

    def markdown(self) -> str:
        """A section of the page."""
        parts = [f"## {self.title}: {self.verdict}", f"*The paper:* {self.states}"]
        return "\n\n".join([*parts, *(part.rstrip() for part in self.measured)]) + "\n"


def with_claims(page: str, text: str) -> str:
    """A page with these claims below its mark."""
    if MARK not in page:
        raise ValueError(
            f"The page has no line {MARK.strip()!r}: add it where the claims should go."
        )
    return page[: page.index(MARK) + len(MARK)] + "\n" + text


def beside_the_rows(text: str) -> str:
    """The claims with links relative to the folder of the rows instead of the documentation."""
    text = text.replace("](../results/paper/", "](").replace(" ([how](training.md))", "")
    return text.replace(" as in [training.md](training.md)", "")


def claims(protocol: Protocol, rows: Rows) -> str:
    """All claims as Markdown."""
    results = Results(protocol, rows)
    parts = [
        _agreement(results), _unbiased(results), _bias(results), _small(results),
        _faster(results), _growth(results), _full(results), _tuned(results),
    ]  # fmt: skip
    sections = [part.markdown() for part in parts] + [
        supplement.methods_of_the_library(results),
        supplement.versions(results),
    ]
    return "\n".join(section for section in sections if section)


def _shown(each: Interval | None) -> str:
    return "–" if each is None else each.text()


def _below(a: Interval | None, b: Interval | None) -> bool:
    """Whether a is below b and their intervals do not overlap."""
    return a is not None and b is not None and a.mean < b.mean and not a.overlaps(b)


def _verdict(holds: Sequence[bool]) -> str:
    return _HOLDS if all(holds) else _PARTLY if any(holds) else _NOT


def _agreement(results: Results) -> Claim:
    claim = Claim(
        "Test errors of GSSG and PSSG",
        "Tables 1 and 2 give test errors with 95% intervals over ten permutations.",
    )
    artefact = results.protocol.artefacts.get("table2")
    if artefact is None:
        return claim
    table = Table(
        "Test errors in percent, measured (published), and whether the intervals overlap",
        ["data set", "method", *(f"ρ = {rho:g}" for rho in artefact.rho)],
    )
    missed, count = [], 0
    for dataset in results.datasets("table2"):
        published = results.protocol.datasets[dataset].published
        if published is None:
            continue
        for method in ("gssg", "pssg"):
            cells: list[str | Cell] = []
            for rho in artefact.rho:
                rows = results.of("table2", dataset=dataset, method=method, rho=rho)
                known = published_errors(published, method, rho)
                if not rows or known is None:
                    cells.append("–")
                    continue
                count += 1
                mean = percent(column(rows, "test_error"))
                outcome = "better" if mean.mean < known.mean else "✗"
                if mean.overlaps(known, rounding=0.1):
                    outcome = "overlap"
                elif outcome == "✗":
                    missed.append(_miss(results, dataset, method, rho, mean, known))
                cells.append(f"{mean.text()} ({known.text()}): {outcome}")
            table.rows.append([dataset, results.label(method), *cells])
    if count:
        claim.measured = [table.markdown(), *missed]
        claim.verdict = _verdict([True] * (count - len(missed)) + [False] * len(missed))
        claim.verdict += f" ({count - len(missed)} of {count})"
    return claim


def _miss(
    results: Results, dataset: str, method: str, rho: float, mean: Interval, known: Interval
) -> str:
    """What the rows say about a test error that is above the published one."""
    text = (
        f"{dataset}, {results.label(method)}, ρ = {rho:g}: {mean.mean - known.mean:.1f} points "
        f"above the published error."
    )
    tests = results.of("table2", dataset=dataset, method=method, rho=rho)[0]["n_test"]
    share = known.mean / 100.0
    # Student's 97.5% quantile for ten runs is 2.26; times 100 for percent.
    half = 226.0 * math.sqrt(share * (1.0 - share) / tests / 10.0)
    if known.half < 0.5 * half:
        text += (
            f" At this error, the mean over ten test sets of {tests} rows has an interval of about "
            f"± {half:.1f}; the published ± {known.half:g} is narrower than sampling allows."
        )
    exact = results.of("table2", dataset=dataset, method="exact", rho=rho)
    if exact:
        error = percent(column(exact, "test_error")).text()
        text += f" The exact minimum of the same objective has a test error of {error}."
    return text + " [choices](../results/paper/choices.md) lists the variants that were tried."


def _unbiased(results: Results) -> Claim:
    claim = Claim(
        "GSSG is unbiased",
        "E[G] = ∇R for N = 2^K (Proposition 3), with the level probabilities corrected as in "
        "[training.md](training.md).",
        [
            "For every N ≤ 9 the tests enumerate every subset of every level "
            "(`tests/test_draws.py`): the mean of all estimates equals the gradient on all rows "
            "up to rounding, for every divergence, base size and base weights."
        ],
        _HOLDS,
    )
    table = Table(
        "Robust loss on the training rows at the end, minus the exact minimum "
        "(hiv1, ρ = 0.1, mean of the runs)",
        ["method", "samples", "gap"],
    )
    exact = {
        row["seed"]: row["robust_loss"]
        for row in results.of("figure1", dataset="hiv1", method="exact")
    }
    methods = ("sgd", "gssg", "pssg", "fsg")
    for method, rows in results.by_method("figure1", methods, dataset="hiv1").items():
        paired = [row for row in rows if row["seed"] in exact]
        if paired:
            gap = interval(row["robust_loss"] - exact[row["seed"]] for row in paired)
            table.rows.append([results.label(method), _samples(paired), gap.text(None)])
    if table.rows:
        claim.measured.append(table.markdown())
    return claim


def _samples(rows: Rows) -> str:
    return f"{np.mean(column(rows, 'samples')):.2g}"


def _bias(results: Results) -> Claim:
    claim = Claim(
        "SGD stalls at a biased solution on the large set",
        "On RCV1, SGD with a fixed batch converges to a poorer solution than GSSG and PSSG "
        "(Figure 2).",
    )
    holds = []
    table = Table(
        "At the end: test error in percent, and robust loss on the training rows",
        ["data", "method", "samples", "test error", "robust loss"],
    )
    for artefact, dataset in (("figure2", "rcv1"), ("figure2", "rcv1_27k"), ("large", "text_like")):
        errors: dict[str, Interval] = {}
        methods = ("sgd", "gssg", "pssg", "exact")
        for method, rows in results.by_method(artefact, methods, dataset=dataset).items():
            errors[method] = percent(column(rows, "test_error"))
            loss = interval(column(rows, "robust_loss"))
            cells = [_samples(rows), errors[method].text(".2f"), loss.text(".4f")]
            name = f"{dataset} (N = {rows[0]['n_train']})"
            table.rows.append([name, results.label(method), *cells])
        if "sgd" in errors and "gssg" in errors:
            holds.append(_below(errors["gssg"], errors["sgd"]))
    if holds:
        claim.verdict = _verdict(holds)
        claim.measured = [
            table.markdown(),
            "The claim holds on a data set if SGD's test error is above GSSG's and the intervals "
            "do not overlap.",
        ]
    return claim


def _small(results: Results) -> Claim:
    claim = Claim(
        "PSSG is ahead on hiv1",
        "On the small set PSSG is significantly faster than FSG, SGD follows it, and GSSG is "
        "slower because of its variance (Figure 1).",
    )
    marks = [1e3, 1e4, 1e5, 1e6]
    table = Table(
        "Test error in percent on hiv1 (ρ = 0.1) by number of samples drawn",
        ["method", *(f"{mark:.0e}".replace("e+0", "e") for mark in marks), "end"],
    )
    means = {}
    methods = ("pssg", "sgd", "gssg", "fsg")
    for method, rows in results.by_method("figure1", methods, dataset="hiv1").items():
        means[method] = [errors_at(rows, mark) for mark in [*marks, math.inf]]
        table.rows.append([results.label(method), *map(_shown, means[method])])
    if {"pssg", "gssg"} <= means.keys():
        pairs = list(zip(means["pssg"], means["gssg"], strict=True))
        claim.verdict = _verdict([_below(*pair) for pair in pairs[:-1]])
        claim.measured = [
            table.markdown(),
            "The claim holds at a number of samples if PSSG's error is below GSSG's and the "
            "intervals do not overlap. The end does not count: both have converged there.",
        ]
    return claim


def _faster(results: Results) -> Claim:
    claim = Claim(
        "GSSG is faster than PSSG, and more so for larger N",
        "CPU times of Table 1: PSSG is faster on the two smallest sets, GSSG by 20-30% on the "
        "largest.",
    )
    table, slower = _settling_times(results)
    if table.rows:
        claim.measured.append(table.markdown())
        claim.measured.append(f"PSSG is faster on {slower} of {len(table.rows)} data sets.")
    scaling = results.protocol.artefacts.get("scaling")
    faster, grows = [], []
    for target in scaling.targets if scaling else []:
        ratios = _ratios(results, "pssg", target)
        if not ratios:
            continue
        shown = [f"{'' if hit else '> '}{r:.2g} × (N = {n})" for n, (r, hit) in ratios.items()]
        claim.measured.append(
            f"To reach a test error of {100 * target:g}% on the text-like data, PSSG needs "
            f"{_listed(shown)} the CPU time of GSSG."
        )
        (first, reached), (last, _) = ratios[min(ratios)], ratios[max(ratios)]
        faster.append(last > 1.0)
        # 1.5 is more than the noise of three runs; a lower bound of `first` proves nothing.
        grows.append(reached and last > 1.5 * first)
    if faster:
        claim.verdict = _verdict([all(faster), any(grows), slower == 0])
        claim.measured.append(
            "The claim holds if GSSG is faster at the largest N for every error, if the ratio "
            "grows by half or more from the smallest N to the largest for at least one error, and "
            "if GSSG is faster on the data sets above."
        )
    return claim


def _settling_times(results: Results) -> tuple[Table, int]:
    """Times of GSSG and PSSG on the data sets, and on how many of them PSSG is faster."""
    table = Table(
        "CPU seconds until the test error stays within half a point of the last one (ρ = 0.1)",
        ["data set", "training rows", "GSSG", "PSSG", "PSSG / GSSG", "published"],
    )
    slower = 0
    for dataset in results.datasets("table1"):
        by_method = results.by_method("table1", ("gssg", "pssg"), dataset=dataset)
        times = {m: interval(map(settling_time, rows)) for m, rows in by_method.items()}
        if len(times) < 2:
            continue
        ratio = times["pssg"].mean / times["gssg"].mean
        slower += ratio < 1.0
        cells = [times["gssg"].text(None), times["pssg"].text(None), f"{ratio:.2g}"]
        count = str(by_method["gssg"][0]["n_train"])
        table.rows.append([dataset, count, *cells, _published_ratio(results, dataset, "pssg")])
    return table, slower


def _published_ratio(
    results: Results, dataset: str, method: Literal["pssg", "erm"], form: str = ".2f"
) -> str:
    """The published CPU time of a method divided by that of GSSG."""
    published = results.protocol.datasets[dataset].published
    return f"{published.seconds[method] / published.seconds['gssg']:{form}}" if published else "–"


def _times(results: Results, method: str, target: float) -> dict[int, tuple[Interval, bool]]:
    """CPU seconds to a test error by number of rows, and whether all runs reached it.

    If not, the seconds are those of the complete runs.
    """
    times = {}
    artefact = results.protocol.artefacts.get("scaling")
    for size in artefact.sizes if artefact else []:
        rows = results.of("scaling", method=method, n_train=size)
        if rows:
            seconds = [seconds_to(row, target) for row in rows]
            reached = all(math.isfinite(each) for each in seconds)
            times[size] = interval(seconds if reached else column(rows, "seconds")), reached
    return times


def _ratios(results: Results, method: str, target: float) -> dict[int, tuple[float, bool]]:
    """Times of a method divided by GSSG's, where GSSG reached the error; and if the method did."""
    gssg, others = _times(results, "gssg", target), _times(results, method, target)
    return {
        size: (others[size][0].mean / each.mean, others[size][1])
        for size, (each, reached) in gssg.items()
        if reached and size in others
    }


def _growth(results: Results) -> Claim:
    claim = Claim(
        "GSSG's cost does not depend on N",
        "The expected cost of a GSSG step is bounded for every N (Theorem 4); those of PSSG and "
        "FSG grow with N.",
    )
    artefact = results.protocol.artefacts.get("scaling")
    if artefact is None:
        return claim
    growth: list[float] = []
    for target in artefact.targets:
        table = Table(
            f"CPU seconds to a test error of {100 * target:g}%, text-like data",
            ["method", *(f"N = {size}" for size in artefact.sizes), "last / first"],
        )
        for method in artefact.methods:
            times = _times(results, method, target)
            cells = [_time(times.get(size)) for size in artefact.sizes]
            first, last = (times.get(artefact.sizes[end]) for end in (0, -1))
            shown = "–"
            if first and last and first[1] and last[1]:
                ratio = last[0].mean / first[0].mean
                shown = f"{ratio:.2f}"
                growth += [ratio] if method == "gssg" else []
            table.rows.append([results.label(method), *cells, shown])
        if any(cell != "–" for row in table.rows for cell in row[1:]):
            claim.measured.append(table.markdown())
    if growth:
        claim.verdict = _verdict([ratio <= 3.0 for ratio in growth])
    if claim.measured:
        claim.measured.append(
            "The claim holds if last / first of GSSG is at most 3. A time with > is that of runs "
            "that used all their samples without reaching the error. "
            "![CPU time](../results/paper/scaling.png)"
        )
    return claim


def _time(time: tuple[Interval, bool] | None) -> str:
    if time is None:
        return "–"
    each, reached = time
    return each.text(None) if reached else f"> {each.mean:.2g}"


def _full(results: Results) -> Claim:
    claim = Claim(
        "FSG is not competitive",
        "FSG needs orders of magnitude more samples and CPU time on both sets (Figures 1-4).",
    )
    table = Table(
        "Test error in percent at equal numbers of samples (ρ = 0.1)",
        ["data set", "samples", "FSG", "PSSG", "GSSG"],
    )
    behind = []
    for artefact, dataset in (
        ("figure1", "hiv1"), ("figure2", "rcv1"), ("figure2", "rcv1_27k"), ("large", "text_like"),
    ):  # fmt: skip
        by_method = results.by_method(artefact, ("fsg", "pssg", "gssg"), dataset=dataset)
        if len(by_method) < 3:
            continue
        for samples in (1e5, 1e6, math.inf):
            fsg, pssg, gssg = (errors_at(rows, samples) for rows in by_method.values())
            drawn = f"{min(samples, *column(by_method['fsg'], 'samples')):.1e}"
            table.rows.append([dataset, drawn, *map(_shown, (fsg, pssg, gssg))])
            if fsg is not None:
                behind.append(_below(pssg, fsg) and _below(gssg, fsg))
    if behind:
        claim.verdict = _verdict(behind)
        claim.measured = [
            table.markdown(),
            "The claim holds in a line if FSG's error is above both others and the intervals do "
            "not overlap. A – means that FSG has not made its first step.",
        ]
    return claim


def _tuned(results: Results) -> Claim:
    claim = Claim(
        "DRL is as good as tuned ERM at a fraction of the time",
        "GSSG or PSSG match or beat ERM with a cross-validated penalty on most data sets, in two "
        "to three orders of magnitude less CPU time (Table 1).",
    )
    table = Table(
        "Test error in percent and CPU seconds (ρ = 0.1)",
        ["data set", "GSSG", "PSSG", "ERM", "time ERM / GSSG", "published", "l2=0",
         "time ERM / l2=0"],
    )  # fmt: skip
    good, to_gssg, to_default, overfitted, fits = [], [], [], [], []
    methods = ("gssg", "pssg", "erm", "default")
    for dataset in results.datasets("table1"):
        by_method = results.by_method("table1", methods, dataset=dataset)
        if len(by_method) < len(methods):
            continue
        errors = {m: percent(column(rows, "test_error")) for m, rows in by_method.items()}
        times = {m: float(np.mean(column(rows, "seconds"))) for m, rows in by_method.items()}
        drl = min(errors["gssg"], errors["pssg"], key=lambda each: each.mean)
        good.append(not _below(errors["erm"], drl))
        if _below(drl, errors["default"]) and not any(column(by_method["default"], "train_error")):
            overfitted.append(dataset)
        to_gssg.append(times["erm"] / times["gssg"])
        to_default.append(times["erm"] / times["default"])
        fits.append(np.mean([_fits(results, row) for row in by_method["erm"]]))
        shown = [errors[m].text() for m in ("gssg", "pssg", "erm")]
        shown += [f"{to_gssg[-1]:.2g}", _published_ratio(results, dataset, "erm", ".0f")]
        table.rows.append([dataset, *shown, errors["default"].text(), f"{to_default[-1]:.2g}"])
    if not good:
        return claim
    claim.measured = [
        table.markdown(),
        f"The better of GSSG and PSSG is as good as ERM or better on {sum(good)} of {len(good)} "
        f"data sets: ERM's interval is not below its interval. ERM's search takes "
        f"{min(to_gssg):.2g} to {max(to_gssg):.2g} times the CPU time of one GSSG run, and "
        f"{min(to_default):.2g} to {max(to_default):.2g} times that of `RobustClassifier(l2=0)`. "
        f"It makes {min(fits):.0f} to {max(fits):.0f} fits. In the paper a fit takes as long as a "
        f"DRL run, which would make this number the ratio. Here a fit of the search draws at most "
        f"a {_share(results)} of the samples of a GSSG run (`[methods.erm]` of the protocol).",
    ]
    if overfitted:
        claim.measured.append(
            f"On {_listed(overfitted)} `RobustClassifier(l2=0)` overfits: it classifies all "
            f"training rows correctly and has a higher test error than the better of GSSG and "
            f"PSSG. None of the three has a penalty, but the stochastic methods stop before the "
            f"minimum of the robust loss. Use `l2`; by default the estimator has a penalty."
        )
    as_good = sum(good) > len(good) / 2
    claim.verdict = _verdict([as_good, bool(np.median(to_gssg) >= 100.0)])
    return claim


def _fits(results: Results, row: dict[str, Any]) -> float:
    """Fits of a search, from its samples and those of each fit."""
    search, budget = results.protocol.methods["erm"], results.protocol.budget
    assert isinstance(search, Search)
    n = row["n_train"]
    last = min(budget.samples, budget.passes * n)
    inside = min(search.samples, search.passes * n * (1.0 - 1.0 / search.folds))
    return (row["samples"] - last) / inside + 1.0


def _share(results: Results) -> str:
    search = results.protocol.methods["erm"]
    assert isinstance(search, Search)
    return f"{results.protocol.budget.samples / search.samples:.0f}th"


def _listed(parts: Iterable[str]) -> str:
    words: Sequence[str] = list(parts)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
