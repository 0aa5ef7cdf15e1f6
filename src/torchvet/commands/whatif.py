"""`torchvet whatif`: what shortcuts and fixes would change, in numbers, from a recording or from two runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchvet.commands.completion import files
from torchvet.commands.options import MODULE, SHOW_OUTPUT, shared, verb
from torchvet.commands.run import RunCommand, target_of
from torchvet.errors import BadInput
from torchvet.supervisor import preflight
from torchvet.supervisor.trial_sandbox import Shown, Untouched
from torchvet.workflows.report_output import Delivery

if TYPE_CHECKING:
    from torchvet.finding import NotChecked
    from torchvet.recording import Recording
    from torchvet.supervisor.preflight import Program

EPILOG = """\b
Examples:
  torchvet whatif run.vet
  torchvet whatif --memory-limit 24GiB train.py --epochs 1
  torchvet whatif --simulate-gpu l4 --half-batch "--batch-size 16" train.py --batch-size 32

\b
Exit status: 0 answered, 2 usage or tool error, 3 nothing to judge by.
"""


@verb("whatif", "What half the batch, a larger card, empty_cache() or a fix would change.", EPILOG, RunCommand)
@MODULE
@click.option("--steps", type=click.IntRange(min=10), default=40, show_default=True, help="Steps of each run.")
@click.option(
    "--half-batch",
    metavar="ARGUMENTS",
    help="The program's arguments with half its batch, as one word. [default: loaders get half their batch size]",
)
@click.option("--simulate-gpu", metavar="CARD", help="Run on a simulated GPU; see `torchvet run`.")
@SHOW_OUTPUT
@shared
@click.argument(
    "program",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="RECORDING | SCRIPT [ARGUMENTS]...",
    shell_complete=files,
)
def command(
    program: tuple[str, ...],
    module: str | None,
    steps: int,
    half_batch: str | None,
    simulate_gpu: str | None,
    show_output: bool,
    delivery: Delivery,
) -> int:
    """Forecast the step at which a program runs out of memory: as it is, with the usual shortcuts, and fixed.

    With a RECORDING kept by `torchvet run --record`, nothing is run, and what depends on the batch is a bound. A
    SCRIPT is run twice up to --steps: as it is, and with half its batch. What it writes is undone after each run
    (docs/fix.md).
    """
    from torchvet.whatif.report import whatif

    delivery = delivery.of(program[0] if program else None)
    delivery.check()
    gaps: list[NotChecked] = []
    half: Recording | None = None
    if module is None and program and (Path(program[0]) / "manifest.json").is_file():
        from torchvet.recording import read

        recording = read(Path(program[0]))
    else:
        if module is None and program and program[0].lower().endswith((".pickle", ".pkl")):
            raise BadInput(
                f"{program[0]}: is neither a program nor a recording (`torchvet run --record`); read snapshots with "
                "`torchvet inspect`"
            )
        if simulate_gpu is not None:
            preflight.check_card(simulate_gpu)
        target = target_of(module, program)
        probes: dict[str, Any] = {"simulated_gpu": simulate_gpu} if simulate_gpu is not None else {}
        recording, half, gaps = _runs(target, steps, half_batch, probes, Shown(show_output, delivery.quiet))
    limited = recording.limited(delivery.memory_limit) if delivery.memory_limit is not None else recording
    report = whatif(limited, delivery.diagnose(recording).findings, half, gaps)
    return delivery.deliver(report)


def _runs(
    target: Program, steps: int, half_batch: str | None, probes: dict[str, Any], shown: Shown
) -> tuple[Recording, Recording | None, list[NotChecked]]:
    """The program as it is, and with half its batch where that could be had."""
    from dataclasses import replace

    from torchvet.finding import NotChecked
    from torchvet.recording.records.training import BatchChange, Outcome
    from torchvet.supervisor import preflight

    preflight.check(target)
    recording = _run(target, steps, probes, shown, "run 1 of 2, as it is")
    other = target if half_batch is None else replace(target, arguments=tuple(shlex.split(half_batch)))
    probes = probes if half_batch is not None else {**probes, "batch_share": 0.5}
    half = _run(other, steps, probes, shown, "run 2 of 2, half the batch")
    gaps = []
    for run, what in ((recording, "the run"), (half, "the run with half the batch")):
        outcome = run.ranks[0].last(Outcome)
        if outcome is not None and outcome.status and outcome.how not in ("steps-reached", "out-of-memory"):
            said = outcome.error or f"it ended with status {outcome.status}"
            gaps.append(NotChecked(check=what, reason=f"the program failed: {said}; --show-output shows what it wrote"))
    if half_batch is None and half.ranks[0].last(BatchChange) is None:
        reason = 'no DataLoader was created with a batch size; give arguments that halve it: --half-batch "..."'
        return recording, None, [*gaps, NotChecked(check="half the batch, measured", reason=reason)]
    return recording, half, gaps


def _run(target: Program, steps: int, probes: dict[str, Any], shown: Shown, trial: str) -> Recording:
    from torchvet.supervisor.recording_dir import Keep
    from torchvet.supervisor.supervise import Observe, child_command

    with Keep(None) as keep, Untouched(shown.quiet) as files:
        told = {**probes, "snapshots": str(keep.directory)}
        observe = Observe(keep.directory, keep.rank, steps, None, told, undo=files.folder)
        progress = shown.progress(keep.directory, trial)
        status, seconds = files.run(child_command(target, observe), progress=progress, **shown.streams())
        recording, outcome = keep.read(status, seconds)
        files.ended(outcome)
        return recording
