"""Data sets: those of the paper, those of the package, and generated documents.

load_adult      the Adult data set with its groups, included in the package
load_bike_hour  the Bike Sharing data set with its years, included in the package
load            a data set by name
fetch           download a data set into the cache
where           where `load` would read a data set from
read            a data set from a file
text_like       generate documents of two classes
CATALOGUE       what is known about each data set, by name
"""

from drolearn.datasets.catalogue import CATALOGUE, Entry, fetch, load, read, where
from drolearn.datasets.embedded import Adult, BikeHour, load_adult, load_bike_hour
from drolearn.datasets.files import DataError, Dataset, folder
from drolearn.datasets.generated import text_like

__all__ = [
    "CATALOGUE",
    "Adult",
    "BikeHour",
    "DataError",
    "Dataset",
    "Entry",
    "fetch",
    "folder",
    "load",
    "load_adult",
    "load_bike_hour",
    "read",
    "text_like",
    "where",
]
