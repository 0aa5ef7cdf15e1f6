"""The agent that does no more than ``torchvet fix --verify --apply``: what the others are held against.

``python casebook/reference_agent.py PROMPT_FILE WORKDIR``. Of the prompt it reads how the program is run.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

_RUN = re.compile(r"^Run with: python (.*)$", re.MULTILINE)
_CARD = re.compile(r"--simulate-gpu (\S+)")
STEPS = "400"
"""Enough for the casebook's programs to come to their end, so that nothing is left out of the proof."""


def command(prompt: str) -> list[str]:
    """The one command of this agent. Raises ValueError where the prompt does not say how the program is run."""
    found = _RUN.search(prompt)
    if found is None:
        raise ValueError("the prompt does not say how the program is run")
    words = shlex.split(found[1])
    target, given = (words[:2], words[2:]) if words[0] == "-m" else (words[:1], words[1:])
    card = _CARD.search(prompt)
    simulated = ["--simulate-gpu", card[1]] if card is not None else []
    asked = ["--verify", "--apply", "--unsafe-fixes", "--steps", STEPS, *simulated]
    return [sys.executable, "-m", "torchvet", "fix", *asked, *target, "--", *given]


def main(argv: list[str]) -> int:
    """Do it. What could not be fixed is no failure of the agent."""
    prompt, folder = Path(argv[0]).read_text("utf-8"), Path(argv[1])
    done = subprocess.run(command(prompt), cwd=folder)
    return 0 if done.returncode in (0, 1, 3) else done.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
