"""The simulated GPU without arithmetic: operators give shapes, and every storage its block of the allocator.

On a device the numbers are meta tensors (`shapes.py`); on the host large tensors have addresses and no memory
(`phantoms.py`, `hosts.py`). What a program reads of numbers that nobody worked out is made up (`values.py`), and where
such numbers decide a shape, the largest possible one is taken (`bounds.py`).
"""
