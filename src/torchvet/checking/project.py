"""A whole check: files are found, looked up in the cache or read, and their results become one report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchvet.checking.cache import FOLDER, Cache, digest
from torchvet.checking.checker import Checker
from torchvet.checking.discovery import Target
from torchvet.checking.result import FAULT, FileResult, not_checked, unreadable
from torchvet.configuration import Configuration
from torchvet.finding import Report, Verdict

_FEW = 8
"""Files below which a rule is loaded when one of them has its words."""


class Read(msgspec.Struct, array_like=True):
    """What reading a file gives: the digest of its content, and what it showed (None where it is unchanged)."""

    content: bytes
    result: FileResult | None


class Reader:
    """The work of one file, done in whatever process. A job is the path, the path shown, and the content remembered."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker

    def __call__(self, job: tuple[str, str, bytes | None]) -> bytes:
        """Read, compare, check. The answer is encoded: that is quicker than pickling it."""
        path, shown, remembered = job
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            return msgspec.msgpack.encode(Read(b"", unreadable(shown, error)))
        content = digest(data)
        result = None if content == remembered else self.checker.check_bytes(shown, data)
        return msgspec.msgpack.encode(Read(content, result))

    @staticmethod
    def died(job: tuple[str, str, bytes | None], status: int) -> bytes:
        """The answer where a file ended the process that read it."""
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return msgspec.msgpack.encode(Read(b"", not_checked(job[1], f"the process that read it died: {how}; {FAULT}")))


def check_files(
    targets: Sequence[Target], checker: Checker, cache: Cache | None = None, processes: int | None = None
) -> list[FileResult]:
    """What each file showed, in their order. Raises `BadInput` for a code prefix that no rule has."""
    found: dict[str, FileResult] = {}
    waiting: list[tuple[Target, os.stat_result]] = []
    for target in targets:
        if target.refused:
            found[target.path] = not_checked(target.shown, f"the folder cannot be read: {target.refused}")
            continue
        try:
            status = os.stat(target.path)
        except OSError as error:
            found[target.path] = unreadable(target.shown, error)
            continue
        known = cache.lookup(target.shown, status) if cache is not None else None
        if known is not None:
            found[target.path] = known
        else:
            waiting.append((target, status))
    if waiting or cache is None or cache.is_new:
        _ = checker.scope  # the options are judged
        # Before the processes are forked, so that they share the rules and none imports them again.
        if len(waiting) > _FEW:
            checker.load()
    found |= _read(waiting, checker, cache, processes)
    if cache is not None:
        cache.save()
    return [found[target.path] for target in targets]


def _read(
    waiting: list[tuple[Target, os.stat_result]], checker: Checker, cache: Cache | None, processes: int | None
) -> dict[str, FileResult]:
    if not waiting:
        return {}
    from torchvet.checking.workers import answers

    jobs = [(t.path, t.shown, cache.digest_of(t.shown) if cache is not None else None) for t, _ in waiting]
    sizes = [status.st_size for _, status in waiting]
    found: dict[str, FileResult] = {}
    encoded = answers(jobs, sizes, Reader(checker), Reader.died, processes)
    for (target, status), answer in zip(waiting, encoded, strict=True):
        read = msgspec.msgpack.decode(answer, type=Read)
        if read.result is not None:
            result = read.result
            if cache is not None and read.content:
                cache.add(result, read.content, status)
        else:
            assert cache is not None
            result = cache.confirm(target.shown, status) or checker.check(target.path, target.shown)
        found[target.path] = result
    return found


def cache_for(configuration: Configuration, folder: Path | None) -> Cache:
    """The cache for a configuration; in the project's root where no folder is given."""
    parts = (configuration.root, configuration.layers, sorted(configuration.per_file_ignores.items()))
    return Cache(folder or configuration.root / FOLDER, "\0".join(map(repr, parts)))


def report_on(results: Sequence[FileResult], paths: Sequence[str]) -> Report:
    """The results of files as one report."""
    findings = [f for result in results for f in result.findings]
    unchecked = [n for result in results for n in result.not_checked]
    verdict: Verdict = "findings" if findings else "clean"
    lost = sum(1 for r in results if r.not_checked and not r.findings)
    if not findings and lost == len(results):
        verdict = "undetermined"
    subject = {"kind": "check", "paths": list(paths)}
    facts = facts_of(results)
    return Report(subject=subject, verdict=verdict, findings=findings, not_checked=unchecked, facts=facts)


def facts_of(results: Sequence[FileResult]) -> dict[str, Any]:
    """How many files, how many findings by code, how many of them have edits, and the lines that they stand on."""
    findings = [f for result in results for f in result.findings]
    files = [r for r in results if not r.path.endswith(os.sep)]
    lines: dict[str, dict[str, str]] = {}
    for result in results:
        lines |= result.lines
    fixable = Counter("safe" if f.remedy.safe else "unsafe" for f in findings if f.remedy.edits)
    return {
        "files": len(files),
        "files_with_findings": sum(1 for r in results if r.findings),
        "files_not_checked": sum(1 for r in files if r.not_checked),
        "folders_not_checked": len(results) - len(files),
        "statistics": dict(sorted(Counter(f.code for f in findings).items())),
        "fixable": {"safe": fixable["safe"], "unsafe": fixable["unsafe"]},
        "lines": lines,
    }
