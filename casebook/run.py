"""Run a program bare, and run it under the tool."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from casebook import report
from casebook.program import Program, environment, python

MEMORY_LIMIT = "24GiB"
"""Passed to the tool, so that forecasts do not depend on the machine."""

PATIENCE = 300
"""Seconds after which a run of another tool is given up."""
HANGS = 150
"""Seconds after which a program is taken to hang, bare or watched."""
TRIES = 3
"""How often one of several ranks is begun: a model in DistributedDataParallel that is dropped after its group was
destroyed joins gloo's thread under the GIL, for which that thread may be waiting (torch 2.13.0, about once in 2,000
times, watched or not). And a rank may end by SIGABRT once its program is over (3 of 48 runs of one case, bare)."""
ABORTED = "terminate called without an active exception"
"""What C++ says then: a thread was destroyed that runs still."""


@dataclass(frozen=True)
class Means:
    """What programs are run with."""

    interpreter: str = sys.executable
    """Runs a program bare."""
    tool: str = ""
    """The command in the place of ``python -m torchvet``, as a shell would have it."""


@dataclass(frozen=True)
class Run:
    """One run of a program."""

    status: int
    """Exit status; -1 if the run was given up."""
    stdout: str
    report: report.Report | None = None
    complaint: str = ""
    """Why there is no report."""


def bare(
    program: Program, argv: Sequence[str], command: Sequence[str] = ("run",), interpreter: str = sys.executable
) -> Run:
    """Run the program by itself: on as many ranks as the tool starts, and on the GPUs that it simulates."""
    told = dict(itertools.pairwise(command))
    card, ranks = told.get("--simulate-gpu"), told.get("--nproc")
    here = [] if card is None else ["-m", "casebook.simulated", card, told.get("--gpus", "1")]
    if ranks is not None:
        here = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    return started([interpreter, *here, *program.target, *argv], program.folder)


def vetted(program: Program, argv: Sequence[str], tool: str = "", command: Sequence[str] = ("run",)) -> Run:
    """Run the program under the tool (torchvet, or what is put in its place), by a verb and its options."""
    limit = ("--memory-limit", MEMORY_LIMIT) if command[0] == "run" else ()
    target = program.target[-1:] if command[0] == "check" else program.target  # source: a file or a folder
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "report.json")
        run = started(
            [
                *(shlex.split(tool) or python("-m", "torchvet")),
                *(*command, "-o", str(out), "--quiet", *limit),
                *target,
                *argv,
            ],
            program.folder,
        )
        try:
            return Run(run.status, run.stdout, report.read(out))
        except FileNotFoundError:
            return Run(run.status, run.stdout, None, f"no report: {run.complaint}")
        except msgspec.DecodeError as error:
            return Run(run.status, run.stdout, None, f"unreadable report: {error}")


def started(command: Sequence[str], folder: Path) -> Run:
    """Run a command to its end, in a folder, in the casebook's environment."""
    tries = TRIES if any(b"torch.distributed" in p.read_bytes() for p in folder.rglob("*.py")) else 1
    done = None
    for _ in range(tries):
        try:
            done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=HANGS)
        except subprocess.TimeoutExpired:
            print(f"given up after {HANGS} s: {shlex.join(command)}", file=sys.stderr, flush=True)
            continue
        if tries == 1 or ABORTED not in done.stderr:
            break
        print(f"a rank was aborted after its program: {shlex.join(command)}", file=sys.stderr, flush=True)
    if done is None:
        return Run(-1, "", None, f"given up {tries} times after {HANGS} s")
    last = done.stderr.strip().splitlines()[-1:]
    return Run(done.returncode, done.stdout, None, last[0] if last else f"exit status {done.returncode}")
