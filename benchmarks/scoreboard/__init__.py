"""Robust and plain models on data with natural shifts: docs/scoreboard.md.

tasks     the data sets, and three ways to split them: a known group becomes rare, a domain or the
          future was never seen, nothing changes
models    the models that are compared
run       fits all models to all tasks, and stores one row for each
rows      comparisons of stored rows
page      the page in the documentation, made from the stored rows
figure    its figure
"""
