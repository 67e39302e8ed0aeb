"""The demo: three parts on data of the package, one table each, and one picture.

shift      a shift between two years, and what a ball over groups does about it
curve      the worst case of a model that one already has
methods    the paper's methods beside its published results
common     means with intervals, comparisons in words, runs in parallel
"""
