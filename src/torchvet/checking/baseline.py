"""Findings that are known already: written down once, skipped from then on.

A finding is recognized by its file, code, function and the text of its line, not by the line's number, and as often as
it was counted: one more of the same is new.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from torchvet.checking.result import FileResult
from torchvet.errors import BadInput
from torchvet.finding import Finding

SCHEMA = "torchvet.baseline/1"


class Known(msgspec.Struct, frozen=True, order=True):
    """What a finding is recognized by. `path` is relative to the baseline's folder and separated by `/`."""

    path: str
    code: str
    function: str
    text: str


class Entry(Known, frozen=True):
    """One kind of known finding, and how often it was found."""

    count: int


class Baseline(msgspec.Struct):
    """The file's content."""

    schema: str
    findings: list[Entry]


def write_baseline(file: Path, results: Iterable[FileResult]) -> int:
    """Write down everything found; gives the number of findings. Raises `BadInput`."""
    counted = Counter(_known(f, r, file.parent) for r in results for f in r.findings)
    entries = [Entry(k.path, k.code, k.function, k.text, n) for k, n in sorted(counted.items())]
    content = msgspec.json.format(msgspec.json.encode(Baseline(SCHEMA, entries)), indent=1) + b"\n"
    # Written beside and renamed: whoever reads meanwhile sees the old file or the new one, never a part.
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        os.replace(beside, file)
    except OSError as error:
        raise BadInput(f"{file}: the baseline could not be written: {error.strerror}") from error
    return sum(counted.values())


def read_baseline(file: Path) -> Counter[Known]:
    """What is known. Raises `BadInput` for a file that is no baseline."""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=Baseline)
    except OSError as error:
        raise BadInput(f"{file}: the baseline cannot be read: {error.strerror}; --write-baseline makes one") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadInput(f"{file}: is no baseline: {error}; --write-baseline makes one") from error
    if known.schema != SCHEMA:
        raise BadInput(
            f"{file}: is a baseline of {known.schema!r}, expected {SCHEMA!r}; --write-baseline makes it anew"
        )
    return Counter({Known(e.path, e.code, e.function, e.text): e.count for e in known.findings})


def without_known(results: Sequence[FileResult], known: Counter[Known], folder: Path) -> tuple[list[FileResult], int]:
    """The results without the known findings, and how many findings those are."""
    # As often as it was counted: a second fault of the same kind on an equal line is new.
    left = known.copy()
    new_results, matched = [], 0
    for result in results:
        new = []
        for finding in result.findings:
            key = _known(finding, result, folder)
            if left[key] > 0:
                left[key] -= 1
            else:
                new.append(finding)
        matched += len(result.findings) - len(new)
        changed = len(new) < len(result.findings)
        new_results.append(msgspec.structs.replace(result, findings=new) if changed else result)
    return new_results, matched


def unknown(results: Sequence[FileResult], baseline: Path | None) -> list[FileResult]:
    """The results without what a project's baseline knows. Raises `BadInput` for a file that is none."""
    return list(results) if baseline is None else without_known(results, read_baseline(baseline), baseline.parent)[0]


def _known(finding: Finding, result: FileResult, folder: Path) -> Known:
    at = finding.location
    if at is None:
        return Known(_relative(result.path, folder), finding.code, "", "")
    # The line's text and no number: what is known stays so when lines are added above it.
    text = result.lines.get(at.path, {}).get(str(at.line), "").strip()
    return Known(_relative(at.path, folder), finding.code, at.function or "", text)


def _relative(path: str, folder: Path) -> str:
    return os.path.relpath(path, folder or ".").replace(os.sep, "/")
