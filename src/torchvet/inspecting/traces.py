"""The report on profiler traces, as the verb asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchvet.finding import Report
from torchvet.inspecting.observing import Observer


def report_on(
    paths: Sequence[Path],
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    memory_limit: int | None = None,
    observer: Observer | None = None,
) -> Report:
    """One report on one trace or several (the ranks of a program). A trace says nothing that a memory limit changes.

    Raises `BadInput` for what is none.
    """
    from torchvet import traces

    return traces.report_on(
        paths, select=select, ignore=ignore, observer=observer.trace if observer is not None else None
    )
