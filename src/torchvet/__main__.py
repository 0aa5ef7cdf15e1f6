"""`python -m torchvet`."""

import sys

if __name__ == "__main__":
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # the working directory: a `json.py` there is the program's, not ours
    from torchvet.commands import main

    sys.exit(main())
