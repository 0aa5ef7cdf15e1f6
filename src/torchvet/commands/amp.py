"""`torchvet amp`: does mixed precision pay here? The program's own steps in three precisions, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from torchvet.commands.completion import files
from torchvet.commands.options import MODULE, SHOW_OUTPUT, reporting, verb
from torchvet.commands.run import RunCommand, target_of
from torchvet.supervisor.trial_sandbox import Shown, Untouched
from torchvet.workflows.report_output import Delivery

if TYPE_CHECKING:
    from torchvet.analysis.amp import Trial
    from torchvet.finding import Report, Verdict
    from torchvet.recording import RankRecording
    from torchvet.recording.records.amp import AmpMode
    from torchvet.supervisor.preflight import Program

EPILOG = """\b
Examples:
  torchvet amp train.py --epochs 1
  torchvet amp --steps 50 --trials 3 -o amp.json train.py
  torchvet amp -m project.train --lr 0.1

\b
Exit status: 0 mixed precision pays, or the program does not use it; 1 the program
uses it and it does not pay (AMP211); 2 usage or tool error; 3 no training step ran.
"""


@verb("amp", "Time and size a program's steps in float32, float16 and bfloat16.", EPILOG, RunCommand)
@MODULE
@click.option("--steps", type=click.IntRange(min=4), default=30, show_default=True, help="Steps of each run.")
@click.option("--trials", type=click.IntRange(min=1), default=2, show_default=True, help="Runs of each precision.")
@SHOW_OUTPUT
@reporting
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGUMENTS]...", shell_complete=files)
def command(
    program: tuple[str, ...], module: str | None, steps: int, trials: int, show_output: bool, delivery: Delivery
) -> int:
    """Run a program in float32, float16 with loss scaling and bfloat16, and compare time, memory and losses.

    The source is not edited. The program's own autocast regions and GradScaler are overridden; without them its
    modules are called under autocast and its loss is scaled. Everything after the script, or after -m MODULE, is
    passed to the program. It runs --trials times in each precision, up to --steps each time, and once more in float32
    to see how far its values are from the ends of float16 and bfloat16. What it writes is undone after each run
    (docs/fix.md).
    """
    from torchvet.supervisor import preflight

    target = target_of(module, program)
    delivery = delivery.of(target.path)
    delivery.check()
    preflight.check(target)
    shown = Shown(show_output, delivery.quiet)
    report = _report(target, _trials(target, steps, trials, shown), delivery.unwanted)
    # Where no step ran there is nothing to measure either.
    if "amp" in report.facts:
        report = _with_headroom(report, target, steps, shown)
    return delivery.deliver(report)


def _trials(target: Program, steps: int, trials: int, shown: Shown) -> list[Trial]:
    """All runs that are timed, the precisions taking turns, so that what else the machine does falls on all of them."""
    from torchvet.analysis.amp import MODES

    found: list[Trial] = []
    for _ in range(trials):
        for mode in MODES:
            run = _Run({"amp_mode": mode}, f"run {len(found) + 1} of {trials * len(MODES)}, {mode}")
            found.append(_trial(mode, *_ran(target, steps, shown, run)))
    return found


class _Run(NamedTuple):
    """What is asked of the probes, and what is said of the run meanwhile."""

    probes: dict[str, Any]
    said: str


def _ran(target: Program, steps: int, shown: Shown, run: _Run) -> tuple[RankRecording, str | None]:
    """One run: its recording, and what it failed by."""
    from torchvet.supervisor.recording_dir import Keep
    from torchvet.supervisor.supervise import Observe, child_command

    with Keep(None) as keep, Untouched(shown.quiet) as files:
        observe = Observe(keep.directory, keep.rank, steps, None, run.probes, undo=files.folder)
        progress = shown.progress(keep.directory, run.said)
        status, seconds = files.run(child_command(target, observe), progress=progress, **shown.streams())
        recording, outcome = keep.read(status, seconds)
        files.ended(outcome)
        error = outcome.error or (f"the program ended with status {status}" if status else None)
        return recording.ranks[0], error if outcome.how != "steps-reached" else None


def _trial(mode: AmpMode, rank: RankRecording, error: str | None) -> Trial:
    from torchvet.analysis.amp import Trial
    from torchvet.recording.records.amp import AmpRun
    from torchvet.recording.records.base import Window

    highest = max(rank.all(Window), key=lambda w: w.peak, default=None)
    peak, activations = (highest.peak, highest.categories.get("activations")) if highest else (None, None)
    return Trial(mode=mode, run=rank.last(AmpRun), peak=peak, activations=activations, error=error)


def _with_headroom(report: Report, target: Program, steps: int, shown: Shown) -> Report:
    """The report with the headroom of values in half precision. To measure them takes time: it is a run of its own, in
    float32, that is not timed."""
    from msgspec.structs import replace

    from torchvet.analysis.forecast import forecast_of
    from torchvet.analysis.forecast_facts import forecast_facts
    from torchvet.finding import NotChecked
    from torchvet.recording.records.training import Unchecked

    said = f"a further run, {_HEADROOM}"
    rank, error = _ran(target, steps, shown, _Run({"amp_mode": "float32", "precision_forecast": True}, said))
    forecast = forecast_of(rank)
    if forecast is not None:
        return replace(report, facts={**report.facts, "precision_forecast": forecast_facts(forecast)})
    reason = next((u.reason for u in rank.all(Unchecked) if u.check == "precision forecast"), None)
    gap = NotChecked(check=_HEADROOM, reason=error or reason or "no value that would be in half precision was seen")
    return replace(report, not_checked=[*report.not_checked, gap])


_HEADROOM = "headroom in half precision"


def _report(target: Program, trials: list[Trial], unwanted: tuple[str, ...]) -> Report:
    from torchvet.analysis.amp import result_of
    from torchvet.analysis.amp_facts import amp_facts
    from torchvet.finding import NotChecked, Report
    from torchvet.recording import RankRecording, Recording
    from torchvet.rules import rule

    subject = {"kind": "amp", "path": target.path or target.module}
    result = result_of(trials)
    errors = list(dict.fromkeys(f"{t.mode}: {t.error}" for t in trials if t.error))
    gaps = [NotChecked(check="a run", reason=e) for e in errors]
    if result is None:
        reason = "no two training steps were seen in any run" + (f" ({errors[0]})" if errors else "")
        return Report(
            subject=subject, verdict="undetermined", not_checked=[NotChecked(check="mixed precision", reason=reason)]
        )
    records = [t.run for t in trials if t.run is not None]
    recording = Recording([RankRecording(0, [*records])])
    findings = [] if "AMP211" in unwanted else list(rule("AMP211").in_recording(recording))
    facts = {"amp": amp_facts(result)}
    verdict: Verdict = "findings" if findings else "clean"
    return Report(subject=subject, verdict=verdict, findings=findings, not_checked=gaps, facts=facts)
