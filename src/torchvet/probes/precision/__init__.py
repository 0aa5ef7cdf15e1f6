"""Probes for mixed precision: autocast regions, gradient scalers, the precision forecast."""
