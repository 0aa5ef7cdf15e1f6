"""`torchvet whatif`: what shortcuts and real remedies would buy, in numbers, from a recording or from two runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchvet.commands.options import shared
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


@click.command(
    "whatif",
    cls=RunCommand,
    epilog=EPILOG,
    short_help="What half the batch, a larger card, empty_cache() or the mend would buy.",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("--steps", type=click.IntRange(min=10), default=40, show_default=True, help="Steps of each run.")
@click.option(
    "--half-batch",
    metavar="ARGUMENTS",
    help="The program's arguments with half its batch, in one word. [default: loaders are given half their batch size]",
)
@click.option("--simulate-gpu", metavar="CARD", help="Run on a GPU that is not there; see `torchvet run`.")
@click.option("--show-output", is_flag=True, help="Let the program's own output through, on stderr.")
@shared
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="RECORDING | SCRIPT [ARGUMENTS]...")
def command(
    program: tuple[str, ...], module: str | None, steps: int, half_batch: str | None, simulate_gpu: str | None,
    show_output: bool, **asked: Any,
) -> int:  # fmt: skip
    """Say at which step a program runs out of memory as it is, with the usual shortcuts, and with the mend.

    From a RECORDING that `torchvet run --record` kept nothing is run, and what depends on the batch is a bound. A
    SCRIPT is run twice, observed, each time to --steps: as it is, and with half its batch. What it writes is undone
    after each run (docs/fix.md).
    """
    from torchvet.whatif.report import whatif

    delivery = Delivery(**asked, project=Path(program[0] if program else "."))
    delivery.check()
    gaps: list[NotChecked] = []
    half: Recording | None = None
    if module is None and program and (Path(program[0]) / "manifest.json").is_file():
        from torchvet.recording import read

        recording = read(Path(program[0]))
    else:
        if module is None and program and program[0].lower().endswith((".pickle", ".pkl")):
            raise BadInput(
                f"{program[0]}: is no program and no recording (`torchvet run --record`); snapshots are read by "
                "`torchvet inspect`"
            )
        if simulate_gpu is not None:
            preflight.check_card(simulate_gpu)
        target = target_of(module, program)
        probes: dict[str, Any] = {"simulated_gpu": simulate_gpu} if simulate_gpu is not None else {}
        recording, half, gaps = _runs(target, steps, half_batch, probes, Shown(show_output, delivery.quiet))
    limited = recording.limited(delivery.memory_limit) if delivery.memory_limit is not None else recording
    report = whatif(limited, delivery.diagnose(recording).findings, half, gaps)
    delivery.deliver(report)
    return delivery.status(report)


def _runs(
    target: Program, steps: int, half_batch: str | None, probes: dict[str, Any], shown: Shown
) -> tuple[Recording, Recording | None, list[NotChecked]]:
    """The program as it is, and with half its batch where that could be had."""
    from dataclasses import replace

    from torchvet.finding import NotChecked
    from torchvet.recording.records.training import BatchChange, Outcome
    from torchvet.supervisor import preflight

    preflight.check(target)
    recording = _run(target, steps, probes, shown)
    other = target if half_batch is None else replace(target, arguments=tuple(shlex.split(half_batch)))
    half = _run(other, steps, probes if half_batch is not None else {**probes, "batch_share": 0.5}, shown)
    gaps = []
    for run, what in ((recording, "the run"), (half, "the run with half the batch")):
        outcome = run.ranks[0].last(Outcome)
        if outcome is not None and outcome.status and outcome.how not in ("steps-reached", "out-of-memory"):
            said = outcome.error or f"it ended with status {outcome.status}"
            gaps.append(NotChecked(check=what, reason=f"the program failed: {said}; --show-output shows what it wrote"))
    if half_batch is None and half.ranks[0].last(BatchChange) is None:
        reason = 'no DataLoader with a batch size was made; give the arguments that halve it: --half-batch "..."'
        return recording, None, [*gaps, NotChecked(check="half the batch, measured", reason=reason)]
    return recording, half, gaps


def _run(target: Program, steps: int, probes: dict[str, Any], shown: Shown) -> Recording:
    from torchvet.supervisor.recording_dir import Keep
    from torchvet.supervisor.supervise import Observe, child_command

    with Keep(None) as keep, Untouched(shown.quiet) as files:
        told = {**probes, "snapshots": str(keep.directory)}
        observe = Observe(keep.directory, keep.rank, steps, None, told, undo=files.folder)
        status, seconds = files.run(child_command(target, observe), **shown.streams())
        recording, outcome = keep.read(status, seconds)
        files.ended(outcome)
        return recording
