"""The demo: its sentences are true for numbers that differ from those of its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples.demo import curve, methods, shift
from examples.demo.common import Interval, compared
from rich.console import Console

ROOT = Path(__file__).parents[1]
NOISE = np.array([-0.1, 0.0, 0.1])


def text_of(table) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


# -- comparisons in words ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "half", "words"),
    [
        (-4.24, 0.4, "4.2 ± 0.4% lower than it"),
        (4.24, 0.4, "4.2 ± 0.4% higher than it"),
        (-0.3, 0.4, "not clearly different from it (0.3 ± 0.4% lower)"),
        (0.3, 0.4, "not clearly different from it (0.3 ± 0.4% higher)"),
        (0.088, 0.021, "0.09 ± 0.02% higher than it"),
        (0.0, 0.0, "not clearly different from it (0.00 ± 0.00% higher)"),
    ],
)
def test_comparisons_follow_from_the_interval(mean, half, words):
    assert compared(Interval(mean, half), "%", "it") == words


def test_intervals_are_those_of_student():
    from scipy.stats import ttest_1samp

    values = np.random.default_rng(0).standard_normal(7)
    found, expected = Interval.of(values), ttest_1samp(values, 0.0).confidence_interval()
    assert found.mean - found.half == pytest.approx(expected.low)
    assert found.mean + found.half == pytest.approx(expected.high)
    assert Interval.of_change([90.0, 180.0], [100.0, 200.0]) == Interval(pytest.approx(-10.0), 0.0)


# -- part 1 --------------------------------------------------------------------------------------


def years(**rmse: tuple[float, float]) -> shift.Shift:
    """Results on three splits, with errors in 2011 and 2012 of each model."""
    names = {"plain": "Ridge", "reweighted": "reweighted Ridge", "ball": "ball over years"}
    values = {names[key]: np.array(pair) + NOISE[:, None] for key, pair in rmse.items()}
    return shift.Shift(values, np.full(3, 0.25))


def test_sentences_about_years():
    good = shift.explain(years(plain=(50, 100), reweighted=(60, 90), ball=(70, 80)))
    assert "Ridge in 2012 is 100.0 ± 0.5% higher than its RMSE in 2011" in good
    assert "the ball is 20.00 ± 0.05% lower than that of Ridge, and 11.11 ± 0.03% lower" in good
    assert "than that of reweighted Ridge. In 2011, it is 40.0 ± 0.2% higher than" in good
    assert "here 25%" in good
    bad = shift.explain(years(plain=(100, 80), reweighted=(90, 90), ball=(50, 110)))
    assert "Ridge in 2012 is 20.00 ± 0.05% lower than its RMSE in 2011" in bad
    assert "the ball is 10.00 ± 0.02% higher than that of Ridge, and 22.2 ± 0.1% higher" in bad
    assert "than that of reweighted Ridge. In 2011, it is 50.0 ± 0.1% lower than" in bad
    same = shift.explain(years(plain=(50, 50), reweighted=(50, 50), ball=(50, 50)))
    assert same.count("not clearly different from") == 4


def test_the_ball_over_years_is_better_in_the_worse_year():
    rmse, weight = shift._split(0)
    plain, reweighted, ball = rmse.max(axis=1)
    assert ball < 0.85 * plain
    assert ball < 0.97 * reweighted
    assert 0.5 < weight < 1.0


# -- part 2 --------------------------------------------------------------------------------------


def worst_cases() -> curve.Curve:
    groups = [curve.Group("a", 0.5, 0.3, 1.0, 0.6), curve.Group("b", 0.2, 0.1, 4.0, 0.9)]
    cases = [curve.Case(0.0, 0.3, 0.2, 0.25, 0.2, 0.0), curve.Case(1.0, 0.9, 0.6, 0.5, 0.4, 2e-15)]
    radii = np.array([0.1, 1.0])
    mix = curve.Mix("nurses", 0.1, 0.3)
    return curve.Curve(1000, cases, groups, mix, radii, np.array([0.3, 0.6]), np.array([0.3, 0.4]))


def test_sentences_about_worst_cases():
    text = curve.explain(worst_cases())
    assert "without a shift the error is 20.0%" in text
    assert "every part of 50% of the people; there the error can be 60.0%" in text
    assert "50% high incomes instead of 25%" in text
    assert "at most 40.0%; in that mix the share of nurses grows most, from 10% to 30%" in text
    assert "Of the 2 groups in the picture, 1 have a larger error" in text
    assert "The largest is 30.0% (a, 50% of the people)" in text
    assert "radius 1.0 and the bound 60.0%" in text
    assert "gap in the table is 2e-15" in text
    low = [replace(group, error=group.error / 3) for group in worst_cases().groups]
    text = curve.explain(replace(worst_cases(), groups=low))
    assert "Of the 2 groups in the picture, 0 have a larger error" in text


def test_groups_are_below_the_bound_of_the_ball_that_holds_them():
    rng = np.random.default_rng(0)
    wrong, members = (rng.random(500) < 0.3).astype(float), rng.random(500) < 0.2
    group = curve._group("some", members, wrong)
    assert group.radius == pytest.approx(1.0 / group.share - 1.0)
    assert group.error <= group.bound


# -- part 3 --------------------------------------------------------------------------------------


def fits(**values: tuple[float, float, float]) -> methods.Results:
    """Three runs of each method, from error, robust loss and seconds."""
    usual = dict.fromkeys(methods.NAMES, (15.0, 0.5, 1.0)) | values
    runs = [
        methods.Run(name, passes, 100.0 * (passes + 1.0), error + noise, loss * (1 + noise), spent)
        for name, (error, loss, spent) in usual.items()
        for passes in (methods.PASSES if name in methods.STOCHASTIC else (0.0,))
        for noise in NOISE / 100
    ]
    return methods.Results(runs, {"GSSG": Interval(15.5, 0.3)})


def test_sentences_about_methods():
    good = methods.explain(fits(exact=(15.0, 0.4, 2.0), tuned=(15.0, 0.5, 6.0)))
    assert (
        "(exact solver) is 20.00 ± 0.00% lower than that of logistic regression; its error" in good
    )
    assert "error is not clearly different from that of logistic regression" in good
    assert "robust loss of GSSG is 25.00 ± 0.00% higher than that of the exact solver" in good
    assert "takes 3.0 times the CPU time" in good
    assert "GSSG is 0.5 ± 0.3 points lower than in the paper" in good
    bad = methods.explain(fits(exact=(16.0, 0.6, 2.0), GSSG=(17.0, 0.3, 1.0)))
    assert "(exact solver) is 20.00 ± 0.00% higher than that of logistic regression" in bad
    assert "its error is 1.00 ± 0.00 points higher than that of logistic regression" in bad
    assert "robust loss of GSSG is 50.00 ± 0.00% lower than that of the exact solver" in bad
    assert "takes 0.5 times the CPU time" in bad
    assert "GSSG is 1.5 ± 0.3 points higher than in the paper" in bad


def test_the_published_errors_are_those_of_the_protocol():
    assert methods.published() == {
        "tuned": Interval(16.7, 0.0), "PSSG": Interval(16.6, 0.1), "GSSG": Interval(17.1, 0.3),
    }  # fmt: skip


# -- output --------------------------------------------------------------------------------------


def test_tables_and_panels_show_the_numbers():
    from matplotlib.figure import Figure

    both = years(plain=(50, 100), reweighted=(60, 90), ball=(70, 80))
    for part, result, cells in (
        (shift, both, ["50.0 ± 0.2", "100.0 ± 0.2", "-20.0 ± 0.0%"]),
        (curve, worst_cases(), ["1,000 test people", "60.0%", "0.900"]),
        (methods, fits(), ["15.0 ± 0.0", "15.5 ± 0.3", "0.500 ± 0.001"]),
    ):
        table = text_of(part.table(result))
        for cell in cells:
            assert cell in table
        axes = Figure().subplots()
        part.draw(axes, result)
        assert axes.get_legend() is not None
        assert axes.get_xlabel()
        assert axes.get_ylabel()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no process groups")
@pytest.mark.xdist_group("processes")
def test_an_interrupt_ends_the_demo_without_tracebacks(tmp_path):
    def heed_ctrl_c():  # a process that was started in the background ignores SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        [sys.executable, "-u", "-m", "examples.demo"], cwd=tmp_path, start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, preexec_fn=heed_ctrl_c, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        while "groups=year" not in (line := demo.stdout.readline()):
            assert line, "the demo has ended"
        os.killpg(demo.pid, signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 130
    assert rest.endswith("Stopped.\n")
    assert "Traceback" not in rest
    assert not list(tmp_path.iterdir())
