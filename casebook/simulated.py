"""Run one program on a GPU that is not there, and do nothing else.

``python -m casebook.simulated SIZE script.py args``, or ``SIZE -m package args``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from torchvet.simulate.cards import card_of
from torchvet.simulate.start import start


def main(argv: list[str]) -> None:
    """Start the GPU of this size and run the program on it."""
    size, program = argv[0], argv[1:]
    as_module = program[0] == "-m"
    sys.argv = program[1:] if as_module else program
    sys.path[0] = str(Path.cwd() if as_module else Path(program[0]).resolve().parent)
    start(card_of(size))
    if as_module:
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
