"""`torchvet.oom_report()`: one line for a program's own `except torch.OutOfMemoryError`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.finding import Report

_FRESH = 60.0
"""Seconds for which the snapshot that `torchvet run` left at a failure is that failure's."""


def oom_report(directory: str | Path | None = None) -> Report | None:
    """Explain on stderr what is alive on the GPU, and leave a memory snapshot in `directory` (the working one).

        try:
            train_step()
        except torch.OutOfMemoryError:
            torchvet.oom_report()
            raise

    The report has lines and categories where allocations were recorded: under `torchvet run` or `watch()`, or after
    `torch.cuda.memory._record_memory_history()`. Every rank writes a file of its own. Never raises: what goes wrong is
    said on stderr, and None is given.
    """
    try:
        return _report(Path(directory if directory is not None else os.getcwd()))
    except Exception as error:
        print(f"torchvet: no report on memory: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _report(directory: Path) -> Report | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        print("torchvet: no report on memory: there is no GPU", file=sys.stderr)
        return None
    from torchvet.inspecting import inspect_paths
    from torchvet.probes.memory.out_of_memory import latest, snapshot_name, write_snapshot
    from torchvet.renderers import renderer_for

    left = latest()
    if left is not None and left.path.is_file() and time.monotonic() - left.at < _FRESH:
        path = left.path
    else:
        path = directory / snapshot_name(Path(sys.argv[0] or "program").stem)
        write_snapshot(path)
    report = inspect_paths([path])
    rank = os.environ.get("RANK")
    where = f"torchvet: memory of rank {rank}" if rank else "torchvet: memory"
    print(f"{where}, snapshot in {path}\n{renderer_for('text').render(report)}", file=sys.stderr)
    return report
