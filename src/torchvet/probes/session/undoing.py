"""Has what the program changes on the disk noted, for the supervisor to undo: in this process and in its children.

Forked children are heard as this one is, and processes of `multiprocessing` that are spawned are told to listen. What
writes files in C++ or Rust raises no audit event: what torch, safetensors and h5py have of that is wrapped when the
program imports them.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torchvet
from torchvet.probes.base import frames
from torchvet.probes.session.import_hook import when_imported
from torchvet.undo.audit_hook import Hearing
from torchvet.undo.effects import Effects
from torchvet.undo.journal import Notes

_TORCH = (
    ("_C.PyTorchFileWriter", "__init__"),
    ("_C.ScriptModule", "save"),
    ("_C.ScriptFunction", "save"),
    ("_C._autograd._ProfilerResult", "save"),
)
"""Where torch opens files in C++: classes and methods whose first argument after `self` is a path or an open file."""


def install(folder: Path, spared: tuple[str, ...], at_work: tuple[str, ...]) -> None:
    """Listen from now on, and write into a trial's folder. `spared` are folders that torchvet writes to; `at_work`
    those that the program works and lies in. Raises OSError where the folder has no log."""
    hearing = Hearing(Notes(folder, spared, at_work), Effects(folder, _is_the_programs))
    # Audit hooks hear Python's own opens; C++ raises no event.
    hearing.install()
    when_imported("torch", lambda torch: _wrap_torch(torch, hearing))
    when_imported("safetensors", lambda module: _wrap(module, "serialize_file", 1, hearing))
    when_imported("h5py.h5f", lambda module: _wrap_h5f(module, hearing))
    when_imported("multiprocessing.spawn", lambda module: _tell(module, _Start(folder, spared, at_work)))


def _is_the_programs() -> bool:
    """Whether what happens now is not torch's own doing, nor torchvet's: compiling a kernel, reading a version."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        whose = frames.owner(frame.f_code.co_filename)
        if whose in (frames.TORCH, frames.USER, frames.INSTALLED):
            # The nearest of the three decides: torch compiling a kernel is torch's, a user's subprocess
            # is the user's.
            return whose != frames.TORCH
        frame = frame.f_back
    return False


def _wrap_torch(torch: ModuleType, hearing: Hearing) -> None:
    for where, name in _TORCH:
        owner: Any = torch
        for part in where.split("."):
            owner = getattr(owner, part, None)
        # Other versions lack some of these: `owner` is then None.
        if hasattr(owner, name):
            _wrap(owner, name, 1, hearing)


def _wrap(owner: Any, name: str, position: int, hearing: Hearing) -> None:
    """Hear of calls that write to the file that is their argument at a position, or by the name of `filename`."""
    write: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(write)
    def written(*args: Any, **kwargs: Any) -> Any:
        # Before the write: what was there first is what is kept.
        hearing.changing(args[position] if len(args) > position else kwargs.get("filename"))
        return write(*args, **kwargs)

    setattr(owner, name, written)


def _wrap_h5f(module: ModuleType, hearing: Hearing) -> None:
    read, create, opened = module.ACC_RDONLY, module.create, module.open

    @functools.wraps(create)
    def created(name: Any, *args: Any, **kwargs: Any) -> Any:
        hearing.changing(name)
        return create(name, *args, **kwargs)

    @functools.wraps(opened)
    def open_file(name: Any, flags: int = module.ACC_RDWR, *args: Any, **kwargs: Any) -> Any:
        if flags != read:
            hearing.changing(name)
        return opened(name, flags, *args, **kwargs)

    module.create, module.open = created, open_file  # type: ignore[attr-defined]


_IN_CHILD = """
import sys
sys.path.append({source!r})
from pathlib import Path
from torchvet.probes.session.undoing import install
sys.path.pop()
install(Path({folder!r}), {spared!r}, {at_work!r})
"""


class _Start:
    """Pickled among what a spawned process is told; unpickling it installs the hearing there.

    As source, because it is read before the process knows its parent's `sys.path`.
    """

    def __init__(self, folder: Path, spared: tuple[str, ...], at_work: tuple[str, ...]) -> None:
        source = os.path.dirname(os.path.dirname(os.path.abspath(torchvet.__file__)))
        self.source = _IN_CHILD.format(source=source, folder=str(folder), spared=spared, at_work=at_work)

    def __reduce__(self) -> Any:
        # Unpickling calls `exec` with the source: the child has no `torchvet` on its path yet.
        return exec, (self.source, {})


def _tell(module: Any, start: _Start) -> None:
    tell: Callable[[str], dict[str, Any]] = module.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        # multiprocessing unpickles the whole dict, and ignores names that it does not know.
        return {**tell(name), "torchvet undo": start}

    module.get_preparation_data = get_preparation_data
