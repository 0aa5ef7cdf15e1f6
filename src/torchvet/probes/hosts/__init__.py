"""The records of several hosts in one place, after their programs have ended. It runs in a process of its own."""
