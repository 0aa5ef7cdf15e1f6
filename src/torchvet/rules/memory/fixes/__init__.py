"""Edits that the rules about memory offer."""
