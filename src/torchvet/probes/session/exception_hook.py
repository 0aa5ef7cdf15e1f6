"""What happens to an exception that nobody caught: its meaning, and its printing as plain Python prints it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import torchvet

BOTTOM = str(Path(__file__).with_name("_importlib_bootstrap.py"))
"""The file at the bottom of the observed program's stack."""

_OURS = tuple(str(Path(torchvet.__file__).parent / name) + os.sep for name in ("probes", "simulate", "allocator"))
"""Where frames of torchvet's own within the program come from."""

_Hook = Callable[[type[BaseException], BaseException, "TracebackType | None"], object]


class OneShotHook:
    """Stands in for `sys.excepthook` for one call: takes the launcher's frames away and passes on to the real hook."""

    def __init__(self, hook: _Hook | None, missing: bool) -> None:
        self.hook = hook
        self.missing = missing

    @classmethod
    def install(cls) -> None:
        """Wrap the hook that is set now, the program's own included."""
        names = vars(sys)
        sys.excepthook = cls(names.get("excepthook"), "excepthook" not in names)

    def __call__(self, kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        clean(value)
        traceback = sys.last_traceback = value.__traceback__
        if self.missing:
            del sys.excepthook
            # The interpreter's own words for a program that has deleted the hook.
            sys.stderr.write("sys.excepthook is missing\n")
            sys.__excepthook__(kind, value, traceback)
            return
        # Put back before it is called: it may replace itself.
        sys.excepthook = self.hook  # type: ignore[assignment]
        try:
            self.hook(kind, value, traceback)  # type: ignore[misc]
        # As the interpreter does: a hook may exit.
        except SystemExit:
            raise
        except BaseException as error:
            _display_broken_hook(error, value, traceback)


def _display_broken_hook(error: BaseException, value: BaseException, traceback: TracebackType | None) -> None:
    """Say what the interpreter says where the hook itself raises."""
    inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
    error.__traceback__ = inner
    # Only because torchvet's call stood in an except block.
    error.__context__ = None if error.__context__ is value else error.__context__
    sys.stderr.write("Error in sys.excepthook:\n")
    sys.__excepthook__(type(error), error, inner)
    sys.stderr.write("\nOriginal exception was:\n")
    sys.__excepthook__(type(value), value, traceback)


def without_torchvet(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without torchvet's frames: the launcher's below the program, the probes' wrappers within it.

    `runpy`'s frames stay, since plain Python shows them. The links are changed in place.
    """
    # First those at the top, below the program's first frame.
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    link = traceback
    while link is not None:
        following = link.tb_next
        while following is not None and _is_ours(following):
            following = following.tb_next
        if following is not link.tb_next:
            link.tb_next = following
        link = following
    return traceback


def clean(error: BaseException) -> None:
    """Take torchvet's frames out of an exception and of those that it was raised from."""
    for link in chain(error):
        link.__traceback__ = without_torchvet(link.__traceback__)


def _is_ours(link: TracebackType) -> bool:
    return link.tb_frame.f_code.co_filename.startswith(_OURS)


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised from, or in the handling of."""
    seen: set[int] = set()
    link: BaseException | None = error
    # A program can tie causes and contexts into a ring.
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def on_its_way() -> BaseException | None:
    """In a finalizer of `multiprocessing`: the error that ends the code of this process; None where none does.

    A rank that `torch.multiprocessing` has started passes its error's text on, and exits instead: it is the error.
    """
    error = sys.exc_info()[1]
    link = error.__traceback__ if isinstance(error, SystemExit) else None
    while link is not None and link.tb_next is not None:
        link = link.tb_next
    raised_by = link.tb_frame.f_globals.get("__name__") if link is not None else None
    return (error and error.__context__) if raised_by == "torch.multiprocessing.spawn" else error


def before_hard_exit(act: Callable[[int], None]) -> None:
    """Call `act` with the status before `os._exit`, which runs no exit handler. Forked children pass straight on."""
    # Taken now: the program may replace the name as well.
    leave, pid = os._exit, os.getpid()

    def _exit(status: int) -> None:
        """Exit to the system with specified status, without normal exit processing."""
        if os.getpid() == pid and isinstance(status, int):
            act(status)
        leave(status)

    # For whoever prints or pickles it.
    _exit.__module__, _exit.__qualname__ = leave.__module__, leave.__qualname__
    os._exit = _exit  # type: ignore[assignment]


def exit_status(code: object) -> int:
    """The status that the system gets to see for a `SystemExit` code: none is 0, a message is 1."""
    if code is None:
        return 0
    # The system keeps eight bits.
    return code & 0xFF if isinstance(code, int) else 1


def how_ended(error: BaseException | None) -> tuple[str, int]:
    """How code ends that this error leaves, None at its own end, and the exit status that is due."""
    # A generator that is closed is left at its `yield`.
    if error is None or isinstance(error, GeneratorExit):
        return "finished", 0
    if isinstance(error, SystemExit):
        return "exit", exit_status(error.code)
    if isinstance(error, KeyboardInterrupt):
        return "interrupt", 1
    return "out-of-memory" if any(map(is_out_of_memory, chain(error))) else "exception", 1


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: Python's, a device's (`torch.OutOfMemoryError`) or torch's own on the host."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # torch raises a plain RuntimeError for the host's memory.
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
