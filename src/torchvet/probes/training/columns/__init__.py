"""Columns of a dataset on their way into a batch."""
