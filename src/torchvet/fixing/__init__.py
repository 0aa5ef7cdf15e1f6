"""Applies edits to source, checks the result and writes it in place. Bytes outside an edit never change."""
