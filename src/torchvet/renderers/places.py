"""Paths as they are shown, and places in notebooks for formats that know files and lines but no cells."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from torchvet.finding import Location

_CELL = re.compile(r"(?P<file>.*\.ipynb):(?P<cell>cell \d+)", re.IGNORECASE | re.DOTALL)


_NOTEBOOK_CELL = re.compile(r"cell \[\d+\]")
"""What a cell that ran in a notebook is called, by its execution count: it has no file."""


class Place(NamedTuple):
    """A file, relative to the working directory if it lies below it, and its cell; empty unless a notebook."""

    file: str
    cell: str


def shown_path(path: str) -> str:
    """A path as a person in the working directory would type it; unchanged if it lies elsewhere."""
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:  # the program may have removed the directory that it ran in
        return path
    return path.removeprefix(here)


def at(path: str, line: int) -> str:
    """`train.py:12`, the path as `shown_path` has it; `cell [3], line 12` of a notebook that runs."""
    return f"{path}, line {line}" if _NOTEBOOK_CELL.fullmatch(path) else f"{shown_path(path)}:{line}"


def place_of(path: str) -> Place:
    """The file and the cell that a location's path names."""
    path = shown_path(path)
    match = _CELL.fullmatch(path)
    file, cell = match.group("file", "cell") if match is not None else (path, "")
    return Place(file.replace(os.sep, "/"), cell)


def within_cell(location: Location | None) -> str:
    """`cell 3, line 5: ` before a message about a notebook, since a cell's line is no line of the file; else empty."""
    cell = place_of(location.path).cell if location is not None else ""
    return f"{cell}, line {location.line}: " if cell and location is not None else ""
