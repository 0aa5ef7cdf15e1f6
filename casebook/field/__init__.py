"""Failures that people have reported, rebuilt as small programs, and what each tool says of them."""
