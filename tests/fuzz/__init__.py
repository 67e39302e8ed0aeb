"""Any input: each target is a function of bytes, and returns, or raises what is a bug.

source     numbers and arrays from bytes
core       the entry points of the compiled core
readers    files: tables, models, checkpoints, the paper's experiments
run        atheris, which looks for inputs that reach new lines
"""
