"""`torchvet report`: diagnose a kept recording again and render it, in any format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchvet.commands.options import shared
from torchvet.workflows.report_output import Delivery

EPILOG = """\b
Examples:
  torchvet report run.vet
  torchvet report run.vet --quiet -o report.json
  torchvet report run.vet --memory-limit 16GiB --select MEM
"""


@click.command(
    "report",
    short_help="Report again on a recording that was kept.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("recording", type=click.Path())
@shared
def command(recording: str, **asked: Any) -> int:
    """Report on a RECORDING that `torchvet run --record` kept. Runs nothing, needs no torch."""
    from torchvet.recording import read

    delivery = Delivery(**asked)
    delivery.check()
    report = delivery.diagnose(read(Path(recording)))
    delivery.deliver(report)
    return delivery.status(report)
