"""Edits that the rules about slow operations offer."""
