"""Solvers: minimise the robust loss over linear models.

solve        the public function, for all solvers
checkpoint   one file for each fit, named by a fingerprint of data and settings
choice       the solver for a name, and the automatic choice
solvers      solvers as objects: settings, and what each of them requires
inputs       checks of data, labels and weights
descent      the loop of all stochastic solvers
exact        L-BFGS and Newton's method, in stages
warm_start   the solution on a subsample, for exact solvers
iterations   the loop of the exact solvers
directions   search directions and the line search
certificate  duality gaps
problem      the objective, and passes over all rows
multilevel   draws whose gradient is unbiased
draws        the rows of stochastic gradients, and their weights
allocation   optimal probabilities of multilevel draws
ending       how a solve ended
step_sizes   step sizes of stochastic solvers
state_file   states of solvers as files
"""
