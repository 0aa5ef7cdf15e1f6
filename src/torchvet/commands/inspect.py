"""`torchvet inspect`: what files say that a run left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from torchvet.commands.options import shared
from torchvet.workflows.report_output import Delivery

EPILOG = """\b
Examples:
  torchvet inspect snapshot.pickle
  torchvet inspect rank*.pickle -o report.json
  torchvet inspect snapshot.pickle --memory-limit 24GiB
  torchvet inspect trace.json.gz
  torchvet inspect folder-of-ranks/
  torchvet inspect run.vet
  torchvet inspect snapshot.pickle --export peak.speedscope.json --export blocks.csv
"""


@click.command(
    "inspect",
    short_help="Say what memory snapshots and profiler traces mean.",
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--export",
    "exports",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Write what FILES say to FILE too: *.speedscope.json (flame graph), *.perfetto.json (timeline), "
    "*.csv or *.jsonl (tables). Repeatable.",
)
@shared
def command(files: tuple[str, ...], exports: tuple[str, ...], **asked: Any) -> int:  # fmt: skip
    """Report on FILES: CUDA memory snapshots (torch.cuda.memory._dump_snapshot), traces of torch.profiler, or a
    recording. Needs no torch.

    Several files, or those in a folder, are the ranks of one program. Files are told by their content, and nothing in
    them is executed.
    """
    from torchvet.exporting import Exports
    from torchvet.inspecting import files_of, inspect_paths

    delivery = Delivery(**asked)
    delivery.check()
    paths = [Path(f) for f in files]
    if delivery.outputs:
        delivery.spare([file for path in paths for file in files_of(path)])
    with Exports([Path(e) for e in exports], [Path(o) for o in delivery.outputs]) as writing:
        report = inspect_paths(paths, (), delivery.unwanted, delivery.memory_limit, writing if exports else None)
        report = delivery.kept(report)
        writing.finish(report)
    delivery.deliver(report)
    return delivery.status(report)
