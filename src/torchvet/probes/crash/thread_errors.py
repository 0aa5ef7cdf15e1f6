"""Writes down which threads of the program ended in an exception: the program goes on and ends with status 0."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from torchvet.probes.base.kit import Host, StepKind, Watcher
from torchvet.recording.records.verify import ThreadFailed

_MOST = 20
"""Failed threads that are written down."""
_LONGEST = 200
"""Characters of a message that are kept."""


class ThreadErrors(Watcher):
    """Threads that ended in an exception."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        # The thread that fails may be any; `append` and `popleft` of a deque need no lock.
        self._failed: deque[ThreadFailed] = deque()
        self._left = _MOST

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """Only where runs are compared: such an error is printed by Python, and no fault of torch's."""
        return bool(options.losses)

    def install(self) -> None:
        """Stand before the hook that prints."""
        self.replace(threading, "excepthook", self._tap)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. What other threads have left is written on the thread that steps."""
        while self._failed:
            self.host.write(self._failed.popleft())

    def finish(self, how: str, error: BaseException | None) -> None:
        """What came after the last step."""
        self.boundary(self.host.step, "training")

    def _tap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def excepthook(args: Any, /) -> Any:
            # `threading` prints nothing for SystemExit either: it ends the thread on purpose.
            if self.host.active and self._left > 0 and not issubclass(args.exc_type, SystemExit):
                self._left -= 1
                self._failed.append(ThreadFailed(kind=args.exc_type.__name__, message=_text(args.exc_value)))
            return original(args)

        return excepthook


def _text(error: object) -> str:
    """The message; a class may have a `__str__` that fails."""
    try:
        return str(error)[:_LONGEST]
    except Exception:
        return ""
