"""The inner problem: worst-case weights of a vector of losses.

worst_case    the exact maximum over a ball
block_search  the same for losses in blocks, from sums over the blocks
soft          the maximum with a price for the divergence instead of a radius
spectral      the maximum for a spectral risk
smoothing     smooth approximations, and the derivative of their weights
trimming      weights without the worst share of the rows
groups        balls that change the weights of groups instead of rows
"""
