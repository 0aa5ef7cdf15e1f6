"""`torchvet compare`: what changed from one recording to another; a gate for CI."""

from __future__ import annotations

import re
from pathlib import Path

import click

from torchvet.commands.completion import recordings
from torchvet.commands.options import output, parsed, verb
from torchvet.workflows.report_output import CLEAN, FINDINGS, UNDETERMINED, Delivery

EPILOG = """\b
Examples:
  torchvet compare before.vet after.vet
  torchvet compare monday.pickle friday.pickle
  torchvet compare --fail-on-growth 1% main.vet branch.vet
"""


def parse_share(text: str) -> float:
    """A share from `1%`, `0.5 %` or `0.01`. Raises ValueError with what was expected."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a share: give a percentage (1%) or a fraction (0.01)")
    return float(match[1]) / (100 if match[2] else 1)


@verb("compare", "Compare two recordings, snapshots or traces.", EPILOG)
@click.argument("before", type=click.Path(), shell_complete=recordings)
@click.argument("after", type=click.Path(), shell_complete=recordings)
@click.option(
    "--fail-on-growth",
    metavar="SHARE",
    callback=parsed(parse_share),
    help="Exit with status 1 if the peak or the growth per step rose by more: 1%, 0.01.",
)
@output
def command(before: str, after: str, fail_on_growth: float | None, delivery: Delivery) -> int:
    """Compare what was measured BEFORE and AFTER: the peak by category and line, growth by name, time by phase."""
    from torchvet.comparing.report import report_on
    from torchvet.workflows.comparison import compared

    delivery.check()
    delivery.spare([Path(before), Path(after)])
    report = report_on(compared(before, after), fail_on_growth)
    delivery.deliver(report)
    return {"findings": FINDINGS, "undetermined": UNDETERMINED}.get(report.verdict, CLEAN)
