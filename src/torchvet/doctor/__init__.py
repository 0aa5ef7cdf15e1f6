"""`torchvet doctor`: this machine checked against known traps, and a script against the before-training checklist.

The machine is read here; torch is asked in a process of its own, so that a broken one breaks nothing else.
"""
