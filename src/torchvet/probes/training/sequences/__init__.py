"""Layers that read sequences, and which dimension of what they are given they take for the sequence."""
