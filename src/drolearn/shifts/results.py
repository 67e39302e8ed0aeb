"""What the results of shifts share: access by the name of a divergence, and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ByDivergence", "columns"]

# Lines of a table that are shown; the arrays of a result hold all.
LONGEST_TABLE = 20


class ByDivergence(Mapping[str, float]):
    """A mapping from the names of divergences to the numbers in `radii`."""

    __slots__ = ()
    radii: dict[str, float]

    def __getitem__(self, name: str) -> float:
        if name in self.radii:
            return self.radii[name]
        listed = ", ".join(map(repr, self.radii))
        hint = "" if name != "cvar" else "; CVaR has no radius, only a level"
        raise KeyError(f"There are radii for {listed}, not for {name!r}{hint}.")

    def __iter__(self) -> Iterator[str]:
        return iter(self.radii)

    def __len__(self) -> int:
        return len(self.radii)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], what: str = "") -> list[str]:
    """Lines of aligned columns, the first to the left and the others to the right.

    `what` names the rows, for the line that says how many are not shown.
    """
    shown = [header, *rows[:LONGEST_TABLE]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in shown
    ]
    if len(rows) > LONGEST_TABLE:
        lines.append(f"and {len(rows) - LONGEST_TABLE} more {what}")
    return lines
