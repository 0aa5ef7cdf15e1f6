"""One file in, one digest out: some kilobytes, made where the file lies. A file that cannot be read has one too."""

from __future__ import annotations

import gc
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchvet.errors import TorchvetError
from torchvet.finding import Finding, NotChecked, Report, Verdict
from torchvet.fleet.figures import categories_of, figures_of
from torchvet.fleet.paths import local_copy
from torchvet.inspecting import inspect_paths
from torchvet.readers.trace_facts import Collective, RankTrace
from torchvet.snapshots.ranks import RankPeak, peak_of

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.snapshots.memory import SnapshotMemory

COLLECTIVES = 500
"""The most that a digest keeps, of whole steps: by these ranks are compared."""
_THE_FILE = "the file"


class Asked(msgspec.Struct, frozen=True):
    """What every file is asked: all rules but those ignored, against a memory limit in bytes."""

    ignore: tuple[str, ...] = ()
    memory_limit: int | None = None


class Digest(msgspec.Struct, kw_only=True):
    """What a report on many files needs of one. `error` says why the file could not be read.

    `peak` and `trace` are what rules compare between snapshots, and between traces.
    """

    path: str
    bytes: int = 0
    kind: str = ""
    error: str | None = None
    verdict: Verdict = "undetermined"
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    figures: dict[str, float | None] = {}
    categories: dict[str, int] = {}
    peak: RankPeak | None = None
    trace: RankTrace | None = None


def digest_of(path: str, asked: Asked, folder: str = "") -> Digest:
    """The digest of a file; a relative path is one from `folder`. Raises nothing: what goes wrong with one of thousands
    of files is said in its digest."""
    size = 0
    place = Path(folder, path)
    try:
        with local_copy(path, folder) as place:
            size = _size(place)
            return _read(path, place, asked, size)
    except Exception as error:
        return Digest(path=path, bytes=size, error=_reason(error, path, place))
    finally:
        gc.collect()


def _read(path: str, place: Path, asked: Asked, size: int) -> Digest:
    kept = _Kept()
    report = inspect_paths([place], ignore=asked.ignore, memory_limit=asked.memory_limit, observer=kept)
    if kept.trace_of_file is not None:
        kept.trace_of_file.path = path
        kept.trace_of_file.collectives = _fewer(kept.trace_of_file.collectives)
    return Digest(
        path=path,
        bytes=size,
        kind=str(report.subject["kind"]),
        verdict=_verdict(report),
        findings=report.findings,
        not_checked=[_anonymous(item, place) for item in report.not_checked],
        figures=figures_of(report),
        categories=categories_of(report),
        peak=kept.peak,
        trace=kept.trace_of_file,
    )


def _verdict(report: Report) -> Verdict:
    """Notes alone are no evidence of health."""
    return report.verdict if report.earned or report.worst() not in (None, "info") else "undetermined"


class _Kept:
    """An observer that keeps what other files are compared with."""

    needs_times = False

    def __init__(self) -> None:
        self.peak: RankPeak | None = None
        self.trace_of_file: RankTrace | None = None

    def files(self, paths: list[Path]) -> None:
        """Nothing to refuse."""

    def recording(self, recording: Recording) -> None:
        """Recordings are not compared."""

    def snapshot(self, rank: int, memory: SnapshotMemory) -> None:
        """Some kilobytes of it."""
        self.peak = peak_of(rank, memory)

    def trace(self, rank: RankTrace) -> None:
        """It is a digest already."""
        self.trace_of_file = rank


def _fewer(collectives: list[Collective]) -> list[Collective]:
    """Those of the first steps, of one at least."""
    found: list[Collective] = []
    for _, items in groupby(collectives, key=lambda c: c.step):
        step = list(items)
        if found and len(found) + len(step) > COLLECTIVES:
            break
        found += step
    return found


def _anonymous(item: NotChecked, place: Path) -> NotChecked:
    """Without the file's name, so that what many files lack is said once. A name without a dot may be a word."""
    if "." not in place.name:
        return item
    check, reason = (
        text.replace(str(place), _THE_FILE).replace(place.name, _THE_FILE) for text in (item.check, item.reason)
    )
    return NotChecked(check=check, reason=reason)


def _size(place: Path) -> int:
    """Bytes of a file, or of all files of a recording."""
    files = place.iterdir() if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files)


def _reason(error: Exception, path: str, place: Path) -> str:
    """What is wrong with a file, without its name, which stands beside it."""
    text = str(error) if isinstance(error, (TorchvetError, OSError)) else f"{type(error).__name__}: {error}"
    return text.replace(str(place), path).removeprefix(f"{path}: ")
