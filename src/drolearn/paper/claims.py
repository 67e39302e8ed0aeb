"""What the paper states, what was measured, and whether it holds: a page made from rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drolearn import datasets
from drolearn.paper.protocol import Artefact, Protocol, Search
from drolearn.paper.tables import (
    Cell,
    Interval,
    Rows,
    Table,
    column,
    has,
    interval,
    percent,
    published_errors,
    seconds_to,
    select,
)

__all__ = ["MARK", "beside_the_rows", "claims", "with_claims"]

#: What follows this line on a page is made from rows.
MARK = "<!-- made by `drolearn reproduce all --page docs/paper.md` -->\n"

_HOLDS, _PARTLY, _NOT, _OPEN = "**holds**", "**holds in part**", "**does not hold**", "not measured"


@dataclass
class Claim:
    """One statement of the paper and what became of it."""

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
        raise ValueError(f"The page has no line {MARK.strip()!r}, below which the claims would go.")
    return page[: page.index(MARK) + len(MARK)] + "\n" + text


def beside_the_rows(text: str) -> str:
    """The claims with links that lead from the folder of the rows, not from the documentation."""
    return text.replace("](../results/paper/", "](").replace(
        " as in [training.md](training.md)", ""
    )


def claims(protocol: Protocol, rows: Rows) -> str:
    """All claims, one after the other."""
    found = _Found(protocol, rows)
    parts = [
        _agreement(found), _unbiased(found), _bias(found), _small(found), _faster(found),
        _growth(found), _full(found), _tuned(found),
    ]  # fmt: skip
    return "\n".join(part.markdown() for part in parts)


class _Found:
    """The rows of the artefacts, by their names."""

    def __init__(self, protocol: Protocol, rows: Rows) -> None:
        self.protocol, self.rows = protocol, rows
        self._known: dict[str, Rows] = {}

    def of(self, artefact: str, **values: Any) -> Rows:
        """Its rows with these values; none if the protocol does not have it."""
        if artefact not in self.protocol.artefacts:
            return []
        if artefact not in self._known:
            self._known[artefact] = select(self.rows, self.protocol.runs(artefact))
        return [row for row in self._known[artefact] if has(row, values)]

    def label(self, method: str) -> str:
        return self.protocol.methods[method].label

    def datasets(self, artefact: str) -> list[str]:
        """Those with rows, the smallest first."""
        names = {row["dataset"] for row in self.of(artefact)}
        return sorted(names, key=lambda name: datasets.CATALOGUE[name].n)


def _errors_at(rows: Rows, samples: float) -> Interval | None:
    """Test errors in percent when so many samples were drawn; None before the first look."""
    held = []
    for row in rows:
        at = np.searchsorted(np.asarray(row["at_samples"]), samples * 1.001, "right") - 1
        if at < 0:
            return None
        held.append(np.asarray(row["at_errors"])[at])
    return percent(held)


def _shown(each: Interval | None) -> str:
    return "–" if each is None else each.text()


def _below(a: Interval | None, b: Interval | None) -> bool:
    """Whether a lies below b, and their intervals do not meet."""
    return a is not None and b is not None and a.mean < b.mean and not a.meets(b)


def _judged(verdicts: Sequence[bool]) -> str:
    return _HOLDS if all(verdicts) else _PARTLY if any(verdicts) else _NOT


def _arrival(row: dict[str, Any], slack: float = 0.005) -> float:
    """CPU seconds after which the test error stays within half a point of its last."""
    errors = np.asarray(row["at_errors"])
    outside = np.flatnonzero(errors > errors[-1] + slack)
    first = 0 if outside.size == 0 else int(outside[-1]) + 1
    return float(np.asarray(row["at_seconds"])[first])


def _agreement(found: _Found) -> Claim:
    claim = Claim(
        "Test errors of GSSG and PSSG",
        "Tables 1 and 2 give test errors with 95% intervals over ten permutations.",
    )
    artefact = found.protocol.artefacts.get("table2")
    if artefact is None:
        return claim
    radii = artefact.rho
    table = Table(
        "Test errors in percent, measured (published), and whether the intervals meet",
        ["data set", "method", *(f"ρ = {rho:g}" for rho in radii)],
    )
    missed, count = [], 0
    for dataset in found.datasets("table2"):
        published = found.protocol.datasets[dataset].published
        if published is None:
            continue
        for method in ("gssg", "pssg"):
            cells: list[str | Cell] = []
            for rho in radii:
                own = found.of("table2", dataset=dataset, method=method, rho=rho)
                known = published_errors(published, method, rho)
                if not own or known is None:
                    cells.append("–")
                    continue
                mine = percent(column(own, "test_error"))
                meet = mine.meets(known, printed=0.1)
                said = "meet" if meet else "better" if mine.mean < known.mean else "✗"
                count += 1
                if said == "✗":
                    missed.append(_miss(found, dataset, method, rho, mine, known))
                cells.append(f"{mine.text()} ({known.text()}): {said}")
            table.rows.append([dataset, found.label(method), *cells])
    if not count:
        return claim
    claim.measured = [table.markdown(), *missed]
    claim.verdict = _judged([True] * (count - len(missed)) + [False] * len(missed))
    claim.verdict += f" ({count - len(missed)} of {count})"
    return claim


def _miss(
    found: _Found, dataset: str, method: str, rho: float, mine: Interval, known: Interval
) -> str:
    """What the rows tell about a result that is worse than what was published."""
    text = (
        f"{dataset}, {found.label(method)}, ρ = {rho:g}: {mine.mean - known.mean:.1f} points above "
        f"what was published."
    )
    tests = found.of("table2", dataset=dataset, method=method, rho=rho)[0]["n_test"]
    share = known.mean / 100.0
    reach = 226.0 * math.sqrt(share * (1.0 - share) / tests / 10.0)
    if known.half < 0.5 * reach:
        text += (
            f" The mean of ten test sets of {tests} rows has an interval of about ± {reach:.1f} at "
            f"this error; the published ± {known.half:g} is narrower than chance alone allows."
        )
    exact = found.of("table2", dataset=dataset, method="exact", rho=rho)
    if exact:
        least = percent(column(exact, "test_error"))
        text += f" The exact minimum of the same objective has {least.text()}."
    return text + " What was tried is in [choices](../results/paper/choices.md)."


def _unbiased(found: _Found) -> Claim:
    claim = Claim(
        "GSSG is unbiased",
        "E[G] = ∇R for N = 2^K (Theorem 1), with the level probabilities corrected as in "
        "[training.md](training.md).",
        [
            "For every N ≤ 9 the tests enumerate every subset of every level "
            "(`tests/test_draws.py`): the mean of all estimates equals the gradient of all rows "
            "to rounding, for every divergence, base size and base weights."
        ],
        _HOLDS,
    )
    table = Table(
        "Robust loss on the training rows at the end, above the exact minimum "
        "(hiv1, ρ = 0.1, mean of the runs)",
        ["method", "samples", "gap"],
    )
    exact = {row["seed"]: row for row in found.of("figure1", dataset="hiv1", method="exact")}
    for method in ("sgd", "gssg", "pssg", "fsg"):
        own = found.of("figure1", dataset="hiv1", method=method)
        own = [row for row in own if row["seed"] in exact]
        if own:
            gaps = [row["robust_loss"] - exact[row["seed"]]["robust_loss"] for row in own]
            samples = f"{np.mean(column(own, 'samples')):.2g}"
            table.rows.append([found.label(method), samples, interval(gaps).text(None)])
    if table.rows:
        claim.measured.append(table.markdown())
    return claim


def _bias(found: _Found) -> Claim:
    claim = Claim(
        "SGD stalls at a biased solution on the large set",
        "On RCV1, SGD with a fixed batch converges to a poorer solution than GSSG and PSSG "
        "(Figure 2).",
    )
    verdicts = []
    table = Table(
        "At the end: test error in percent, and robust loss on the training rows",
        ["data", "method", "samples", "test error", "robust loss"],
    )
    for artefact, dataset in (("figure2", "rcv1"), ("figure2", "rcv1_27k"), ("large", "text_like")):
        errors: dict[str, Interval] = {}
        for method in ("sgd", "gssg", "pssg", "exact"):
            own = found.of(artefact, dataset=dataset, method=method)
            if own:
                errors[method] = percent(column(own, "test_error"))
                loss = interval(column(own, "robust_loss"))
                samples = f"{np.mean(column(own, 'samples')):.2g}"
                cells = [errors[method].text(".2f"), loss.text(".4f")]
                name = f"{dataset} (N = {own[0]['n_train']})"
                table.rows.append([name, found.label(method), samples, *cells])
        if "sgd" in errors and "gssg" in errors:
            verdicts.append(_below(errors["gssg"], errors["sgd"]))
    if verdicts:
        claim.verdict = _judged(verdicts)
        claim.measured = [
            table.markdown(),
            "The claim is taken to hold where SGD's test error lies above GSSG's and their "
            "intervals do not meet.",
        ]
    return claim


def _small(found: _Found) -> Claim:
    claim = Claim(
        "PSSG is ahead on hiv1",
        "On the small set PSSG is significantly faster than FSG, SGD follows it, and GSSG's "
        "variance holds it back (Figure 1).",
    )
    marks = [1e3, 1e4, 1e5, 1e6]
    table = Table(
        "Test error in percent on hiv1 (ρ = 0.1) when so many samples were drawn",
        ["method", *(f"{mark:.0e}".replace("e+0", "e") for mark in marks), "end"],
    )
    means = {}
    for method in ("pssg", "sgd", "gssg", "fsg"):
        own = found.of("figure1", dataset="hiv1", method=method)
        if own:
            means[method] = [_errors_at(own, mark) for mark in [*marks, math.inf]]
            table.rows.append([found.label(method), *map(_shown, means[method])])
    if {"pssg", "gssg"} <= means.keys():
        pairs = list(zip(means["pssg"], means["gssg"], strict=True))
        claim.verdict = _judged([_below(*pair) for pair in pairs[:-1]])
        claim.measured = [
            table.markdown(),
            "The claim is taken to hold where PSSG's error lies below GSSG's on the way and their "
            "intervals do not meet; at the end both have arrived.",
        ]
    return claim


def _faster(found: _Found) -> Claim:
    claim = Claim(
        "GSSG is faster than PSSG, the more the larger N",
        "CPU times of Table 1: PSSG is faster on the two smallest sets, GSSG by 20-30% on the "
        "largest.",
    )
    table = Table(
        "CPU seconds until the test error stays within half a point of its last (ρ = 0.1)",
        ["data set", "training rows", "GSSG", "PSSG", "PSSG / GSSG", "published"],
    )
    slower = 0
    for dataset in found.datasets("table1"):
        times: dict[str, Interval] = {}
        for method in ("gssg", "pssg"):
            own = found.of("table1", dataset=dataset, method=method)
            if own:
                times[method] = interval(_arrival(row) for row in own)
        if len(times) < 2:
            continue
        given = found.protocol.datasets[dataset].published
        said = f"{given.seconds['pssg'] / given.seconds['gssg']:.2f}" if given else "–"
        rows = str(found.of("table1", dataset=dataset)[0]["n_train"])
        ratio = times["pssg"].mean / times["gssg"].mean
        slower += ratio < 1.0
        cells = [times["gssg"].text(None), times["pssg"].text(None), f"{ratio:.2g}", said]
        table.rows.append([dataset, rows, *cells])
    if table.rows:
        claim.measured.append(table.markdown())
        claim.measured.append(f"PSSG arrives first on {slower} of {len(table.rows)} data sets.")
    scaling = found.protocol.artefacts.get("scaling")
    faster, grows = [], []
    for target in scaling.targets if scaling else []:
        ratios = _ratios(found, "pssg", target)
        if not ratios:
            continue
        shown = [f"{'' if there else '> '}{r:.2g} × at N = {n}" for n, (r, there) in ratios.items()]
        claim.measured.append(
            f"To a test error of {100 * target:g}% on the text-like data PSSG takes "
            f"{_listed(shown)} of GSSG's CPU time."
        )
        (first, known), (last, _) = ratios[min(ratios)], ratios[max(ratios)]
        faster.append(last > 1.0)
        # Beyond what chance does to three runs; a lower bound proves growth, not its absence.
        grows.append(known and last > 1.5 * first)
    if faster:
        claim.verdict = _judged([all(faster), any(grows), slower == 0])
        claim.measured.append(
            "The claim is taken to hold if GSSG is ahead at the largest N for every error, if "
            "PSSG's share grows by half or more from the smallest N to the largest for one of "
            "them, and if GSSG is ahead on the data sets above."
        )
    return claim


def _times(found: _Found, method: str, target: float) -> dict[int, tuple[Interval, bool]]:
    """CPU seconds to a test error by number of rows; if not reached (False), those spent."""
    out = {}
    artefact = found.protocol.artefacts.get("scaling")
    for size in artefact.sizes if artefact else []:
        own = found.of("scaling", method=method, n_train=size)
        if own:
            times = [seconds_to(row, target) for row in own]
            reached = all(math.isfinite(each) for each in times)
            out[size] = interval(times if reached else column(own, "seconds")), reached
    return out


def _ratios(found: _Found, method: str, target: float) -> dict[int, tuple[float, bool]]:
    """Times of a method over GSSG's, where GSSG arrived; and whether the method did."""
    mine, others = _times(found, "gssg", target), _times(found, method, target)
    return {
        size: (others[size][0].mean / each.mean, others[size][1])
        for size, (each, there) in mine.items()
        if there and size in others
    }


def _growth(found: _Found) -> Claim:
    artefact: Artefact | None = found.protocol.artefacts.get("scaling")
    claim = Claim(
        "GSSG's cost does not depend on N",
        "The expected cost of a GSSG step is bounded for every N (Theorem 1); those of PSSG and "
        "FSG grow with N.",
    )
    if artefact is None:
        return claim
    grown: list[float] = []
    for target in artefact.targets:
        table = Table(
            f"CPU seconds to a test error of {100 * target:g}%, text-like data",
            ["method", *(f"N = {size}" for size in artefact.sizes), "last / first"],
        )
        for method in artefact.methods:
            times = _times(found, method, target)
            cells = [_time(*times[size]) if size in times else "–" for size in artefact.sizes]
            ratio = math.nan
            first, last = (times.get(artefact.sizes[end]) for end in (0, -1))
            if first and last and first[1] and last[1]:
                ratio = last[0].mean / first[0].mean
                if method == "gssg":
                    grown.append(ratio)
            shown = "–" if math.isnan(ratio) else f"{ratio:.2f}"
            table.rows.append([found.label(method), *cells, shown])
        if any(cell != "–" for row in table.rows for cell in row[1:]):
            claim.measured.append(table.markdown())
    if grown:
        claim.verdict = _judged([ratio <= 3.0 for ratio in grown])
    if claim.measured:
        claim.measured.append(
            "Goal: GSSG's last / first at most 3. A time with > is that of a run that had not "
            "come there when its samples were used up. ![CPU time](../results/paper/scaling.png)"
        )
    return claim


def _time(each: Interval, reached: bool) -> str:
    return each.text(None) if reached else f"> {each.mean:.2g}"


def _full(found: _Found) -> Claim:
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
        own = {m: found.of(artefact, dataset=dataset, method=m) for m in ("fsg", "pssg", "gssg")}
        if not all(own.values()):
            continue
        for samples in (1e5, 1e6, math.inf):
            at = [_errors_at(rows, samples) for rows in own.values()]
            drawn = f"{min(samples, *column(own['fsg'], 'samples')):.1e}"
            table.rows.append([dataset, drawn, *map(_shown, at)])
            if at[0] is not None:
                behind.append(_below(at[1], at[0]) and _below(at[2], at[0]))
    if behind:
        claim.verdict = _judged(behind)
        claim.measured = [
            table.markdown(),
            "The claim is taken to hold where FSG's error lies above both others and the intervals "
            "do not meet. A – stands where FSG has not made its first step.",
        ]
    return claim


def _tuned(found: _Found) -> Claim:
    claim = Claim(
        "DRL is as good as tuned ERM at a fraction of the time",
        "GSSG or PSSG match or beat ERM with a cross-validated penalty on most data sets, in two "
        "to three orders of magnitude less CPU time (Table 1).",
    )
    ours = ["drolearn", "time ERM / drolearn"]
    table = Table(
        "Test error in percent and CPU seconds (ρ = 0.1)",
        ["data set", "GSSG", "PSSG", "ERM", "time ERM / GSSG", "published", *ours],
    )
    good, fractions, searches, overfits, whole = [], [], [], [], []
    for dataset in found.datasets("table1"):
        methods = ("gssg", "pssg", "erm", "default")
        own = {m: found.of("table1", dataset=dataset, method=m) for m in methods}
        if not all(own.values()):
            continue
        errors = {m: percent(column(rows, "test_error")) for m, rows in own.items()}
        times = {m: float(np.mean(column(rows, "seconds"))) for m, rows in own.items()}
        drl = min(errors["gssg"], errors["pssg"], key=lambda each: each.mean)
        good.append(not _below(errors["erm"], drl))
        if _below(drl, errors["default"]) and not any(column(own["default"], "train_error")):
            overfits.append(dataset)
        fractions.append(times["erm"] / times["gssg"])
        searches.append(times["erm"] / times["default"])
        whole.append(np.mean([_fits(found, row) for row in own["erm"]]))
        given = found.protocol.datasets[dataset].published
        said = f"{given.seconds['erm'] / given.seconds['gssg']:.0f}" if given else "–"
        shown = [errors[m].text() for m in ("gssg", "pssg", "erm")]
        cells = [f"{fractions[-1]:.2g}", said, errors["default"].text(), f"{searches[-1]:.2g}"]
        table.rows.append([dataset, *shown, *cells])
    if not good:
        return claim
    claim.measured = [
        table.markdown(),
        f"As good as ERM, or better, on {sum(good)} of {len(good)} data sets: ERM's interval does "
        f"not lie below that of the better of the two. ERM's search takes {min(fractions):.2g} to "
        f"{max(fractions):.2g} times the CPU time of one GSSG run, and {min(searches):.2g} to "
        f"{max(searches):.2g} times that of `RobustClassifier(l2=0)`. It makes {min(whole):.0f} to "
        f"{max(whole):.0f} fits; the paper says that one of them takes the time of a DRL run, "
        f"which would make that the ratio. Here a fit of the search draws at most a "
        f"{_share(found)} of the samples of a GSSG run (`[methods.erm]` of the protocol).",
    ]
    if overfits:
        claim.measured.append(
            f"On {_listed(overfits)} `RobustClassifier(l2=0)` tells all training rows apart "
            f"without an error and does worse than the better of GSSG and PSSG on test rows: it "
            f"minimises the robust loss to its end and, like them, has no penalty, where the "
            f"stochastic methods stop before. `l2` is the remedy there; by default the estimator "
            f"has a penalty."
        )
    as_good = sum(good) > len(good) / 2
    orders = np.median(fractions) >= 100.0
    claim.verdict = _judged([as_good, bool(orders)])
    return claim


def _fits(found: _Found, row: dict[str, Any]) -> float:
    """Fits of a search, from the samples it drew and those of each fit."""
    search, budget = found.protocol.methods["erm"], found.protocol.budget
    assert isinstance(search, Search)
    n = row["n_train"]
    last = min(budget.samples, budget.passes * n)
    inside = min(search.samples, search.passes * n * (1.0 - 1.0 / search.folds))
    return (row["samples"] - last) / inside + 1.0


def _share(found: _Found) -> str:
    search = found.protocol.methods["erm"]
    assert isinstance(search, Search)
    return f"{found.protocol.budget.samples / search.samples:.0f}th"


def _listed(parts: Iterable[str]) -> str:
    words: Sequence[str] = list(parts)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
