"""A forked child that can do no harm: no file, no pipe, no socket of the parent's is reached from it.

Its memory is its own by copy on write. What the operating system shares all the same (open files and their
positions, tensors in shared memory) is cut off or copied before anything of the program runs in it.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torchvet.probes.base.operators import names
from torchvet.probes.following import own_fork
from torchvet.probes.internals.simulated import simulated

# A record is a few kilobytes; the parent must not be flooded by a mistake.
_LARGEST = 1 << 20
_FORBIDDEN = tuple(
    names(
        "os.remove os.rename os.rmdir os.mkdir os.truncate os.link os.symlink os.chmod os.chown os.kill os.killpg "
        "os.system os.exec os.posix_spawn os.spawn os.fork os.forkpty os.utime shutil. subprocess. socket.connect "
        "socket.bind socket.sendto tempfile. signal.pthread_kill urllib.Request mmap.__new__"
    )
)
"""Audit events that a replay has no business with."""
# What a terminal or a supervisor ends a process by.
_ENDING = {s for n in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM") if (s := getattr(signal, n, None))}


class Failed(Exception):
    """The child gave no answer; the message says why."""


def why_not() -> str | None:
    """Why no child can be forked here, if so."""
    import torch

    if not hasattr(os, "fork"):
        return "this system cannot fork a process to do the step again in"
    if torch.cuda.is_initialized() and not simulated():  # type: ignore[no-untyped-call]
        return "CUDA is in use, and cannot be used in a forked process"
    # A replay would wait for ranks that go on with their own step.
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "the step communicates with other ranks"
    from torchvet.probes.base import host

    # The child gets copies of what it writes to: half of the resident memory is allowed for, with a margin.
    free, resident = host.memory_available(), host.resident()
    if free is not None and resident is not None and free < resident // 2 + (256 << 20):
        return f"{free >> 20} MiB of free memory are too few to do the step again"
    return None


def room_for_twins() -> bool:
    """Whether memory is left for a step in a wider dtype beside its own."""
    from torchvet.probes.base import host

    free, resident = host.memory_available(), host.resident()
    return free is None or resident is None or free >= 3 * resident + (256 << 20)


def ask(work: Callable[[], bytes], seconds: float) -> bytes:
    """Run `work` in a child and return its answer. Raises `Failed` for none within that many seconds."""
    # Before the fork, so that both have it.
    reader, writer = os.pipe()
    # Through the wait: SIGCHLD comes when the child ends.
    with _children_unheard():
        try:
            pid = _fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            raise Failed(f"no process could be forked: {error}") from None
        if pid == 0:
            # Never comes back.
            _child(work, writer, seconds)
        os.close(writer)
        try:
            return _answer(reader, time.monotonic() + seconds)
        finally:
            os.close(reader)
            # Killed even where the answer is complete: waiting for it then never blocks.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of threads: their locks may be held, and the time limit is there for that.
        warnings.simplefilter("ignore")
        with own_fork():
            return os.fork()


def _answer(reader: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        # Not a plain read, which would wait for ever for a child that hangs in a lock of a thread that was
        # not forked.
        ready, _, _ = select.select([reader], [], [], max(0.0, left))
        if not ready:
            raise Failed("doing the step again took too long")
        part = os.read(reader, 1 << 16)
        if not part:
            break
        parts.append(part)
    if not parts:
        raise Failed("the process that did the step again died")
    return b"".join(parts)


@contextlib.contextmanager
def _children_unheard() -> Iterator[None]:
    """The program's own handler for dying children (data loaders have one) hears nothing of ours."""
    # Handlers can be set in the main thread only, and run only there.
    handler = signal.getsignal(signal.SIGCHLD) if threading.current_thread() is threading.main_thread() else None
    # SIG_DFL and SIG_IGN are no handlers of the program's.
    if handler is None or not callable(handler):
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)


def _child(work: Callable[[], bytes], writer: int, seconds: float) -> None:
    """Never returns."""
    try:
        # Before anything of the program runs.
        _isolate(writer, seconds)
        answer = work()[:_LARGEST]
        while answer:
            # A pipe takes as much as fits.
            answer = answer[os.write(writer, answer) :]
    # Also exits and interrupts: this process must not leave by the program's own code.
    except BaseException as error:
        if os.environ.get("TORCHVET_DEBUG"):
            import traceback

            os.write(writer, b"!" + traceback.format_exc().encode())
        else:
            os.write(writer, b"!" + f"{type(error).__name__}: {error}".encode()[:400])
    finally:
        # No exit handler and no buffered output of the program may run a second time in the copy.
        os._exit(0)


def _isolate(writer: int, seconds: float) -> None:
    import torch

    # A collection would write to every object's header, and copy on write would then copy all of the parent's memory.
    gc.disable()
    # Objects of the parent's are never looked through here.
    gc.freeze()
    # The descriptor is shared: a signal here would wake up the parent's event loop.
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number in _ENDING and signal.getsignal(number) is signal.SIG_IGN:
            continue  # as `nohup` has it: the terminal may close meanwhile
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            signal.signal(number, signal.SIG_DFL)
    # With the limit on file sizes (`_cut_files`) a write then raises an error and does not end the child.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # The parent kills a child that takes too long. It may be killed itself.
    # Its default action ends the process, whatever that is doing.
    signal.alarm(int(seconds) + 5)
    _cut_files(writer)
    warnings.simplefilter("ignore")
    sys.setprofile(None)
    sys.settrace(None)
    # The pool of threads did not come along.
    torch.set_num_threads(1)
    _divert_writing()
    # An audit hook can never be taken out again, so it is added in the child alone.
    # Last, since what is set up above opens files itself.
    sys.addaudithook(_refuse)


def _divert_writing() -> None:
    """What opens a file to write gets /dev/null: a step that keeps a log can be done again."""
    original = io.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if isinstance(mode, str) and set(mode) & set("wax+"):
            # The null device exists, and mode `x` refuses what exists.
            # The audit hook lets /dev/null pass.
            file, mode = os.devnull, mode.replace("x", "w")
        return original(file, mode, *args, **kwargs)

    builtins.open = io.open = opened


def _cut_files(writer: int) -> None:
    """Every open file becomes /dev/null: their positions are shared with the parent."""
    # One descriptor for all.
    null = os.open(os.devnull, os.O_RDWR)
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for name in os.listdir(folder):
        number = int(name)
        if number not in (writer, null):
            with contextlib.suppress(OSError):
                # The listing's own descriptor is closed by now: `dup2` would open it anew.
                os.fstat(number)
                os.dup2(null, number, inheritable=False)
    import resource

    # What writes past Python (C++, a library) is stopped by the system.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    # A crash of the child leaves no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        if arguments[0] == os.devnull:
            return
        mode, flags = arguments[1], arguments[2]
        # `os.open` has flags and no mode.
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (isinstance(flags, int) and flags & writes):
            raise PermissionError("a step that is done again writes no files")
    elif event.startswith(_FORBIDDEN):
        raise PermissionError(f"a step that is done again has no business with {event}")
