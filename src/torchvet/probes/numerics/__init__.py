"""Probes for numbers that are not finite, or that are finite and wrong."""
