"""Distances of all pairs of rows that are computed from a tensor of their differences."""
