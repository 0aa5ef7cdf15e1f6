"""Sizing a training program on a simulated GPU without arithmetic: its own steps, then steps with one thing changed."""
