"""The experiments of Ghosh & Squillante: `drolearn reproduce` runs them and writes the results.

paper.toml    what is run
protocol      the same, checked, as a list of runs
trial         one run
runner        all runs, on all processors, with their rows on disk
tables, figures, claims    what is made of the rows
"""
