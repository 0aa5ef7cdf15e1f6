"""`torchvet run`: observe an unmodified program to its end, then say what was wrong with it."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchvet.commands import tell_fault
from torchvet.commands.completion import files
from torchvet.commands.options import EXPORT, GPUS, MODULE, shared, verb
from torchvet.errors import BadInput, TorchvetError
from torchvet.workflows.report_output import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchvet.exporting import Exports
    from torchvet.supervisor.live import LiveView
    from torchvet.supervisor.preflight import Program
    from torchvet.supervisor.progress import Progress
    from torchvet.supervisor.recording_dir import Keep
    from torchvet.supervisor.supervise import Observe
    from torchvet.workflows.until_verdict import UntilVerdict

EPILOG = """\b
Examples:
  torchvet run train.py --epochs 3
  torchvet run --steps 200 --memory-limit 24GiB train.py
  torchvet run --until-verdict -o report.json train.py
  torchvet run --export time.speedscope.json train.py
  torchvet run -c 'import train; train.main()'
  torchvet run -o report.html --record run.vet -m project.train --lr 0.1
  torchvet run --quiet --format json train.py > report.json

\b
Exit status: the program's own if it fails; otherwise 0 clean, 1 findings,
3 undetermined. 2: usage or tool error, the program was not started.
"""


class RunCommand(click.Command):
    """Ends torchvet's own options where Python would: at the script, or after `-m MODULE` and `-c CODE`."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = self._end_of_module(args)
        if end is not None:
            args = [*args[:end], "--", *args[end:]]
        return super().parse_args(ctx, args)

    def _end_of_module(self, args: list[str]) -> int | None:
        """The index after `-m MODULE` or `-c CODE`, or None where a script comes first."""
        takes_value = {o for p in self.params if isinstance(p, click.Option) and not p.is_flag for o in p.opts}
        last = tuple(takes_value & {"-m", "-c"})
        i = 0
        while i < len(args) and args[i].startswith("-") and args[i] not in ("-", "--"):
            if args[i] in last:
                return i + 2
            if args[i].startswith(last):
                return i + 1
            i += 2 if args[i] in takes_value else 1
        return None


@verb("run", "Run a program and report its faults.", EPILOG, RunCommand)
@MODULE
@click.option("-c", "code", metavar="CODE", help="Run code, as `python -c` does.")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Stop the program after N steps.")
@click.option("--until-verdict", is_flag=True, help="Stop the program once further steps would not change the report.")
@click.option("--record", metavar="DIR", type=click.Path(), help="Keep the recording in DIR, by convention NAME.vet.")
@click.option(
    "--nproc",
    type=click.IntRange(min=1),
    metavar="N",
    help="Start N ranks of the program on this host, as torchrun does, and report on all of them.",
)
@click.option(
    "--precision-forecast",
    is_flag=True,
    help="In a float32 or bfloat16 run, forecast what would overflow or vanish in float16 (NUM102).",
)
@click.option(
    "--try-fixes",
    is_flag=True,
    help="After the run, run the program again with changes that may make its steps quicker, and time them.",
)
@click.option(
    "--try-budget",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="With --try-fixes: how long all trials may take.",
)
@click.option(
    "--simulate-gpu",
    metavar="CARD",
    help="Run a CUDA program on a simulated GPU: h100, a100-40g, l4, t4, rtx4090, ... or a size (24GiB).",
)
@GPUS
@click.option(
    "--dry",
    is_flag=True,
    help="With --simulate-gpu: measure memory without computing values. Stops after 3 steps, or after --steps.",
)
@click.option(
    "--exit-code",
    type=click.Choice(["program", "findings"]),
    default="program",
    show_default=True,
    help="If the program fails: return its exit status, or torchvet's.",
)
@click.option("--live", is_flag=True, help="Draw a page on the terminal while the program runs; stdout goes elsewhere.")
@EXPORT
@shared
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGUMENTS]...", shell_complete=files)
def command(
    program: tuple[str, ...],
    module: str | None,
    code: str | None,
    steps: int | None,
    until_verdict: bool,
    record: str | None,
    nproc: int | None,
    precision_forecast: bool,
    try_fixes: bool,
    try_budget: float,
    simulate_gpu: str | None,
    gpus: int,
    dry: bool,
    exit_code: str,
    live: bool,
    exports: tuple[str, ...],
    delivery: Delivery,
) -> int:
    """Run a program unchanged, and report what leaks, what holds it and what to change.

    Everything after the script, after -m MODULE or after -c CODE is passed to the program. The report is printed when
    the program ends: normally, by Ctrl-C, out of memory, by a crash or by a signal.
    """
    from torchvet.exporting import Exports
    from torchvet.supervisor import preflight
    from torchvet.supervisor.local_ranks import LocalRanks, until_reported
    from torchvet.supervisor.recording_dir import Keep
    from torchvet.supervisor.supervise import Observe
    from torchvet.workflows.until_verdict import UntilVerdict

    target = target_of(module, program, code)
    delivery = delivery.of(target.path)
    delivery.check()
    preflight.check(target)
    ranks = LocalRanks.of_environment()
    if simulate_gpu is not None:
        preflight.check_card(simulate_gpu)
    _check_together(live, simulate_gpu, nproc, try_fixes, until_verdict, dry, ranks is not None)
    probes = _simulation(simulate_gpu, gpus, dry, precision_forecast)
    target = target if nproc is None else _launched(target, nproc)
    with (
        until_reported(ranks),
        Keep(record, ranks) as keep,
        Exports([Path(e) for e in exports], [Path(o) for o in delivery.outputs]) as writing,
    ):
        until = UntilVerdict(keep.directory, delivery.diagnose, until_verdict)
        probes |= until.options
        if not keep.kept:  # a snapshot of memory that ran out is left where the user looks
            probes["snapshots"] = os.getcwd()
        observe = Observe(keep.directory, keep.rank, steps, delivery.memory_limit, probes)
        own, verdict = _observe(
            target, keep, delivery, observe, try_budget if try_fixes else None, writing, until, live
        )
    # A launcher takes any other status for a failure, and would start all ranks anew.
    if exit_code == "program" and (own or ranks is not None):
        return own
    return verdict


def _check_together(
    live: bool, simulate_gpu: str | None, nproc: int | None, try_fixes: bool, until_verdict: bool, dry: bool, rank: bool
) -> None:
    """Raises `BadInput` for options that cannot be combined, or that ask for what is not there."""
    if live:
        _check_live()
    if simulate_gpu is not None and nproc is not None:
        raise BadInput(
            "--simulate-gpu simulates in the process that it starts, and --nproc starts a launcher: use torchrun "
            f"--nproc-per-node {nproc} -m torchvet run --simulate-gpu {simulate_gpu}"
        )
    if try_fixes:
        _check_tries(simulate_gpu, nproc)
    if until_verdict:
        _check_until_verdict(dry, nproc is not None or rank)


def _launched(target: Program, nproc: int) -> Program:
    """torchrun, with the program as what it starts."""
    from torchvet.supervisor.preflight import Program

    if target.code is not None:
        raise BadInput("--nproc starts scripts and modules, as torchrun does: write the code to a file and run that")
    what = ["-m", target.module] if target.module is not None else [target.path or ""]
    words = ["--standalone", "--nproc-per-node", str(nproc), *what, *target.arguments]
    return Program(None, "torch.distributed.run", tuple(words))


def _check_until_verdict(dry: bool, several: bool) -> None:
    if dry:
        raise BadInput("--until-verdict and --dry cannot be combined: a dry run stops after 3 steps")
    if several:
        raise BadInput("--until-verdict stops one process, and the other ranks would wait for it: use --steps")


def _check_dry(simulate_gpu: str | None, precision_forecast: bool) -> None:
    if simulate_gpu is None:
        raise BadInput(
            "--dry needs a simulated GPU: add --simulate-gpu CARD, for example "
            "torchvet run --simulate-gpu a100-80g --dry train.py"
        )
    if precision_forecast:
        raise BadInput("--precision-forecast and --dry cannot be combined: a dry run computes no values")


def _simulation(card: str | None, gpus: int, dry: bool, precision_forecast: bool) -> dict[str, Any]:
    """The options of a session, with those of a simulated GPU. Raises `BadInput` where they contradict one another."""
    if dry:
        _check_dry(card, precision_forecast)
    found: dict[str, Any] = {"precision_forecast": True} if precision_forecast else {}
    found |= {} if card is None else {"simulated_gpu": card, "simulated_gpus": gpus}
    return found | ({"dry": True} if dry else {})


def _check_tries(simulate_gpu: str | None, nproc: int | None) -> None:
    if simulate_gpu is not None:
        raise BadInput("--try-fixes times steps, and a simulated GPU has no times: use one of the two")
    if nproc is not None or os.environ.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise BadInput("--try-fixes times a program of one process: run it without --nproc and without a launcher")


def target_of(module: str | None, program: tuple[str, ...], code: str | None = None) -> Program:
    """What is to run, by the options and words of a verb. Raises a usage error where there is nothing."""
    from torchvet.supervisor.preflight import Program

    if code is not None:
        return Program(None, None, program, code)
    if module is not None:
        return Program(None, module, program)
    if not program:
        raise click.UsageError("no program given: name a script (torchvet run train.py) or -m MODULE.")
    return Program(program[0], None, program[1:])


def _observe(
    target: Program,
    keep: Keep,
    delivery: Delivery,
    observe: Observe,
    budget: float | None,
    writing: Exports,
    until: UntilVerdict,
    live: bool,
) -> tuple[int, int]:
    """Run, diagnose, try changes where there is a `budget` of seconds for it, deliver. Gives the program's status (0
    where torchvet itself stopped it) and the verdict's."""
    from torchvet.drawing.run import drawing_of
    from torchvet.supervisor.supervise import supervise

    progress = _shown(keep, delivery, live, until)
    if observe.probes.get("dry"):
        status, seconds = _undone(target, observe, progress.tick, keep, delivery.quiet)
    else:
        status, seconds = supervise(target, observe, until.beside(progress.tick))
    progress.clear()
    recording, outcome = keep.read(status, seconds)
    if outcome.how == "not-started":
        keep.discard()
        raise BadInput(outcome.error or "the program could not be started")
    own = 0 if outcome.how == "steps-reached" and status > 0 else status
    if not keep.reports:
        if keep.went and not delivery.quiet:
            click.echo("torchvet: the records of this host are in the report of node 0", err=True)
        return own, 0
    try:
        report = until.noted(delivery.diagnose(recording))
        if budget is not None:
            from torchvet.commands.try_fixes import with_tries
            from torchvet.supervisor.trial_sandbox import Shown

            report = with_tries(report, recording, target, Shown(False, delivery.quiet), budget)
        verdict = delivery.deliver(report, partial(drawing_of, recording))
        writing.recording(recording)
        writing.finish(report)
        return own, verdict
    except TorchvetError as error:
        click.echo(f"torchvet: {error}", err=True)
        return own, error.status
    except Exception:  # the program's own end must not be lost to a fault of ours
        tell_fault()
        return own, TorchvetError.status


def _shown(keep: Keep, delivery: Delivery, live: bool, until: UntilVerdict) -> LiveView | Progress:
    """What the terminal shows meanwhile."""
    from torchvet.supervisor.live import LiveView
    from torchvet.supervisor.progress import Progress
    from torchvet.workflows.so_far import findings_so_far

    find = findings_so_far(keep.directory, delivery, until)
    if live:
        return LiveView(keep.directory, sys.stderr, find)
    return Progress(keep.directory, sys.stderr, wanted=not delivery.quiet, find=find)


def _check_live() -> None:
    if not sys.stderr.isatty():
        raise BadInput("--live draws on a terminal, and stderr is none")
    if sys.stdout.isatty():
        raise BadInput(
            "--live draws on the terminal that the program prints to; send its output to a file "
            "(torchvet run --live train.py > out.txt), or use --record run.vet here and, in another terminal, "
            "torchvet report run.vet --live"
        )


def _undone(target: Program, observe: Observe, tick: Callable[[], None], keep: Keep, quiet: bool) -> tuple[int, float]:
    """As `supervise`, and undo what the program writes: its values are not real."""
    from dataclasses import replace

    from torchvet.supervisor.supervise import supervise
    from torchvet.supervisor.trial_sandbox import Untouched

    with Untouched(quiet) as files:

        def beat() -> None:
            files.beat()
            tick()

        status, seconds = supervise(target, replace(observe, undo=files.folder), beat)
        files.ended(keep.read(status, seconds)[1], stops=False)
    return status, seconds
