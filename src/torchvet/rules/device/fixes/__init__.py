"""Edits that the rules about devices offer."""
