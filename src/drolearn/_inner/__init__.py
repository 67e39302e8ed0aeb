"""The inner problem: losses in, worst-case weights out.

worst_case    the maximum over a ball, exactly
smoothing     the same without corners, and how its weights follow the losses
groups        balls that move the shares of groups instead of rows
"""
