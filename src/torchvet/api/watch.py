"""`torchvet.watch()`: what `torchvet run` does, around a block or a function of a program's own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from torchvet.errors import BadInput, MissingExtra, TorchvetError
from torchvet.scratch import Scratch

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.probes.session.session import Session

F = TypeVar("F", bound=Callable[..., Any])


class Watch(contextlib.ContextDecorator):
    """Observes torch while the block runs; afterwards `report` holds the diagnosis.

        with torchvet.watch() as watched:
            train()
        print(watched.report.verdict)

    As a decorator it watches every call of the function, and `report` is the last call's. `step()` marks step
    boundaries where the program knows better than the steps that torchvet finds. One watch at a time in a process.
    """

    def __init__(
        self, *, record: str | Path | None = None, memory_limit: int | None = None, show: bool = False
    ) -> None:
        """`record` keeps the recording in a directory; `memory_limit` in bytes is what forecasts go by; `show` prints
        the text report to stderr when the block ends."""
        self.report: Report | None = None
        self._record = record
        self._memory_limit = memory_limit
        self._show = show
        self._session: Session | None = None
        self._folder: Scratch | None = None

    def __enter__(self) -> Watch:
        """Start observing. Raises `MissingExtra` without torch, `BadInput` where nothing can be recorded, and
        `TorchvetError` where something is watched already."""
        if importlib.util.find_spec("torch") is None:
            raise MissingExtra("watch() needs torch: pip install 'torchvet[run]'")
        from torchvet.probes.session.session import Options, Session, session_in_process
        from torchvet.recording import RecordingWriter

        if session_in_process() is not None:
            raise TorchvetError("this process is being watched already (by `torchvet run`, or by an outer watch())")
        try:
            if self._record is None:
                self._folder = Scratch()
            path = Path(self._record) if self._record is not None else cast(Any, self._folder).path
            writer = RecordingWriter(path)
        except OSError as error:
            raise BadInput(f"watch(): the recording cannot be written: {error}") from error
        caller = sys._getframe(1).f_code.co_filename
        options = Options(directory=str(path), path=caller, argv=list(sys.argv), user_root=str(Path(caller).parent))
        options.memory_limit = self._memory_limit
        self._session = Session(options, writer)
        self._session.start()
        return self

    def step(self) -> None:
        """A step of the program's own ends here. From the first call on, only these count."""
        if self._session is not None and self._session.observer is not None:
            self._session.observer.step_ended()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop observing and diagnose. An exception passes through."""
        session, self._session = self._session, None
        if session is None:
            return
        session.finish("finished" if error is None else "exception", 0 if error is None else 1, error)
        session.writer.close()
        self.report = self._diagnose(session.writer.path.parent)
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._show:
            from torchvet.renderers import renderer_for

            print(renderer_for("text").render(self.report), file=sys.stderr)

    def __call__(self, function: F) -> F:
        """Watch every call of a function."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, watched)

    @staticmethod
    def _diagnose(path: Path) -> Report:
        from torchvet.diagnosis.diagnose import diagnose
        from torchvet.finding import NotChecked, Report
        from torchvet.recording import read

        try:
            return diagnose(read(path))
        except BadInput as error:  # the program has removed it: no reason for the program to end here
            gap = NotChecked(check="everything", reason=str(error))
            return Report(subject={"kind": "run"}, verdict="undetermined", not_checked=[gap])


def watch(*, record: str | Path | None = None, memory_limit: int | None = None, show: bool = False) -> Watch:
    """Watch a block or a function: see `Watch`. `record`: a directory; `memory_limit`: bytes."""
    return Watch(record=record, memory_limit=memory_limit, show=show)
