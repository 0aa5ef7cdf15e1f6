"""Probes for training logic: losses, optimizers, schedulers, modes, loaders."""
