"""The experiments of Ghosh & Squillante: `drolearn reproduce` runs them and writes the results.

paper.toml    what is run
protocol      the same file, checked, as a list of runs
trial         one run
runner        all runs in parallel processes, and their rows on disk
rows          selections of rows, means and intervals
tables, figures, claims, supplement    the results, made from rows
output        files of tables and figures
"""
