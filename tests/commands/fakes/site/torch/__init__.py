"""Stands in for torch: tests of the command line import nothing heavy."""
