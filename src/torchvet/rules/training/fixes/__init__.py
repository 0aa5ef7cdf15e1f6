"""Edits that the rules about the training loop offer."""
