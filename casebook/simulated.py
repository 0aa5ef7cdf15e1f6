"""Run one program on GPUs that are not there, and do nothing else.

``python -m casebook.simulated SIZE COUNT script.py args``, or ``SIZE COUNT -m package args``.
"""

from __future__ import annotations

import sys

from casebook.program import become
from torchvet.simulate.cards import card_of
from torchvet.simulate.start import start


def main(argv: list[str]) -> None:
    """Start so many GPUs of this size and run the program on them."""
    size, count, program = argv[0], int(argv[1]), argv[2:]
    start(card_of(size), count)
    become(program)


if __name__ == "__main__":
    main(sys.argv[1:])
