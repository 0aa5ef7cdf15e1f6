"""Foreign files, told apart by their content and reported on. Another kind of file is another line in `KINDS`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from torchvet.errors import BadInput
from torchvet.finding import NotChecked, Report
from torchvet.inspecting.observing import Observer

_HEAD = 1 << 14


class Kind(NamedTuple):
    """A kind of file: what it is called, how its first bytes are known, the module whose `report_on` reports, and the
    one whose `side_of` gives what is compared."""

    name: str
    sniff: Callable[[bytes], bool]
    module: str
    compared: str


def _pickle(head: bytes) -> bool:
    """A pickle of protocol 2 or later: a snapshot, whatever its name."""
    return head[:1] == b"\x80" and 2 <= head[1] <= 5 if len(head) > 1 else False


def _trace(head: bytes) -> bool:
    """JSON, plain or gzipped, as torch.profiler writes it."""
    if head[:2] != b"\x1f\x8b" and head.lstrip()[:1] not in (b"{", b"["):
        return False
    from torchvet.readers.kineto import looks_like

    return looks_like(head)


KINDS: tuple[Kind, ...] = (
    Kind("CUDA memory snapshot", _pickle, "torchvet.inspecting.snapshots", "torchvet.comparing.snapshots"),
    Kind("profiler trace", _trace, "torchvet.inspecting.traces", "torchvet.comparing.traces"),
)
"""Asked in this order. `report_on(paths, select=, ignore=, memory_limit=, observer=)` gives one report on files of one
kind."""
EXPECTED = f"a {', a '.join(kind.name for kind in KINDS)} or a recording (.vet)"
ENDINGS = (".pickle", ".pkl", ".json", ".json.gz")
"""What the names of snapshots and traces usually end in."""


def inspect_paths(
    paths: Sequence[Path],
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    memory_limit: int | None = None,
    observer: Observer | None = None,
) -> Report:
    """The report on files of one kind (a folder stands for those in it), or on one recording.

    `observer` is shown what was made of each file. Raises `BadInput` for what cannot be read or told.
    """
    if len(paths) == 1 and _is_recording(paths[0]):
        from torchvet.diagnosis.diagnose import diagnose
        from torchvet.recording import read

        recording = read(paths[0])
        if observer is not None:
            observer.files(sorted(paths[0].iterdir()))
            observer.recording(recording)
        return diagnose(recording, select=select, ignore=ignore, memory_limit=memory_limit)
    if any(map(_is_recording, paths)):
        raise BadInput(
            f"{next(filter(_is_recording, paths))}: is a recording; inspect one at a time, without other files"
        )
    skipped: list[NotChecked] = []
    paths = [file for path in paths for file in files_of(path, skipped)]
    kinds = {kind_of(path).name: kind_of(path) for path in paths}
    if len(kinds) > 1:
        raise BadInput(f"these are a {' and a '.join(sorted(kinds))}: inspect files of one kind at a time")
    if not kinds:
        raise BadInput(f"no file was given; expected {EXPECTED}")
    if observer is not None:
        observer.files(paths)
    module = importlib.import_module(next(iter(kinds.values())).module)
    asked = {"select": select, "ignore": ignore, "memory_limit": memory_limit, "observer": observer}
    report: Report = module.report_on(paths, **asked)
    report.not_checked.extend(skipped)
    return report


def kind_of(path: Path) -> Kind:
    """What a file is, by its beginning. Raises `BadInput` where nothing here reads it."""
    try:
        if not path.is_file() and path.exists():
            raise BadInput(
                f"{path}: is a pipe or a device, and a file is read more than once: write it to a file first"
            )
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    for kind in KINDS:
        if kind.sniff(head):
            return kind
    raise BadInput(f"{path}: {_unknown(head)}; expected {EXPECTED}")


def _unknown(head: bytes) -> str:
    """What a file is that nothing here reads, as far as its beginning tells."""
    if not head:
        return "is empty"
    if head[:2] == b"PK":
        return "looks like a checkpoint (a zip file)"
    if head[:2] != b"\x1f\x8b":
        return "is not known"
    from torchvet.readers.blocks import unpacked_head

    return "is a gzipped pickle: unpack it first (gunzip)" if _pickle(unpacked_head(head)) else "is gzip, but no trace"


def _is_recording(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def files_of(path: Path, skipped: list[NotChecked] | None = None) -> list[Path]:
    """A file itself, or a recording; of a folder the files that something here reads, by name.

    Those that are named as if something did are noted in `skipped`. Raises `BadInput` for a folder without any.
    """
    if not path.is_dir() or _is_recording(path):
        return [path]
    found = []
    for file in sorted(path.iterdir()):
        try:
            if file.is_file() or file.is_symlink():
                kind_of(file)
                found.append(file)
        except BadInput as error:
            if skipped is not None and file.name.endswith(ENDINGS):
                skipped.append(NotChecked(check="one of the files", reason=str(error)))
    if not found:
        raise BadInput(
            f"{path}: has nothing to inspect, and is not a recording (it has no manifest.json); expected files of "
            f"which each is {EXPECTED}"
        )
    return found
