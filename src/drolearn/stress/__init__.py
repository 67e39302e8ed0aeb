"""Stress tests: the losses of any model under shifts of the data.

analysis       stress_test
report, plots  its result
groups         losses of groups, and their shares in the worst case
break_even     the radius up to which a model is better than a baseline
models         losses from the predictions of any model
intervals      confidence intervals; mean_upper_bound
worst_cases    the worst cases of a sample in many balls, with standard errors
chi2_balls     the same for χ², from one sort
balls          radii, and the shares that they cover
"""
