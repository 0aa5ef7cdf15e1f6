"""Operators on simulated devices: checked as a GPU checks them, computed on the CPU."""
