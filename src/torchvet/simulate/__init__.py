"""A GPU that is not there: CUDA programs run unmodified, with real numbers computed on the CPU.

`start(card)` makes torch answer as if the card were there, for the rest of the process. Everything above torch's
dispatcher is the program's and torch's own code; below it, `operators.py` computes on ordinary CPU tensors, checks
what a GPU would check (`placement.py`) and keeps a simulated caching allocator (`memory.py`).
"""
