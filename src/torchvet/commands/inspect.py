"""`torchvet inspect`: what files say that a run left behind."""

from __future__ import annotations

from pathlib import Path

import click

from torchvet.commands.options import EXPORT, shared, verb
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


@verb("inspect", "Report on memory snapshots and profiler traces.", EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path())
@EXPORT
@shared
def command(files: tuple[str, ...], exports: tuple[str, ...], delivery: Delivery) -> int:
    """Report on FILES: CUDA memory snapshots (torch.cuda.memory._dump_snapshot), traces of torch.profiler, or a
    recording. Needs no torch.

    Several files, or those in a folder, are the ranks of one program. The content of a file decides its kind. Nothing
    in a file is executed.
    """
    from torchvet.exporting import Exports
    from torchvet.inspecting import files_of, inspect_paths

    delivery.check()
    paths = [Path(f) for f in files]
    if delivery.outputs:
        delivery.spare([file for path in paths for file in files_of(path)])
    with Exports([Path(e) for e in exports], [Path(o) for o in delivery.outputs]) as writing:
        report = inspect_paths(paths, (), delivery.unwanted, delivery.memory_limit, writing if exports else None)
        report = delivery.kept(report)
        writing.finish(report)
    return delivery.deliver(report)
