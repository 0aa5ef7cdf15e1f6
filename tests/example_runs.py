"""Runs a rule's example, alone or under observation, in a process that is forked with torch imported: most of a real
run's time is spent on importing it."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import runpy
import shutil
import socket
import tempfile
import traceback
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from torchvet.probes.session.bus import PROBES
from torchvet.rules import all_rules

OBSERVING = [
    *(
        "torch",
        "torch._dynamo",
        "torchvet.api.watch",
        "torchvet.probes.session.observer",
        "torchvet.probes.dry.observer",
    ),
    *("torchvet.simulate.start", "torchvet.diagnosis.diagnose", "torchvet.diagnosis.correlation"),
    *(f"torchvet.probes.{watcher.rpartition('.')[0]}" for watcher in PROBES),
    *(type(rule).__module__ for rule in all_rules()),
]
"""What a process imports when it is observed and the recording is diagnosed."""

RECORDING = "program.vet"
"""Where a program's folder has the recording of its last run."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(OBSERVING)


def _finish(process: Any) -> int | None:
    """The exit status, once started if need be; None of one that had to be ended after five minutes."""
    if process.pid is None:
        process.start()
    process.join(300)
    status: int | None = process.exitcode
    if status is None:
        process.kill()
    return status


def _print(program: str, name: str, outcome: str, rank: dict[str, str]) -> None:
    """In the fork: the program alone, with nobody watching, as one `rank` of several if it is one."""
    import torch

    os.environ.update(rank)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    printed, error, names = io.StringIO(), None, {"__name__": "__main__"}
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(program, name, "exec"), names)
        except BaseException:
            error = traceback.format_exc()
    Path(outcome).write_bytes(msgspec.json.encode((printed.getvalue(), error)))
    # Nothing of the program is freed: a model in DistributedDataParallel that is dropped after its group was destroyed
    # joins gloo's thread under the GIL, for which that thread may be waiting (torch 2.13.0, about once in 2,000 times).
    os._exit(0)


def _ranks(count: int) -> list[dict[str, str]]:
    """What a launcher puts into the environment of each of `count` ranks; nothing where there is one."""
    if count == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [{**every, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


@cache
def printed_by(program: str, name: str, ranks: int = 1) -> tuple[str, str | None]:
    """What a program's text prints (as rank 0 of `ranks`), and the traceback that it ends with, if it does."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder, "outcome0.json")
        processes = [
            _context.Process(target=_print, args=(program, name, str(Path(folder, f"outcome{rank}.json")), environment))
            for rank, environment in enumerate(_ranks(ranks))
        ]
        for process in processes:
            process.start()
        statuses = [_finish(process) for process in processes]
        if not outcome.exists():
            return "", f"the process ended with status {statuses[0]}"
        return msgspec.json.decode(outcome.read_bytes(), type=tuple[str, str | None])


def observe(script: str, report: str) -> None:
    """In the fork: the program, as `__main__`, within `torchvet.watch()`."""
    import torch

    import torchvet

    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    watch = torchvet.watch(record=Path(script).with_name(RECORDING), memory_limit=24 << 30)
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
    shutil.rmtree(folder / RECORDING, ignore_errors=True)
    dry = (str(script), str(report), card)
    process = _context.Process(target=observe_dry if card else observe, args=dry if card else dry[:2])
    if _finish(process) != 0 or not report.exists():
        return None
    found: list[dict[str, Any]] = msgspec.json.decode(report.read_bytes())["findings"]
    return found
