"""Stress tests: the losses of any model under shifts of the data.

analysis       stress_test
report, plots  its result
html, sections the report for the browser; `page/` has its template, styles and scripts
break_even     the radius up to which a model is better than a baseline
radii          how large a radius is: the changes of the mix of groups that it holds
groups         losses of groups, and their shares in the worst case
scores         the losses of all models
models         losses from the predictions of one model
intervals      confidence intervals; mean_upper_bound
worst_cases    the worst cases of a sample in many balls, with standard errors
chi2_balls     the same for χ², from one sort
balls          divergences, radii, and the shares that they cover
palette, text  colours; numbers and names as text
"""
