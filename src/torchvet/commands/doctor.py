"""`torchvet doctor`: this environment checked against known traps, and a script before it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchvet.commands.completion import files
from torchvet.commands.options import FAIL_ON, reporting, verb
from torchvet.errors import BadInput
from torchvet.workflows.report_output import CLEAN, FINDINGS, UNDETERMINED, Delivery

if TYPE_CHECKING:
    from torchvet.finding import Report

EPILOG = """\b
Examples:
  torchvet doctor
  torchvet doctor train.py
  torchvet doctor train.py --format json

\b
Exit status: 0 nothing found, 1 a check or a finding at or above --fail-on, 2 usage
or tool error, 3 nothing found, and torch could not be asked.
"""
FORMATS = ("text", "json", "markdown")
SUFFIXES = (".sarif",)


@verb("doctor", "Check this environment for known traps, and a script before training.", EPILOG)
@click.argument("script", required=False, type=click.Path(), shell_complete=files)
@FAIL_ON
@reporting
def command(script: str | None, delivery: Delivery) -> int:
    """Check versions, devices, allocator settings, precision, limits and shared memory of this environment.

    With SCRIPT, also report what `check` finds in it and in the files that it imports from its folder, and go through
    the checklist before training. Runs nothing of yours. torch is imported in a process of its own; without torch,
    what needs it is reported as not checked.
    """
    from torchvet.doctor.report import examine, script_files

    delivery = delivery.of(script)
    delivery.check()
    if (delivery.format or "text").strip().lower() not in FORMATS or any(
        o.endswith(SUFFIXES) for o in delivery.outputs
    ):
        raise BadInput(
            f"a report on an environment has no place in a source file; its formats are {', '.join(FORMATS)}"
        )
    checked = _checked(script_files(script), delivery) if script is not None else None
    report = examine(Path(script) if script is not None else None, checked)
    delivery.deliver(report)
    return _status(report, delivery)


def _checked(paths: Sequence[str], delivery: Delivery) -> Report:
    from torchvet.checking.baseline import unknown
    from torchvet.checking.checker import Checker
    from torchvet.checking.discovery import discover
    from torchvet.checking.project import check_files, report_on

    names = tuple(paths)
    configuration = delivery.configuration
    results = check_files(discover(names), Checker(configuration))
    return report_on(unknown(results, configuration.baseline), names)


def _status(report: Report, delivery: Delivery) -> int:
    """As for any report, by the gravest of its checks and its findings."""
    from torchvet.doctor.check import LEVELS
    from torchvet.doctor.report import worst

    if delivery.exit_zero:
        return CLEAN
    if report.verdict == "undetermined":
        return UNDETERMINED
    fail_on = delivery.fail_on or delivery.configuration.fail_on
    levels: tuple[str, ...] = LEVELS
    gravest = max(worst(report), report.worst() or "ok", key=levels.index)
    return FINDINGS if fail_on != "never" and levels.index(gravest) >= levels.index(fail_on) else CLEAN
