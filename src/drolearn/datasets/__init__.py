"""Data sets: those of the paper, those that come with the package, and one that is generated.

load_adult    the Adult data set with its groups, from the package
load          a data set of the paper by name, from the nearest place that has it
fetch         bring one from its public source into the cache
text_like     documents of two classes, generated
"""

from drolearn.datasets.catalogue import CATALOGUE, Entry, fetch, load, read, where
from drolearn.datasets.embedded import Adult, load_adult
from drolearn.datasets.files import DataError, Dataset, folder
from drolearn.datasets.generated import text_like

__all__ = [
    "CATALOGUE",
    "Adult",
    "DataError",
    "Dataset",
    "Entry",
    "fetch",
    "folder",
    "load",
    "load_adult",
    "read",
    "text_like",
    "where",
]
