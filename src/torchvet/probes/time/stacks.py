"""What a thread is doing now, told by its frames: the user's lines, and whose functions run around and below them.

A look reads names and numbers. It touches no variable and keeps neither frames nor code objects alive.

The thread that is looked at goes on as soon as the look loses the interpreter's lock, which on a busy machine happens
within most looks. So where all frames are is read at once (`still`), and understood later.
"""

from __future__ import annotations

import functools
import opcode
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

from torchvet.probes.base import frames
from torchvet.probes.base.callers import outward
from torchvet.probes.time.blame import Span, before_quick_call
from torchvet.recording.records.base import Place
from torchvet.recording.records.timing import Phase, Stage

# Bits, because a stack is told by which of them it has.
_USER, _OWN, _LOADER, _FETCH, _PIN, _AUTOGRAD, _OPTIMIZER, _MODULE, _QUIET, _OTHER = (1 << n for n in range(10))
_TORCH = {
    "utils/data/dataloader.py": _LOADER,
    "utils/data/_utils/fetch.py": _FETCH,
    "utils/data/_utils/pin_memory.py": _PIN,
    "autograd/__init__.py": _AUTOGRAD,
    "autograd/graph.py": _AUTOGRAD,
    "nn/modules/module.py": _MODULE,
    "utils/_contextlib.py": _QUIET,
}
"""What files of torch's say of what runs."""
_KINDS = {
    "save": (
        "torch/serialization.py",
        "pickle.py",
        "safetensors/torch.py",
        "distributed/checkpoint/state_dict_saver.py",
    ),
    "copy": ("copy.py",),
    "log": ("logging/__init__.py", "tensorboard/writer.py", "tqdm/std.py", "loguru/_logger.py", "warnings.py"),
    "process": ("subprocess.py",),
    "network": ("socket.py", "urllib/request.py", "http/client.py", "ssl.py"),
    "text": ("json/encoder.py", "json/decoder.py", "csv.py", "torch/_tensor_str.py", "pprint.py", "traceback.py"),
    "wait": ("threading.py", "queue.py", "multiprocessing/connection.py", "concurrent/futures/_base.py"),
}
_FIRST_KIND = 10
_OF_KIND = {name: _OTHER | 1 << (_FIRST_KIND + n) for n, name in enumerate(_KINDS)}
_FILES = {f"/{file}": _OF_KIND[name] for name, files in _KINDS.items() for file in files}
"""What files of libraries say of the kind of work, by the end of their paths."""
COLLECTING = "collect"
"""The kind of what happens while garbage is collected, whichever line set it off."""
_FORWARD = frozenset({"_call_impl", "_wrapped_call_impl", "_slow_forward"})
"""What a module's file has around its forward pass: loading a state or moving to a device is none."""
_STARTS = frozenset({"__iter__", "_get_iterator", "__init__", "_reset"})
_ENDS = frozenset({"_shutdown_workers", "__del__"})
_MOST_LINES = 24
_MOST_CALLERS = 8
_MOST_PLACES = 2000
_AT_ONCE = 64
"""Frames of a stack that are read in one moment: it takes the square of their number."""
_RESUME = opcode.opmap.get("RESUME")
"""Marks where a function begins (from 3.11 on): a thread that is there has spent its time in the caller."""


class Doing(NamedTuple):
    """What one stack says, in names and numbers."""

    lines: tuple[Place, ...]
    """The user's lines, innermost first."""
    phase: Phase
    stage: Stage
    calls: str
    kinds: tuple[str, ...]
    quiet: bool
    span: tuple[int, int, int, int] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What a line's time is summed by."""
        return self[:6]


class Still:
    """A frame as it was at one moment."""

    __slots__ = ("_frame", "f_back", "f_code", "f_lasti")

    def __init__(self, frame: FrameType, f_lasti: int, f_back: Still | None) -> None:
        self._frame = frame
        self.f_code = frame.f_code
        self.f_lasti = f_lasti
        self.f_back = f_back

    @property
    def f_globals(self) -> dict[str, Any]:
        """These are the same for as long as the frame lives."""
        return self._frame.f_globals

    @property
    def f_lineno(self) -> int | None:
        """The line of the instruction at which it was."""
        if self.f_lasti < 0:
            return self.f_code.co_firstlineno
        return next((line for start, end, line in self.f_code.co_lines() if start <= self.f_lasti < end), None)


def still(frame: FrameType, depth: int) -> tuple[FrameType, int]:
    """A stack as it is now, which stays so, and how deep it is. `depth` is a guess at that: at most so many frames are
    read in one moment, in which no other thread runs."""
    stack: list[FrameType] = []
    at: tuple[int, ...] = ()
    try:
        at = _instructions(depth)(frame)
    except AttributeError:  # it is less deep
        stack = list(outward(frame))
        # Where a generator gives a value meanwhile, it has no caller any more: each frame is read by itself then.
        with suppress(AttributeError):
            at = _instructions(min(len(stack), _AT_ONCE))(frame)
    stack = stack or list(outward(frame))
    found: Still | None = None
    for number in range(len(stack) - 1, -1, -1):
        one = stack[number]
        found = Still(one, at[number] if number < len(at) else one.f_lasti, found)
    # It has all of a frame that is asked for.
    return cast(FrameType, found), min(len(stack), _AT_ONCE)


@functools.cache
def _instructions(depth: int) -> Callable[[FrameType], tuple[int, ...]]:
    """What reads at which instruction a frame and its callers are: one call of C's, which keeps the interpreter's lock.
    Raises AttributeError for a stack that is less deep."""
    # A getter of a single name gives no tuple.
    names = ["f_back." * number + "f_lasti" for number in range(depth)]
    return attrgetter(*names, *names[:1]) if depth == 1 else attrgetter(*names)


def glance(frame: FrameType | None, tags: Callable[[str], int | None]) -> int | None:
    """A stack as a number, equal for equal ones; None where torchvet's own work is the innermost, or nothing is the
    user's.

    This is all that an ordinary look does. `tags` knows the files that `tag_of` has been asked about.
    """
    lines: list[int] = []
    seen = fetch = 0
    below = loader = ""
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        # The dict's own `get` first: a call of Python's for each frame would take most of a look.
        tag = tags(file) or tag_of(file)
        if tag == _USER:
            if len(lines) < 2 * _MOST_LINES:
                # Numbers only: a tuple of code objects would keep them alive.
                lines.append(id(code))
                lines.append(frame.f_lasti)
        elif tag == _OWN:
            if not (lines or below):
                return None
        else:
            # The outermost function below the user's line: the one that the line calls.
            below = below if lines else code.co_name
            if tag == _LOADER:
                loader = loader or code.co_name
            elif tag == _FETCH:
                fetch = fetch or frame.f_lineno
            seen |= _said(tag, code.co_name)
        frame = frame.f_back
    # Equal stacks have equal numbers within this process; that is all that is asked.
    return hash((seen, below, loader, fetch, *lines)) if lines else None


def _said(tag: int, function: str) -> int:
    """What a function says of what runs, by its file's tag."""
    return tag if tag != _MODULE or function in _FORWARD else _OTHER


def below_own(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not torchvet's: the collector calls a function of its before and after it works, and
    a look comes then."""
    while frame is not None and tag_of(frame.f_code.co_filename) == _OWN:
        frame = frame.f_back
    return frame


def tag_of(file: str) -> int:
    """What a file says of what runs."""
    known = _tags.get(file)
    if known is None:
        # A program that makes file names for its own code would fill it.
        if len(_tags) > 20_000:
            _tags.clear()
        known = _tags[file] = _tag(file)
    return known


_tags: dict[str, int] = {}
known_tags = _tags.get


def _tag(file: str) -> int:
    whose = frames.owner(file)
    if whose == frames.USER:
        return _USER
    if whose == frames.OWN:
        return _OWN
    path = file.replace(os.sep, "/")
    if whose == frames.TORCH:
        inner = path.rpartition("/torch/")[2]
        if inner in _TORCH:
            return _TORCH[inner]
        if inner.startswith("optim/") and inner not in ("optim/lr_scheduler.py", "optim/swa_utils.py"):
            return _OPTIMIZER
    return next((kind for end, kind in _FILES.items() if path.endswith(end)), _OTHER)


def understood(frame: FrameType | None) -> Doing:
    """What a stack is doing. Asked once for equal ones: it may take its time."""
    mine, below, quiet = _told_apart(frame)
    seen, loader = 0, ""
    for one in outward(frame):
        tag = tag_of(one.f_code.co_filename)
        seen |= _said(tag, one.f_code.co_name)
        loader = loader or (one.f_code.co_name if tag == _LOADER else "")
    # By the files in the stack: a loader's item may call modules, so data comes first.
    phase = _phase(seen)
    stage = _stage(seen, loader, _fetching(frame)) if phase == "data" else ""
    # What a module, a loader or an optimizer calls first says no more than the phase.
    calls = _name(below[-1]) if below and phase == "other" else ""
    # `_OTHER` is in each kind's bits: all of them must be there.
    kinds = tuple(name for name, bit in _OF_KIND.items() if seen & bit == bit) if phase == "other" else ()
    quiet = quiet and not seen & _OPTIMIZER  # whose step runs without gradients, and its closure with them
    span = _span(mine[0].f_code, mine[0].f_lasti) if mine else None
    lines = tuple(_place(one) for one in mine[: _MOST_CALLERS + 1])
    blamed = _before(frame, mine, below)
    # The operator stands on another line than the call: the time is that line's own.
    if blamed is not None and blamed[0] != lines[0].line:
        lines = (_shared(Place(lines[0].path, blamed[0], lines[0].function)), *lines[1:])
        phase, stage, calls, kinds, span = "other", "", "", (), blamed
    return Doing(lines, phase, stage, calls, kinds, quiet, span)


def _before(frame: FrameType | None, mine: list[FrameType], below: list[FrameType]) -> Span | None:
    """The operator before the call at which the innermost of the user's functions is, where that took the time."""
    if frame is None or not mine:
        return None
    entered = _begins(frame)
    # Entered from a function in between, whose call it was.
    if entered and frame.f_back is not mine[0]:
        return None
    return before_quick_call(mine[0], entered) if entered or not below else None


def _told_apart(frame: FrameType | None) -> tuple[list[FrameType], list[FrameType], bool]:
    """The user's frames, those of others below the innermost of them, and whether one of the user's functions runs
    without gradients by its decorator."""
    mine: list[FrameType] = []
    below: list[FrameType] = []
    quiet = False
    for one in outward(frame):
        tag = tag_of(one.f_code.co_filename)
        if tag == _USER:
            # What was only entered has taken no time: the call has, and what came before it.
            # From Python 3.11 on (RESUME); before, the callee's first line gets it.
            if mine or below or not _begins(one):
                mine.append(one)
        elif not mine and tag != _OWN:
            below.append(one)
        elif tag == _QUIET and one.f_code.co_name == "decorate_context":
            quiet = True
    return mine, below, quiet


def _fetching(frame: FrameType | None) -> str:
    """The text of the line of torch's that asks a dataset for items, or makes a batch of them."""
    for one in outward(frame):
        if tag_of(one.f_code.co_filename) == _FETCH:
            lines = _text(one.f_code.co_filename)
            # Its text tells `dataset[i]` from `collate_fn(batch)`, which stand in one function.
            return lines[one.f_lineno - 1] if one.f_lineno <= len(lines) else ""
    return ""


def _begins(frame: FrameType) -> bool:
    """Whether a function has only been entered."""
    code, at = frame.f_code, frame.f_lasti
    return _RESUME is not None and 0 <= at < len(code.co_code) and code.co_code[at] == _RESUME


_places: dict[Place, Place] = {}


def _place(frame: FrameType) -> Place:
    """The line that a frame is at; one object for each, as thousands of stacks go through it."""
    code = frame.f_code
    line = frame.f_lineno or code.co_firstlineno  # an instruction that the compiler has put in has none
    return _shared(Place(code.co_filename, line, getattr(code, "co_qualname", code.co_name)))


def _shared(place: Place) -> Place:
    if len(_places) >= _MOST_PLACES:
        _places.clear()
    return _places.setdefault(place, place)


def _span(code: CodeType, at: int) -> tuple[int, int, int, int] | None:
    """The text that an instruction was made from; not known before Python 3.11."""
    positions = getattr(code, "co_positions", None)
    if positions is None or at < 0:
        return None
    first, last, start, end = next(islice(positions(), at // 2, None), (None,) * 4)
    if first is None or last is None or start is None or end is None:
        return None
    return first, start, last, end


def _phase(seen: int) -> Phase:
    if seen & (_LOADER | _FETCH | _PIN):
        return "data"
    if seen & _AUTOGRAD:
        return "backward"
    return "forward" if seen & _MODULE else "optimizer" if seen & _OPTIMIZER else "other"


def _stage(seen: int, loader: str, fetch: str) -> Stage:
    """What a loader does; `loader` is the innermost of its functions, `fetch` the text of the line that fetches."""
    # Innermost first: fetching happens within the loader's own functions.
    if fetch:
        return "collate" if "collate_fn" in fetch else "item"
    if loader in _STARTS:
        return "start"
    if loader in _ENDS:
        return "end"
    if seen & _PIN:
        return "pin"
    return "wait" if loader in ("_try_get_data", "_get_data") else ""


def _name(frame: FrameType) -> str:
    """`torch.serialization.save`: the module and the function."""
    code = frame.f_code
    module = frame.f_globals.get("__name__")
    function = getattr(code, "co_qualname", code.co_name)
    return f"{module}.{function}" if isinstance(module, str) else function


@functools.lru_cache(maxsize=4)
def _text(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
