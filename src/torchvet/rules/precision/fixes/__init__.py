"""Edits that the rules about mixed precision offer."""
