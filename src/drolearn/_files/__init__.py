"""Files of fitted models that hold no code.

models       save, load, describe
estimator    one of drolearn's estimators as JSON and arrays (.drl)
attributes   the attributes of fitted estimators, and which values they may have
values       parameters and attributes as JSON: plain values, arrays, named objects
pipeline     other estimators through skops (.skops), with a fixed list of trusted types
archive      zip files of a few members: names, sizes and checksums are checked
errors       ModelFileError
"""
