"""Run one program on GPUs that are not there, and do nothing else.

``python -m casebook.simulated SIZE COUNT script.py args``, or ``SIZE COUNT -m package args``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from torchvet.simulate.cards import card_of
from torchvet.simulate.start import start


def main(argv: list[str]) -> None:
    """Start so many GPUs of this size and run the program on them."""
    size, count, program = argv[0], int(argv[1]), argv[2:]
    as_module = program[0] == "-m"
    sys.argv = program[1:] if as_module else program
    sys.path[0] = str(Path.cwd() if as_module else Path(program[0]).resolve().parent)
    start(card_of(size), count)
    if as_module:
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
