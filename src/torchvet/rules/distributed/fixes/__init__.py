"""Edits that the rules about several ranks offer."""
