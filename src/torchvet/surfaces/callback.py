"""What callbacks of training frameworks share: a watch that begins and ends with the training, and its report."""

from __future__ import annotations

import atexit
import os
import sys
from multiprocessing.util import Finalize
from pathlib import Path

from torchvet.api.ending import TrainingUnfinished, why
from torchvet.api.watch import Watch
from torchvet.finding import Report


class Training:
    """Watches one training after another; `report` is the last one's."""

    def __init__(self, output: str | Path | None, show: bool, record: str | Path | None, memory_limit: int | None):
        """`output` gets the report, in the format of its extension; `show` prints it to stderr. Raises `BadInput` for
        an extension that is no format's."""
        self.report: Report | None = None
        self._watch = Watch(record=record, memory_limit=memory_limit, output=output)
        self._show = show
        self._running = False
        self._process = 0
        self._finalizer: Finalize | None = None

    def begin(self) -> None:
        """The training begins. One before it that has failed unnoticed ends now."""
        self.end(TrainingUnfinished())
        self._running, self._process = True, os.getpid()
        self._watch.start()
        atexit.register(self._end_at_exit)
        # Processes of `multiprocessing` run no exit handlers where they are forked, and drop the error before.
        self._finalizer = Finalize(None, self._end_at_exit, exitpriority=0)

    def end(self, error: BaseException | None = None, leads: bool = True) -> Report | None:
        """The training ended, by `error` if one is given: the report is shown, and written by the rank that leads. None
        if none is running."""
        if not self._running:
            return None
        self._running = False
        atexit.unregister(self._end_at_exit)
        if self._finalizer is not None:
            self._finalizer.cancel()
            self._finalizer = None
        self.report = report = self._watch.stop(error, leads)
        if self._show and not self._watch.joined:
            from torchvet.renderers import renderer_for

            print(renderer_for("text").render(report), file=sys.stderr)
        return report

    def _end_at_exit(self) -> None:
        """The program ends, and the training has not: it failed."""
        # A fork of the process that trains has this handler as well.
        if self._process == os.getpid():
            self.end(why())


class Vetting:
    """What a framework's callback is besides: its parameters, and its report."""

    def __init__(
        self,
        output: str | Path | None = None,
        *,
        show: bool = True,
        record: str | Path | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """`output` gets the report (`.json`, `.md`, `.html`, ...), `show` prints it to stderr; else as `watch()`."""
        self._training = Training(output, show, record, memory_limit)

    @property
    def report(self) -> Report | None:
        """The report of the last training that has ended."""
        return self._training.report
