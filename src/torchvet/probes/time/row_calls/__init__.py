"""Loops that call a model once for each row of a batch."""
