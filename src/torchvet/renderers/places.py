"""Where a finding is, for formats that know files and lines but no cells of notebooks."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from torchvet.finding import Location

_CELL = re.compile(r"(?P<file>.*\.ipynb):(?P<cell>cell \d+)", re.IGNORECASE | re.DOTALL)


class Place(NamedTuple):
    """A file, relative to the working directory below it, and the cell in it, empty for what is no notebook."""

    file: str
    cell: str


def place_of(path: str) -> Place:
    """The file and the cell that a location's path names."""
    here = os.path.join(os.getcwd(), "")
    path = path[len(here) :] if path.startswith(here) else path
    match = _CELL.fullmatch(path)
    found = Place(match["file"], match["cell"]) if match is not None else Place(path, "")
    return found._replace(file=found.file.replace(os.sep, "/"))


def within_cell(location: Location | None) -> str:
    """`cell 3, line 5: ` before a message, empty for what is no notebook: its lines are none of the file's."""
    cell = place_of(location.path).cell if location is not None else ""
    return f"{cell}, line {location.line}: " if cell and location is not None else ""
