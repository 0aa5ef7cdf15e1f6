"""What a trial of a program changes on the disk, written down before it happens and undone when the trial is over.

Python's audit events report the file operations of the trial's process (`audit_hook.py`). What lies at a path is saved
before it is first touched (`journal.py`, `places.py`), in a log of its own (`entries.py`). The supervisor restores it
(`rollback.py`), even after an earlier supervisor was killed (`folders.py`). Standard library only, and no torch.
"""
