"""Sections of a page of text: each lays one group of facts out, and nothing where the report has none."""
