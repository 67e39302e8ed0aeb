"""The outer problem: linear models of the smallest robust loss.

problem       data, loss and ball; all that one pass over the rows can tell
certificate   how far the optimum can be
draws         which rows a stochastic method looks at
descent       the loop of all stochastic methods
exact         L-BFGS and Newton on all rows
choice        from the name of a method to its settings
solve         one function for all of them
"""
