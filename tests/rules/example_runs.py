"""Runs a rule's example under observation in a process that is forked with torch imported: most of a real run's time is
spent on importing it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import tempfile
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


def observe_dry(script: str, report: str, card: str) -> None:
    """In the fork: the program's steps sized without arithmetic."""
    import torch
    from dry_running import dry_report

    torch.set_num_threads(1)
    path = Path(script)
    found = dry_report(path.read_text(encoding="utf-8"), Path(tempfile.mkdtemp(dir=path.parent)), card)
    Path(report).write_bytes(msgspec.json.encode(found))


def forked(program: str, folder: Path, card: str | None = None) -> list[dict[str, Any]] | None:
    """The findings of a program's text, of a dry run on a simulated `card` if one is given; None where it cannot be run
    to its end in this way."""
    script, report = folder / "program.py", folder / "forked.json"
    script.write_text(program, encoding="utf-8")
    report.unlink(missing_ok=True)
    dry = (str(script), str(report), card)
    process = _context.Process(target=observe_dry if card else observe, args=dry if card else dry[:2])
    process.start()
    process.join(120)
    if process.exitcode != 0 or not report.exists():
        process.kill()
        return None
    found: list[dict[str, Any]] = msgspec.json.decode(report.read_bytes())["findings"]
    return found
