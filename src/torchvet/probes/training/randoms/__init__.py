"""Random states that a training comes back to."""
