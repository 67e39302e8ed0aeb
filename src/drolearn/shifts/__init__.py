"""Shifts that have a name: another mix of known groups, or another sample.

mix        the radius of a change of the mix of groups, and the worst mix within a radius
samples    an estimate of the divergence of a new sample from an old one
tables     two tables of one kind as one
results    what their results share: access by the name of a divergence, and text
"""
