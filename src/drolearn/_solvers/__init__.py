"""Solvers: minimise the robust loss over linear models.

ARCHITECTURE.md lists the modules, from the public function to the data.
"""
