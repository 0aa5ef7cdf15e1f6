"""Probes for what crosses between host and device and where loaded tensors land."""
