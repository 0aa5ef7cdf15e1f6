"""The functions that Python programs call: one module each, loaded by `torchvet.__getattr__`."""
