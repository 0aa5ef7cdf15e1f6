"""What a trial of a program changes on the disk, written down before it happens and undone when the trial is over.

The trial's process hears its own file operations by Python's audit events (`hearing.py`) and notes what lies at a path
before it is first touched (`noting.py`, `places.py`) in a log of its own (`entries.py`); the supervisor puts it back
(`rollback.py`), also after a supervisor that was killed (`folders.py`). Standard library only, and no torch.
"""
