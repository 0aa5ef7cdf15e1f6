"""Two files or recordings as a comparison: each is read by its own kind."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torchvet.comparing import Comparison, compare
from torchvet.errors import BadInput


def compared(before: str, after: str) -> Comparison:
    """What changed from one to the other. Raises `BadInput` for what cannot be read, and for two of different kinds."""
    sides = _side(before), _side(after)
    if sides[0].kind != sides[1].kind:
        raise BadInput(f"{before} is a {sides[0].kind} and {after} a {sides[1].kind}: give two of one kind")
    return compare(*sides)


def _side(path: str) -> Any:
    if Path(path).exists() and not Path(path).is_dir():
        from torchvet.inspecting import kind_of

        return importlib.import_module(kind_of(Path(path)).compared).side_of(path)
    from torchvet.comparing.recordings import side_of_recording
    from torchvet.diagnosis.diagnose import diagnose
    from torchvet.recording import read

    recording = read(Path(path))
    return side_of_recording(recording, diagnose(recording).findings)
