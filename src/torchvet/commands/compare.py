"""`torchvet compare`: what changed from one recording to another; a gate for CI."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import click

from torchvet.commands.options import output, parsed, verb
from torchvet.errors import BadInput
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
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option(
    "--fail-on-growth",
    metavar="SHARE",
    callback=parsed(parse_share),
    help="Exit with status 1 if the peak or the growth per step rose by more: 1%, 0.01.",
)
@output
def command(before: str, after: str, fail_on_growth: float | None, delivery: Delivery) -> int:
    """Compare what was measured BEFORE and AFTER: the peak by category and line, growth by name, time by phase."""
    from torchvet.comparing import compare
    from torchvet.comparing.report import report_on

    delivery.check()
    delivery.spare([Path(before), Path(after)])
    sides = _side(before), _side(after)
    if sides[0].kind != sides[1].kind:
        raise BadInput(f"{before} is a {sides[0].kind} and {after} a {sides[1].kind}: give two of one kind")
    comparison = compare(*sides)
    report = report_on(comparison, fail_on_growth)
    delivery.deliver(report)
    return {"findings": FINDINGS, "undetermined": UNDETERMINED}.get(report.verdict, CLEAN)


def _side(path: str) -> Any:
    if Path(path).exists() and not Path(path).is_dir():
        from torchvet.inspecting import kind_of

        return importlib.import_module(kind_of(Path(path)).compared).side_of(path)
    from torchvet.comparing.recordings import side_of_recording
    from torchvet.diagnosis.diagnose import diagnose
    from torchvet.recording import read

    recording = read(Path(path))
    return side_of_recording(recording, diagnose(recording).findings)
