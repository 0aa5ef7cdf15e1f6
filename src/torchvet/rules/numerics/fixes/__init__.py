"""Edits that the rules about numbers offer."""
