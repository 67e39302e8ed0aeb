"""Write the data sets of the package from the files of the folder that DROLEARN_DATA names.

`.venv/bin/python tools/embed.py` rewrites src/drolearn/datasets/*.npz. adult.npz is a copy. Of
bike_hour.npz the package has the arrays that `load_bike_hour` returns.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

from drolearn._storage import replacing
from drolearn.datasets import folder

PACKAGE = Path(__file__).parents[1] / "src" / "drolearn" / "datasets"


def embed(source: Path, target: Path) -> None:
    """Write the files of the package to the folder `target`."""
    shutil.copyfile(source / "adult.npz", target / "adult.npz")
    with np.load(source / "bike_hour.npz") as stored, replacing(target / "bike_hour.npz") as file:
        # By columns, X takes a third of the space: neighbouring hours are alike.
        columns = np.asfortranarray(stored["X"])
        others = {name: stored[name] for name in ("y", "year", "feature_names")}
        np.savez_compressed(file, X=columns, **others)


if __name__ == "__main__":
    place = folder()
    if place is None:
        sys.exit("DROLEARN_DATA is not set: set it to the folder with adult.npz and bike_hour.npz.")
    embed(place, PACKAGE)
