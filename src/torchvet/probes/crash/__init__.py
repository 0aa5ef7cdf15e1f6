"""What the error that ended a program was about: read off its traceback's frames, with nothing of theirs run."""
