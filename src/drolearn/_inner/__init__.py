"""The inner problem: worst-case weights of a vector of losses.

worst_case    the exact maximum over a ball
smoothing     smooth approximations, and the derivative of their weights
trimming      weights without the worst share of the rows
groups        balls that change the weights of groups instead of rows
"""
