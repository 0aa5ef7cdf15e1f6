"""A program of the casebook and how to start it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""


@dataclass(frozen=True)
class Program:
    """One script (``faulty.py``) or package (``faulty/__main__.py``) in the folder of its case."""

    folder: Path
    name: str
    """The script's stem or the package's name."""

    @property
    def target(self) -> list[str]:
        """How Python, or a tool that runs programs as Python does, is told to run it from its folder."""
        return ["-m", self.name] if (self.folder / self.name).is_dir() else [f"{self.name}.py"]


def python(*args: str) -> list[str]:
    """The command that runs this interpreter with these arguments."""
    return [sys.executable, *args]


def environment() -> dict[str, str]:
    """One thread, fixed hashing, and the repository importable: the same for every run."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)}
