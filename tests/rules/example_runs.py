"""Runs a rule's example under observation in a process that is forked with torch imported: most of a real run's time is
spent on importing it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
from pathlib import Path
from typing import Any

import msgspec

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["torch", "torchvet._watch", "torchvet.probes.observer", "torchvet.diagnosis", "torchvet.joining"]
)


def observe(script: str, report: str) -> None:
    """In the fork: the program, as `__main__`, within `torchvet.watch()`."""
    import torch

    import torchvet

    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    watch = torchvet.watch(memory_limit=24 << 30)
    with contextlib.suppress(Exception), watch:  # how a program fails may be what is to be found
        runpy.run_path(script, run_name="__main__")
    assert watch.report is not None
    Path(report).write_bytes(msgspec.json.encode(watch.report))


def forked(program: str, folder: Path) -> list[dict[str, Any]] | None:
    """The findings of a program's text; None where it cannot be run to its end in this way."""
    script, report = folder / "program.py", folder / "forked.json"
    script.write_text(program, encoding="utf-8")
    report.unlink(missing_ok=True)
    process = _context.Process(target=observe, args=(str(script), str(report)))
    process.start()
    process.join(120)
    if process.exitcode != 0 or not report.exists():
        process.kill()
        return None
    found: list[dict[str, Any]] = msgspec.json.decode(report.read_bytes())["findings"]
    return found
