"""Finds the user's line for what happens now, by walking frames: microseconds, no text is read."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from traceback import walk_tb
from types import CodeType, FrameType

import torchvet
from torchvet.recording.records.base import Place

# With the separator: a user's folder `torchvet_demo` beside the package is not torchvet's.
_HERE = os.path.dirname(os.path.abspath(torchvet.__file__)) + os.sep
_STDLIB = tuple({sysconfig.get_paths()[k] + os.sep for k in ("stdlib", "platstdlib")})
# Both the running interpreter's folders and the user's own; a virtual environment answers with its own.
_INSTALLED = tuple(
    {p + os.sep for p in (*site.getsitepackages(), site.getusersitepackages())}
    | {sysconfig.get_paths()[k] + os.sep for k in ("purelib", "platlib")}
)

HANDLERS = ("__torch_dispatch__", "__torch_function__")
"""What modes and tensor subclasses of the program's do for each operator: the line that called it is further out."""
OWN, TORCH, STDLIB, INSTALLED, USER = range(5)
"""Whose code a file is. The user's own is everything that is none of the others."""

_MOST_PLACES = 1024

_owner_of_file: dict[str, int] = {}


def owner(filename: str) -> int:
    """Whose code a file is: torchvet's, torch's, the standard library's, an installed package's, or the user's."""
    known = _owner_of_file.get(filename)
    if known is None:
        known = _owner_of_file[filename] = _classify(filename)
    return known


def count_as_users(filename: str) -> None:
    """A file is the user's, whatever it is called."""
    _owner_of_file[filename] = USER


def _classify(filename: str) -> int:
    if filename.startswith(_HERE):
        return OWN
    if filename.startswith("<"):
        # Generated code: dynamo's, dataclasses', namedtuple's; notebooks name their cells `<ipython-input…>`.
        return USER if filename.startswith("<ipython") else STDLIB
    # A folder of the user's may be called torch as well: only files of the imported package are torch's.
    if f"{os.sep}torch{os.sep}" in filename and _is_torch(filename):
        return TORCH
    # Installed is asked before the standard library: `site-packages` lies within the library's folder.
    if filename.startswith(_INSTALLED) or f"{os.sep}site-packages{os.sep}" in filename:
        return INSTALLED
    # Unknown means the user's: a line too many is better than a fault without a line.
    return STDLIB if filename.startswith(_STDLIB) else USER


def _is_torch(filename: str) -> bool:
    torch = sys.modules.get("torch")
    # Torch may be a stub without a file; then nothing is torch's.
    home = os.path.dirname(getattr(torch, "__file__", None) or "")
    return bool(home) and filename.startswith(home + os.sep)


_places: dict[tuple[int, int], tuple[CodeType, Place]] = {}
"""By code object and instruction. By identity: the hash of a code object goes through all that it is made of."""


def place_of(frame: FrameType) -> Place:
    """The line that a frame is at."""
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _places.get(key)
    # The id of a code object that has died is given to another.
    if known is not None and known[0] is code:
        return known[1]
    # The table keeps code objects alive: a program that writes its own code would fill it without end.
    if len(_places) >= _MOST_PLACES:
        _places.clear()
    # An instruction that the compiler has put in has no line.
    place = Place(code.co_filename, frame.f_lineno or code.co_firstlineno, _qualified(code))
    _places[key] = (code, place)
    return place


def forget_places() -> None:
    """Forget the program's code objects."""
    _places.clear()


def _qualified(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def outside_torch(depth: int = 1, handlers: bool = True) -> tuple[Place | None, Place | None]:
    """The nearest line of the user's code and, where an installed package lies between, the nearest of that.

    `depth` frames are skipped, the caller's own among them; without `handlers` those of `HANDLERS`, too.
    """
    frame: FrameType | None = sys._getframe(depth)
    inner: Place | None = None
    owners = _owner_of_file
    while frame is not None:
        # The mode's class may be the user's own file, and would pass for the line that called the operator.
        if not handlers and frame.f_code.co_name in HANDLERS:
            frame = frame.f_back
            continue
        file = frame.f_code.co_filename
        # Not `owner(file)` at once: the call would double the price of a frame, and a stack has dozens.
        whose = owners.get(file)
        if whose is None:
            whose = owner(file)
        if whose == USER:
            return place_of(frame), inner
        if whose == INSTALLED and inner is None:
            inner = place_of(frame)
        frame = frame.f_back
    return None, inner


def called_by_torch(file: str, function: str = "") -> bool:
    """Within a listener: whether a function in this file of torch's called the operator, and not the program itself; by
    its name, where one is given."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        whose = owner(frame.f_code.co_filename)
        if whose == TORCH and frame.f_code.co_filename.endswith(file) and function in ("", frame.f_code.co_name):
            return True
        if whose in (USER, INSTALLED):
            return False
        frame = frame.f_back
    return False


def traceback_frames(error: BaseException | None) -> list[FrameType]:
    """The frames that an exception's traceback keeps, outermost first."""
    return [frame for frame, _ in walk_tb(error.__traceback__ if error is not None else None)]


def user_place(depth: int = 1) -> Place | None:
    """The nearest line of the user's code, else of an installed package, else None."""
    place, inner = outside_torch(depth + 1)
    return place or inner
