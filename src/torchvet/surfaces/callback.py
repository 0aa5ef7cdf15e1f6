"""What callbacks of training frameworks share: a watch that begins and ends with the training, and its report."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

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

    def begin(self) -> None:
        """The training begins. One before it that has failed unnoticed ends now."""
        self.end()
        self._running = True
        self._watch.start()
        atexit.register(self._end_at_exit)

    def end(self, error: BaseException | None = None, leads: bool = True) -> Report | None:
        """The training ended, by `error` if one is given: the report is shown, and written by the rank that leads. None
        if none is running."""
        if not self._running:
            return None
        self._running = False
        atexit.unregister(self._end_at_exit)
        self.report = report = self._watch.stop(error, leads)
        if self._show:
            from torchvet.renderers import renderer_for

            print(renderer_for("text").render(report), file=sys.stderr)
        return report

    def _end_at_exit(self) -> None:
        """The program ends, and the training has not: it failed."""
        self.end(getattr(sys, "last_value", None))


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
