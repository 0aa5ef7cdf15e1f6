"""A program of the casebook and how to start it."""

from __future__ import annotations

import os
import runpy
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
        return ["-m", self.name] if self.path.is_dir() else [self.path.name]

    @property
    def path(self) -> Path:
        """The script, or the package's folder."""
        package = self.folder / self.name
        return package if package.is_dir() else package.with_suffix(".py")

    @property
    def files(self) -> list[Path]:
        """The script, or all modules of the package."""
        return sorted(self.path.rglob("*.py")) if self.path.is_dir() else [self.path]


def python(*args: str) -> list[str]:
    """The command that runs this interpreter with these arguments."""
    return [sys.executable, *args]


def become(command: list[str]) -> None:
    """Run ``script.py args`` or ``-m package args`` in this process as the interpreter would."""
    as_module = command[0] == "-m"
    sys.argv = command[1:] if as_module else command
    sys.path[0] = str(Path.cwd() if as_module else Path(command[0]).resolve().parent)
    if as_module:
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(command[0], run_name="__main__")


def environment() -> dict[str, str]:
    """One thread, fixed hashing, and the repository importable: the same for every run."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(paths)}
