"""Runs the user's program inside the observed process, as `python` would, and sees how it ends.

Only bookkeeping happens here: the program itself runs from `_importlib_bootstrap`, and everything that the interpreter
does at the end of a program (the exception hook, joining threads, exit handlers, dying by SIGINT) is left to it.
The last look is an exit handler registered when the program's code has ended: the interpreter calls it first, after
it has joined the threads.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from torchvet.probes import following
from torchvet.probes.session.exception_hook import (
    OneShotHook,
    before_hard_exit,
    chain,
    clean,
    how_ended,
)
from torchvet.probes.session.overlay import install as install_overlay
from torchvet.probes.session.program import Target
from torchvet.recording.records.ranks import ChildEnd
from torchvet.recording.records.training import Outcome, Unwatched
from torchvet.recording.writer import MOST_CHILDREN, RecordingWriter

if TYPE_CHECKING:
    from torchvet.probes.session.session import Options, Session


class Launch:
    """One program being run. `code` is a script's, `module` and `alter_argv` are runpy's.

    It outlives the program, so it keeps nothing of it: the interpreter's last act is to run the destructors of what
    the program left behind, and a reference from here would come before that.
    """

    def __init__(
        self, target: Target, session: Session, writer: RecordingWriter, steps_reached: type[BaseException]
    ) -> None:
        self.code: CodeType | None = target.code
        self.module = target.module or ""
        self.alter_argv = target.alter_argv
        self.run_module = _runpy_entry() if target.code is None else _no_module
        self.session = session
        self.writer = writer
        self.steps_reached = steps_reached
        # Taken out again before the last look: it holds the exception, and with it the program's frames.
        self.ended: tuple[str, int, BaseException | None] | None = None

    def finished(self) -> None:
        """The program's code has run to its end."""
        self._finish_later("finished", 0, None)

    def failed(self, error: BaseException) -> None:
        """The program's code ended by an exception, which is about to reach the interpreter."""
        # Before anybody sees it: programs' own hooks and reports print tracebacks.
        clean(error)
        if isinstance(error, SystemExit):
            self._exited(error)
            return
        # What breaks in a changed step is no error of the program's.
        if self.session.trying and not isinstance(error, KeyboardInterrupt):
            self._finish_later("steps-reached", 0, None)
            sys.excepthook = _say_nothing
            return
        how, status = self._judge(error)
        self._finish_later(how, status, error)
        OneShotHook.install()

    def before_exit(self, status: int) -> None:
        """The program calls `os._exit`."""
        self._finish(*(self.ended or ("os-exit", status, None)))

    def _last_look(self) -> None:
        ended, self.ended = self.ended, None
        if ended is not None:
            self._finish(*ended)

    def _finish(self, how: str, status: int, error: BaseException | None) -> None:
        """The last look, in the observed process only. A Ctrl-C during it ends it."""
        with contextlib.suppress(BaseException):  # the program has ended, its exit must go on
            self.session.finish(how, status, error)
            self.session.process_ends()

    def _judge(self, error: BaseException) -> tuple[str, int]:
        # The program may have raised something else while it was being ended.
        if any(isinstance(e, self.steps_reached) for e in chain(error)):
            return "steps-reached", 0
        how, status = how_ended(error)
        # -2: the interpreter ends itself by SIGINT afterwards.
        return how, -2 if how == "interrupt" else status

    def _exited(self, error: SystemExit) -> None:
        """`sys.exit`: the interpreter drops the frames before it joins the threads, and a thread may wait for that."""
        if _is_missing_module(error):
            not_started(self.writer, str(error.__context__))
            error.code = 2
            return
        how, status = self._judge(error)
        if how == "steps-reached":
            error.code = 0
        if _others_running():
            self._finish_later(how, status, None)
        else:
            self._finish(how, status, error)

    def _finish_later(self, how: str, status: int, error: BaseException | None) -> None:
        self.ended = (how, status, error)
        # Handlers run last in, first out: this comes before all of the program's.
        atexit.register(self._last_look)


def prepare(config: dict[str, Any], arguments: list[str], known: frozenset[str]) -> Launch:
    """Set everything up for the program of `config` (see `supervisor.supervise.child_command`) and start the probes.

    `known` are the modules that a bare interpreter had loaded. Exits with status 2 where the program cannot start.
    """
    from torchvet.probes.session.session import Options, Session
    from torchvet.probes.session.step_log import StepsReached

    writer = RecordingWriter(Path(config["directory"]), config["rank"])
    target = Target(config["path"], config["module"], arguments, config.get("code"))
    try:
        if config.get("overlay"):
            # Before the program's own file is read, which may be among those replaced.
            install_overlay(Path(config["overlay"]))
        if config.get("undo"):
            _note_changes(config)
        target.install()
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        # The supervisor says why; the child prints nothing of its own.
        not_started(writer, f"{target.name}: {error}")
        raise SystemExit(2) from None
    options = Options(
        directory=config["directory"],
        path=_text(target.name),
        argv=[_text(word) for word in (*target.words, *arguments)],
        user_root=target.search_path,
        code=_text(target.text) if target.text is not None else None,
        steps=config["steps"],
        memory_limit=config["memory_limit"],
        **config.get("probes", {}),
    )
    launch = Launch(target, Session(options, writer), writer, StepsReached)
    # After the program's file was read: an error there exits by itself.
    before_hard_exit(launch.before_exit)
    launch.session.start()
    _follow(config, options, writer)
    # At the end, when all that torchvet needs at the start has been imported.
    target.forget_shadowed(known)
    return launch


def _follow(config: dict[str, Any], options: Options, writer: RecordingWriter) -> None:
    """Have processes that the program starts observed, but where the program is a trial with something changed."""
    asked = set(config.get("probes", {}))
    if (
        # With any other option a child's steps would be something else than the parent's: simulated, timed,
        # changed.
        asked <= {"precision_forecast", "snapshots", "stop_file"}
        and not config.get("overlay")
        and not config.get("undo")
    ):
        chosen = {name: value for name in options.__struct_fields__ if (value := getattr(options, name)) is not None}
        following.lead(chosen, config["directory"], config["rank"], _Unfollowed(writer), _Ended(writer))
    else:
        following.notice(_Unfollowed(writer))


class _Ended:
    """Writes down how processes of the program's ended that say nothing themselves, up to a number of them."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        # Programs may start processes without end: a line for each would fill the recording.
        self._left = 4 * MOST_CHILDREN

    def __call__(self, pid: int, status: int) -> None:
        if status and self._left:
            self._left -= 1
            self._writer.write(ChildEnd(pid=pid, status=status))


class _Unfollowed:
    """Writes down the first command that was started and is not followed, and how many there were by then."""

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._first = ""
        self._count = 0

    def __call__(self, command: str) -> None:
        self._first = self._first or command
        self._count += 1
        if self._count & (self._count - 1) == 0:  # a line for ever more of them
            self._writer.write(Unwatched(kind="started", count=self._count, command=self._first))


def _note_changes(config: dict[str, Any]) -> None:
    """Have what the program changes on the disk noted. Raises OSError."""
    from torchvet.probes.session.undoing import install

    program = os.path.dirname(os.path.abspath(config["path"])) if config["path"] else os.getcwd()
    install(Path(config["undo"]), (config["directory"],), (os.getcwd(), program))


def _say_nothing(kind: object, error: object, traceback: object) -> None:
    """The program's own steps were over: what broke is a step that was tried with something changed."""


def _text(word: str) -> str:
    """A word that can be written down: what the system passed in another encoding is escaped."""
    return word.encode("utf-8", "backslashreplace").decode()


def not_started(writer: RecordingWriter, message: str) -> None:
    """Write down that nothing ran, for the supervisor to say why."""
    writer.write(Outcome(how="not-started", status=2, ticks=0, seconds=0.0, error=message))


def _others_running() -> bool:
    """Whether there are threads that the interpreter will wait for."""
    here = threading.current_thread()
    return any(t is not here and not t.daemon and t.is_alive() for t in threading.enumerate())


def _is_missing_module(error: SystemExit) -> bool:
    """Whether `runpy` could not find what it was to run, as opposed to the program's own exit."""
    cause = type(error.__context__)
    # Private to `runpy`: by its name, as importing it for this would cost more.
    return (cause.__module__, cause.__name__) == ("runpy", "_Error")


def _runpy_entry() -> Callable[[str, bool], object]:
    import runpy

    return runpy._run_module_as_main  # type: ignore[attr-defined,no-any-return]


def _no_module(module: str, alter_argv: bool) -> object:
    raise TypeError("a script has code, no module")
