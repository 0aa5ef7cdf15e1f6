"""Reads what the interpreter wrote down when a signal ended a process: where its main thread was."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torchvet.errors import BadInput
from torchvet.recording.opening import opened
from torchvet.recording.records.base import Place, Program
from torchvet.recording.records.ranks import Standstill

_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}) in (.*)')
_MOST = 1 << 20
_WRAPPERS = ("wrapper",)
_NOT_THEIRS = re.compile(
    r"[/\\](?:site-packages|lib[/\\]python[0-9.]+|torchvet[/\\](?:probes|simulate|allocator))[/\\]"
)


def position(file: Path, program: Program, tick: int) -> Standstill | None:
    """The program's line, and the function of torch's that it had called; None where the file says nothing of them."""
    try:
        with opened(file.parent, file) as stream:
            text = stream.read(_MOST).decode("utf-8", "replace")
    except (OSError, BadInput):
        return None
    # Threads are listed from the newest on, and each from its innermost frame: the main thread is the last.
    blocks = [block for block in re.split(r"\n\s*\n", text) if _FRAME.search(block)]
    inside: list[tuple[str, str]] = []
    for path, line, function in _FRAME.findall(blocks[-1]) if blocks else ():
        if path == program.path or _is_users(path):
            # `faulthandler` writes paths as the code objects have them: a relative one is below the
            # program's folder.
            whole = path if path.startswith("<") else os.path.join(program.cwd, path)
            return _standstill(inside, Place(whole, int(line), function), tick)
        inside.append((path, function))
    return None


def _standstill(inside: list[tuple[str, str]], place: Place, tick: int) -> Standstill:
    communicates = [f for path, f in inside if "/torch/distributed/" in path.replace("\\", "/") and f not in _WRAPPERS]
    # Innermost first: the last one of torch.distributed's is what the program called.
    call = communicates[-1] if communicates else inside[-1][1] if inside else ""
    return Standstill(tick=tick, seconds=0.0, place=place, call=call, waits=bool(communicates) or call == "backward")


def _is_users(path: str) -> bool:
    return not path.startswith("<") and _NOT_THEIRS.search(path) is None
