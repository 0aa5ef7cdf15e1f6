"""Runs a program's text on a simulated GPU, in a process that is forked with torch imported."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import msgspec
from example_runs import _context, _finish


def _run(program: str, card: str, arguments: list[str], outcome: str) -> None:
    import torch

    from torchvet.simulate.cards import card_of
    from torchvet.simulate.start import start

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start(card_of(card))
    printed, error = io.StringIO(), None
    sys.argv = ["leak.py", *arguments]
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(program, "leak.py", "exec"), {"__name__": "__main__"})
        except BaseException:
            error = traceback.format_exc()
    Path(outcome).write_bytes(msgspec.json.encode((printed.getvalue(), error)))
    os._exit(0)


def printed_on(card: str, program: str, *arguments: str) -> tuple[str, str | None]:
    """What a program's text prints with these arguments on a card, and the traceback that it ends with, if it does."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder, "outcome.json")
        _finish(_context.Process(target=_run, args=(program, card, list(arguments), str(outcome))))
        return msgspec.json.decode(outcome.read_bytes(), type=tuple[str, str | None])


def _observe(program: str, card: str, folder: str, outcome: str) -> None:
    import torch
    from dry_running import dry_report

    torch.set_num_threads(1)
    report = dry_report(program, Path(folder), card, dry=False)
    Path(outcome).write_bytes(msgspec.json.encode(report))


def findings_on(card: str, program: str) -> list[tuple[str, str]]:
    """The severity and code of what torchvet finds in a program that runs on a card with real numbers."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder, "outcome.json")
        _finish(_context.Process(target=_observe, args=(program, card, folder, str(outcome))))
        report = msgspec.json.decode(outcome.read_bytes())
        assert report["verdict"] != "undetermined", report["not_checked"]
        return [(found["severity"], found["code"]) for found in report["findings"]]
