"""`torchvet.watch()`: what `torchvet run` does, around a block or a function of a program's own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from torchvet.api.output import Output
from torchvet.errors import BadInput, MissingExtra, TorchvetError
from torchvet.scratch import Scratch

if TYPE_CHECKING:
    from torchvet.api.all_ranks import AllRanks
    from torchvet.charts import Drawing
    from torchvet.finding import Report
    from torchvet.probes.session.session import Session
    from torchvet.recording import RecordingWriter

F = TypeVar("F", bound=Callable[..., Any])


class Watch(contextlib.ContextDecorator):
    """Observes torch while the block runs; afterwards `report` holds the diagnosis.

        with torchvet.watch() as watched:
            train()
        print(watched.report.verdict)

    As a decorator it watches every call of the function, and `report` is the last call's. `step()` marks step
    boundaries where the program knows better than the steps that torchvet finds. A process is observed once at a time:
    within `torchvet run`, or another watch, the report is undetermined and says so.
    """

    def __init__(
        self,
        *,
        record: str | Path | None = None,
        memory_limit: int | None = None,
        show: bool = False,
        every_step: bool = False,
        thorough: bool = False,
        program: str | Path | None = None,
        output: str | Path | None = None,
    ) -> None:
        """See `watch()`. Raises `BadInput` for an `output` whose extension is no format's."""
        self.report: Report | None = None
        self.joined = False
        """Whether the first rank has what the last watch saw on this one, and reports on all."""
        self._output = Output(output) if output is not None else None
        self._record = record
        self._memory_limit = memory_limit
        self._show = show
        self._every_step = every_step
        self._thorough = thorough
        self._program = program
        self._session: Session | None = None
        self._ranks: AllRanks | None = None
        self._folder: Scratch | None = None
        self._within = 0
        """How many times it was started while something else observed the process."""

    def start(self) -> None:
        """Start observing, where the block is not one of code (callbacks). Raises `MissingExtra` without torch,
        `BadInput` where nothing can be recorded."""
        if importlib.util.find_spec("torch") is None:
            raise MissingExtra("watch() needs torch: pip install 'torchvet[run]'")
        from torchvet.api.all_ranks import AllRanks
        from torchvet.probes import following
        from torchvet.probes.session.session import Session, session_in_process
        from torchvet.recording import RecordingWriter

        following.wake()
        if session_in_process() is not None:
            self._within += 1
            return
        try:
            if self._record is None:
                self._folder = Scratch()
            path = Path(self._record) if self._record is not None else cast(Any, self._folder).path
            writer = RecordingWriter(path, _rank())
        except OSError as error:
            raise BadInput(f"watch(): the recording cannot be written: {error}") from error
        self._ranks = AllRanks()
        self._session = Session(self._options(path), writer)
        self._session.start()

    def _options(self, path: Path) -> Any:
        from torchvet.probes.base.frames import user_place
        from torchvet.probes.session.session import Options

        if self._program is not None:
            program, argv = str(self._program), []
        else:
            place = user_place(2)
            program, argv = place.path if place is not None else sys.argv[0], list(sys.argv)
        options = Options(directory=str(path), path=program, argv=argv, user_root=str(Path(program).parent))
        options.memory_limit = self._memory_limit
        options.every_step, options.thorough = self._every_step, self._thorough
        simulation = sys.modules.get("torchvet.simulate.start")
        card = simulation.card() if simulation is not None else None
        options.simulated_gpu = card.name if card is not None else None
        return options

    def step(self) -> None:
        """A step of the program's own ends here. From the first call on, only these count."""
        if self._session is not None and self._session.observer is not None:
            self._session.observer.step_ended()

    def stop(self, error: BaseException | None = None, leads: bool | None = None) -> Report:
        """Stop observing and diagnose; `error` is what ended the block. Gives the report. Of several ranks the first
        has one on all, if their records come within ten seconds. The one that `leads` writes the output; by default the
        first. Raises `TorchvetError` where the watch was not started."""
        from torchvet.charts import NOTHING

        if self._within:
            self._within -= 1
            self.joined = False
            report, drawing = _not_observed(), NOTHING
        else:
            report, drawing = self._ended(error)
        self.report = report
        leads = _rank() == 0 if leads is None else leads
        if self._output is not None and leads:
            self._output.write(report, drawing)
        return report

    def _ended(self, error: BaseException | None) -> tuple[Report, Drawing]:
        """The report on what was observed, and what is drawn beside it."""
        from torchvet.probes.session.exception_hook import clean, how_ended

        session, self._session = self._session, None
        if session is None:
            raise TorchvetError("stop(): this watch is not running; call start() first")
        if error is not None:
            # Whoever prints it prints what plain Python would.
            clean(error)
        assert self._ranks is not None
        how, status = how_ended(error)
        if not status:
            self._ranks.end()
        session.finish(how, status, error if status else None)
        session.release()
        report, drawing = self._diagnosed(session.writer, self._ranks, failed=status != 0)
        session.writer.close()
        self.joined = self._ranks.joined
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._show and not self.joined:
            from torchvet.renderers import renderer_for

            print(renderer_for("text").render(report), file=sys.stderr)
        return report, drawing

    def __enter__(self) -> Watch:
        """Start observing. Raises `MissingExtra` without torch."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop observing and diagnose. An exception passes through."""
        self.stop(error)

    def __call__(self, function: F) -> F:
        """Watch every call of a function."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, watched)

    def _diagnosed(self, writer: RecordingWriter, ranks: AllRanks, failed: bool) -> tuple[Report, Drawing]:
        from torchvet.charts import NOTHING
        from torchvet.diagnosis.diagnose import diagnose
        from torchvet.finding import NotChecked, Report
        from torchvet.recording import Recording, read

        try:
            found = read(writer.path.parent)
            # Other ranks may still write theirs beside it. Nobody is to be sent to a folder that is about to go.
            mine = [one for one in found.ranks if one.name == writer.path.stem]
            recording = ranks.join(Recording(mine, found.path if self._record is not None else None), writer, failed)
        except BadInput as error:  # the program has removed it: no reason for the program to end here
            gap = NotChecked(check="everything", reason=str(error))
            return Report(subject={"kind": "run"}, verdict="undetermined", not_checked=[gap]), NOTHING
        report = diagnose(recording)
        return report, self._output.drawing(report, recording) if self._output is not None else NOTHING


def _rank() -> int:
    """Which of several ranks this process is: as the group says that it has joined, else as its launcher does."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _not_observed() -> Report:
    """The report on a block within what is observed already."""
    from torchvet.finding import NotChecked, Report

    reason = "the process is observed already, by `torchvet run` or another watch(): its report covers this block"
    judged = {"earned": False, "reason": reason}
    gaps = [NotChecked(check="this block by itself", reason=reason)]
    return Report(subject={"kind": "run"}, verdict="undetermined", not_checked=gaps, facts={"verdict": judged})


def watch(
    *,
    record: str | Path | None = None,
    memory_limit: int | None = None,
    show: bool = False,
    every_step: bool = False,
    thorough: bool = False,
    program: str | Path | None = None,
    output: str | Path | None = None,
) -> Watch:
    """Watch a block or a function: see `Watch`.

    `record` keeps the recording in a directory. `memory_limit`, in bytes, is what forecasts go by. `show` prints the
    text report to stderr when the block ends. Two ask for more, whatever that costs: `every_step` samples all steps but
    the first, so that no peak and no wait for the device is missed (the host's heap is not judged then); `thorough`
    searches the names that hold memory from the eighth step on, so that fewer steps are enough to judge growth.
    `program` is the file that the report is about; by default that of the caller. `output` is a file that gets the
    report, in the format of its extension (`.html` with charts); of several ranks, the first writes it.
    """
    return Watch(
        record=record,
        memory_limit=memory_limit,
        show=show,
        every_step=every_step,
        thorough=thorough,
        program=program,
        output=output,
    )
