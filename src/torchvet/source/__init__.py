"""Python source text, as findings need it. Imports no torch."""
