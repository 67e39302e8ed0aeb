"""How long `drolearn --help` takes, beside importing typer and rich; and the help of a command.

python -m benchmarks command_line
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from benchmarks.machine import save
from benchmarks.worst_case import Row, row

REPEATS = 21
COMMANDS = {
    "import": [sys.executable, "-c", "import typer, rich"],
    "--help": [sys.executable, "-m", "drolearn.cli", "--help"],
    "fit --help": [sys.executable, "-m", "drolearn.cli", "fit", "--help"],
}


def cpu_seconds(command: list[str]) -> float:
    """Return the CPU seconds of a process, which other processes disturb less than its time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run the commands in turn and write results/command_line.json."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, command in COMMANDS.items():
            seconds[name].append(cpu_seconds(command))
    median = {name: statistics.median(each) for name, each in seconds.items()}
    rows: list[Row] = []
    for name, bar in (
        ("--help", "≤ 1.5"),
        ("fit --help", "≤ 1.5"),
    ):
        ratio = median[name] / median["import"]
        note = f"{1e3 * median[name]:.0f} ms of CPU time, median of {REPEATS}"
        rows.append(row(f"drolearn {name}", "import typer, rich", ratio, bar, note, ""))
    save("command_line", rows)


if __name__ == "__main__":
    main()
