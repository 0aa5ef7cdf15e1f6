"""Edits to source: made, checked again, written in place. What is outside an edit stays as it was, to the byte."""
