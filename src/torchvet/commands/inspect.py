"""`torchvet inspect`: what files say that a run left behind."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from torchvet.commands.options import EXPORT, shared, verb
from torchvet.errors import BadInput
from torchvet.workflows.report_output import Delivery

EPILOG = """\b
Examples:
  torchvet inspect snapshot.pickle
  torchvet inspect rank*.pickle -o report.json
  torchvet inspect snapshot.pickle --memory-limit 24GiB
  torchvet inspect trace.json.gz -o report.html
  torchvet inspect folder-of-ranks/
  torchvet inspect run.vet
  torchvet inspect snapshot.pickle --export peak.speedscope.json --export blocks.csv
  torchvet inspect 'runs/**/*.pickle' --engine local -o report.json
  torchvet inspect s3://bucket/traces/ --engine ray --address auto
"""


@verb("inspect", "Report on memory snapshots and profiler traces.", EPILOG)
@click.argument("files", nargs=-1, required=True, type=click.Path())
@EXPORT
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    help="Read many files, of all kinds, by processes of this machine or by Ray. FILES may be globs and URLs.",
)
@click.option("--address", metavar="ADDRESS", help="With --engine ray: an existing cluster.  [default: start one here]")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --engine: how many files to read at a time.  [default: the number of cores]",
)
@shared
def command(
    files: tuple[str, ...],
    exports: tuple[str, ...],
    engine: str | None,
    address: str | None,
    workers: int | None,
    delivery: Delivery,
) -> int:
    """Report on FILES: CUDA memory snapshots (torch.cuda.memory._dump_snapshot), traces of torch.profiler, or a
    recording. Needs no torch.

    Several files, or those in a folder, are the ranks of one program. The content of a file decides its kind. Nothing
    in a file is executed.
    """
    from torchvet.drawing.collecting import Drawn
    from torchvet.exporting import Exports
    from torchvet.inspecting import files_of, inspect_paths
    from torchvet.inspecting.observing import several

    delivery.check()
    if engine is not None:
        if exports:
            raise BadInput("--export writes what was read of single files: use it without --engine")
        return _of_many(files, engine, workers, address, delivery)
    if address is not None or workers is not None:
        raise BadInput(f"{'--address' if address is not None else '--workers'} needs --engine local or --engine ray")
    paths = [Path(f) for f in files]
    if delivery.outputs:
        delivery.spare([file for path in paths for file in files_of(path)])
    with Exports([Path(e) for e in exports], [Path(o) for o in delivery.outputs]) as writing:
        drawn = Drawn()
        asked = ((writing, bool(exports)), (drawn, delivery.draws))
        observer = several([one for one, wanted in asked if wanted])
        report = inspect_paths(paths, (), delivery.unwanted, delivery.memory_limit, observer)
        report = delivery.kept(report)
        writing.finish(report)
    return delivery.deliver(report, drawn.drawing)


def _of_many(
    patterns: tuple[str, ...], engine: str, workers: int | None, address: str | None, delivery: Delivery
) -> int:
    """The report on thousands of files. An interrupted one ends as Ctrl-C ends programs, after the report."""
    from torchvet.fleet import inspect_fleet
    from torchvet.fleet.digest import Asked
    from torchvet.fleet.engines import engine_for
    from torchvet.fleet.paths import files_of, is_remote
    from torchvet.fleet.progress import Progress

    reads = engine_for(engine, workers, address)
    paths = files_of(patterns)
    delivery.spare([Path(path) for path in paths if not is_remote(path)])
    progress = Progress(len(paths), sys.stderr, wanted=not delivery.quiet)
    asked = Asked(delivery.unwanted, delivery.memory_limit)
    try:
        report = delivery.kept(inspect_fleet(paths, reads, asked, lambda digest: progress.add(digest.bytes)))
    finally:
        progress.end()
    status = delivery.deliver(report)
    return -signal.SIGINT if report.part("fleet")["interrupted"] else status
