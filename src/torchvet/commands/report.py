"""`torchvet report`: diagnose a kept recording again and render it, in any format."""

from __future__ import annotations

import time
from pathlib import Path

import click

from torchvet.commands.completion import recordings
from torchvet.commands.options import shared, verb
from torchvet.errors import BadInput
from torchvet.workflows.report_output import Delivery

EPILOG = """\b
Examples:
  torchvet report run.vet
  torchvet report run.vet --quiet -o report.html
  torchvet report run.vet --memory-limit 16GiB --select MEM
  torchvet report run.vet --live
"""
_TICK = 0.5


@verb("report", "Report on a kept recording again.", EPILOG)
@click.option("--live", is_flag=True, help="Follow a run that goes on in another terminal; report when it ends.")
@click.argument("recording", type=click.Path(), shell_complete=recordings)
@shared
def command(recording: str, live: bool, delivery: Delivery) -> int:
    """Report on a RECORDING kept by `torchvet run --record`. Runs nothing and needs no torch."""
    from functools import partial

    from torchvet.drawing.run import drawing_of
    from torchvet.recording import read

    delivery.check()
    if live:
        _follow(Path(recording), delivery)
    found = read(Path(recording))
    return delivery.deliver(delivery.diagnose(found), partial(drawing_of, found))


def _follow(directory: Path, delivery: Delivery) -> None:
    """Show a run until it ends, or until Ctrl-C: the report is on what there is then."""
    import sys

    from torchvet.supervisor.live import LiveView
    from torchvet.workflows.so_far import findings_so_far

    if not directory.is_dir():
        raise BadInput(f"{directory}: is no recording; start the run first, with --record {directory}")
    if not sys.stderr.isatty():
        raise BadInput("--live draws on a terminal, and stderr is none")
    view = LiveView(directory, sys.stderr, findings_so_far(directory, delivery))
    try:
        while not view.tails.ended:
            view.tick()
            time.sleep(_TICK)
    except KeyboardInterrupt:
        pass
    finally:
        view.clear()
