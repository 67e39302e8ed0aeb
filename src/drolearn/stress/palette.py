"""The colours of models, the same in plots and in the report for the browser."""

from __future__ import annotations

__all__ = ["COLOURS", "DARK_COLOURS"]

#: The hues of Okabe and Ito, which colour-blind people can tell apart, with contrast on white.
COLOURS = ("#0072B2", "#D55E00", "#00795A", "#B0508A", "#A66F00", "#2A8FC4", "#444444")
#: The same hues for a dark background.
DARK_COLOURS = ("#56B4E9", "#FF8A3D", "#3FC79A", "#E79AC4", "#F0B83E", "#9AD0F0", "#D0D0D0")
