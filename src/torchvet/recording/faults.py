"""Reads what the interpreter wrote down when a signal ended a process: where its main thread was."""

from __future__ import annotations

import os
import re
from pathlib import Path

from torchvet.errors import BadInput
from torchvet.recording.opening import opened
from torchvet.recording.records.base import Place, Program
from torchvet.recording.records.ranks import Standstill, Stuck

_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}) in (.*)')
_TIMEOUT = re.compile(r"Timeout \((\d{1,4}):(\d\d):(\d\d(?:\.\d{1,6})?)\)!")
_MOST = 1 << 20
WRAPPERS = ("wrapper", "_wrapped_call_impl", "_call_impl", "decorate_context", "__torch_function__", "_fn")
"""Functions of torch's around the one that the program has called."""
_SENDS = ("_check_and_sync_module_buffers", "_sync_", "_distributed_broadcast")
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


def stuck(file: Path, program: Program) -> Stuck | None:
    """Where a process stood that had not ended some time after its program; None where the file does not say so."""
    try:
        with opened(file.parent, file) as stream:
            found = _TIMEOUT.match(stream.read(_MOST).decode("utf-8", "replace"))
    except (OSError, BadInput):
        return None
    if found is None:
        return None
    at = position(file, program, 0)
    hours, minutes, seconds = map(float, found.groups())
    late = 3600 * hours + 60 * minutes + seconds
    return Stuck(seconds=late, place=at.place, call=at.call) if at is not None else Stuck(seconds=late)


def _standstill(inside: list[tuple[str, str]], place: Place, tick: int) -> Standstill:
    waits_in = [function for path, function in inside if communicates(path, function)]
    # Innermost first: the last one of torch.distributed's is what the program called.
    call = called(waits_in[-1] if waits_in else inside[-1][1]) if inside else ""
    return Standstill(tick=tick, seconds=0.0, place=place, call=call, waits=bool(waits_in) or call == "backward")


def called(function: str) -> str:
    """What the program has called, where this is the outermost of torch's functions that waits."""
    return "forward" if function.startswith(_SENDS) else function


def communicates(path: str, function: str) -> bool:
    """Whether a function of torch's, in this file, waits for other ranks. DistributedDataParallel's forward runs the
    model as well: it waits where it sends buffers."""
    path = path.replace("\\", "/")
    sends = path.endswith("/torch/nn/parallel/distributed.py") and function.startswith(_SENDS)
    return sends or ("/torch/distributed/" in path and function not in WRAPPERS)


def _is_users(path: str) -> bool:
    return not path.startswith("<") and _NOT_THEIRS.search(path) is None
