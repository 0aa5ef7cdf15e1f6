"""`torchvet report`: diagnose a kept recording again and render it, in any format."""

from __future__ import annotations

from pathlib import Path

import click

from torchvet.commands.options import shared, verb
from torchvet.workflows.report_output import Delivery

EPILOG = """\b
Examples:
  torchvet report run.vet
  torchvet report run.vet --quiet -o report.html
  torchvet report run.vet --memory-limit 16GiB --select MEM
"""


@verb("report", "Report on a kept recording again.", EPILOG)
@click.argument("recording", type=click.Path())
@shared
def command(recording: str, delivery: Delivery) -> int:
    """Report on a RECORDING kept by `torchvet run --record`. Runs nothing and needs no torch."""
    from functools import partial

    from torchvet.drawing.run import drawing_of
    from torchvet.recording import read

    delivery.check()
    found = read(Path(recording))
    return delivery.deliver(delivery.diagnose(found), partial(drawing_of, found))
