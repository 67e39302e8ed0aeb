"""Stress tests: the losses of any model under shifts of the data.

analysis          stress_test
report, plots     its result; slice_plots for sub-populations
html, sections    the report for the browser; `page/` has its template, styles and scripts
parts             its pieces; population_sections: what it says about sub-populations and rows
break_even        the radius up to which a model is better than a baseline
radii             how large a radius is: the changes of the mix of groups that it holds
bracket           all that is reported of sub-populations
slices            bad sub-populations: found on one half of the rows, judged on the other
search            the search for them; sliceline_engine is another one
conditions        conditions on features, and how they read
features          features that describe sub-populations
groups            losses of groups, and their shares in the worst case
columns           columns of tables, and the groups that their values make
scores            the losses of all models
models            losses from the predictions of one model
intervals         confidence intervals; mean_upper_bound; bootstrap: the law of their errors
worst_cases       the worst cases of a sample in many balls, with standard errors
chi2_balls        the same for χ², from one sort
balls             divergences, radii, and the shares that they cover
palette, text     colours; numbers and names as text
"""
