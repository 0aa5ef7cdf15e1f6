"""Digests in, one report out, the same whatever their order: what files have in common is said once, each has a row."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from statistics import median
from typing import Any, NamedTuple

import msgspec

from torchvet.diagnosis.diagnose import gravest_first
from torchvet.diagnosis.ranks import fault, outliers, weight
from torchvet.finding import Finding, NotChecked, Related, Report, Verdict
from torchvet.fleet.digest import Digest
from torchvet.fleet.figures import COMPARED, figure_of
from torchvet.formatting import FILE_KINDS, count, ms, percent, size
from torchvet.inspecting.snapshots import compared
from torchvet.readers.trace_facts import RankTrace, Trace
from torchvet.traces.digest import rank_in
from torchvet.traces.report import found_in

SEEN_IN = "seen-in"
"""The role of the line that says in how many files a finding was seen."""
_NAMED = 3


class _Member(NamedTuple):
    """A file that was read: its digest, its row in the table, and its rank among the files of its kind."""

    digest: Digest
    row: int
    rank: int

    @property
    def kind(self) -> str:
        return self.digest.kind


class _Seen(NamedTuple):
    """A finding of one file."""

    member: _Member
    finding: Finding


def merged(digests: Sequence[Digest], files: int, ignore: Sequence[str] = ()) -> Report:
    """The report on so many files, of which these have a digest. Fewer digests than files: the work was interrupted."""
    digests = sorted(digests, key=lambda d: d.path)
    members = list(_members([d for d in digests if d.error is None]))
    kinds = Counter(m.kind for m in members)
    seen = [_one_of(group, kinds) for group in _alike(members)]
    found = [*seen, *((f, {}) for f in _comparisons(members, ignore))]
    found.sort(key=lambda pair: (gravest_first(pair[0]), _place(pair[0])))
    findings = [finding for finding, _ in found]
    table = [_row(m) for m in members]
    return Report(
        subject={"kind": "fleet", "paths": [d.path for d in digests]},
        verdict=_verdict(findings, members, files),
        findings=findings,
        not_checked=[*_not_reached(len(digests), files), *_damaged(digests), *_gaps(members)],
        facts={
            "fleet": {
                "files": files,
                "read": len(members),
                "interrupted": len(digests) < files,
                "bytes": sum(d.bytes for d in digests),
                "kinds": dict(sorted(kinds.items())),
            },
            "rows": table,
            "outliers": list(_outliers(table)),
            "occurrences": [facts for _, facts in found if facts],
        },
    )


def _members(digests: Sequence[Digest]) -> Iterator[_Member]:
    """Ranks are those that files tell; of a kind whose files do not all tell one of their own, their places."""
    places: dict[str, list[int]] = {}
    for row, digest in enumerate(digests):
        places.setdefault(digest.kind, []).append(row)
    ranks: dict[int, int] = {}
    for rows in places.values():
        told = [_told_rank(digests[row]) for row in rows]
        own = None not in told and len(set(told)) == len(told)
        ranks.update(zip(rows, told if own else range(len(rows)), strict=True))  # type: ignore[arg-type]
    return (_Member(digest, row, ranks[row]) for row, digest in enumerate(digests))


def _told_rank(digest: Digest) -> int | None:
    if digest.trace is not None and digest.trace.rank is not None:
        return digest.trace.rank
    return rank_in(PurePath(digest.path).name)


def _alike(members: Sequence[_Member]) -> Iterator[list[_Seen]]:
    """Findings of one fault, by kind of file: a snapshot and a trace measure different things."""
    groups: dict[Any, list[_Seen]] = {}
    for member in members:
        for finding in member.digest.findings:
            groups.setdefault((member.kind, *fault(finding)), []).append(_Seen(member, finding))
    yield from groups.values()


def _one_of(group: list[_Seen], kinds: Counter[str]) -> tuple[Finding, dict[str, Any]]:
    """The gravest of findings of one fault, with the ranks that have it; and its facts: in which files, the range."""
    worst = max(group, key=lambda s: (*weight(s.finding), s.finding.measured.seconds_per_step or 0))
    members = list({s.member.row: s.member for s in group}.values())
    kind, ranks = worst.member.kind, sorted(m.rank for m in members)
    facts = _place_facts(worst.finding) | {
        "kind": kind,
        "files": [m.digest.path for m in members],
        "ranks": ranks,
        "figure": figure_of(worst.finding),
        **_range([s.finding for s in group], figure_of(worst.finding)),
    }
    everywhere = len(members) == kinds[kind] > 1
    finding = msgspec.structs.replace(
        worst.finding,
        rank=None if everywhere else worst.member.rank,
        ranks=ranks if len(ranks) > 1 else [],
        related=[Related(role=SEEN_IN, message=_seen_in(facts, kinds[kind])), *worst.finding.related],
    )
    return finding, facts


def _range(findings: Sequence[Finding], figure: str | None) -> dict[str, float | None]:
    values = [getattr(f.measured, figure) for f in findings] if figure is not None else []
    known = [value for value in values if value is not None]
    if not known:
        return {"low": None, "median": None, "high": None}
    return {"low": min(known), "median": median(known), "high": max(known)}


def _place_facts(finding: Finding) -> dict[str, Any]:
    place = finding.location
    return {
        "code": finding.code,
        "path": place.path if place is not None else None,
        "line": place.line if place is not None else None,
    }


def _seen_in(facts: dict[str, Any], of: int) -> str:
    """`412 of 1,000 snapshots (ranks 0, 2, 3 and 409 more): 1.2 MB to 3.4 MB per step, median 2.0 MB`."""
    ranks, kind = facts["ranks"], FILE_KINDS[facts["kind"]]
    which = f" ({'rank' if len(ranks) == 1 else 'ranks'} {_some(ranks)})" if len(ranks) < of else ""
    where = f"{count(len(ranks))} of {count(of, kind)}{which}"
    if facts["figure"] is None or len(ranks) < 2:
        return where
    unit = _UNITS[facts["figure"]]
    low, middle, high = (unit(facts[name]) for name in ("low", "median", "high"))
    per_step = " per step" if facts["figure"].endswith("_per_step") else ""
    return f"{where}: {low}{per_step}" if low == high else f"{where}: {low} to {high}{per_step}, median {middle}"


_UNITS = {
    "bytes_per_step": size,
    "seconds_per_step": ms,
    "bytes": size,
    "peak_bytes": size,
    "share": percent,
}


def _some(things: Sequence[Any]) -> str:
    """The first few, and how many more."""
    first = ", ".join(str(thing) for thing in things[:_NAMED])
    return first if len(things) <= _NAMED else f"{first} and {count(len(things) - _NAMED)} more"


def _comparisons(members: Sequence[_Member], ignore: Sequence[str]) -> list[Finding]:
    """What only a comparison of ranks shows: the rules are asked about all peaks, and about all traces."""
    peaks = [dataclasses.replace(m.digest.peak, rank=m.rank) for m in members if m.digest.peak is not None]
    return [*compared(peaks, (), ignore), *_between_traces(members, ignore)]


def _between_traces(members: Sequence[_Member], ignore: Sequence[str]) -> list[Finding]:
    """Without the rules that find the same in a trace alone."""
    traces = [_ranked(m.digest.trace, m.rank) for m in members if m.digest.trace is not None]
    if len(traces) < 2:
        return []
    alone = {f.code for m in members if m.kind == "trace" for f in m.digest.findings}
    found = found_in(Trace(sorted(traces, key=lambda t: t.rank or 0)), (), ignore)
    return [finding for finding in found if finding.code not in alone]


def _ranked(trace: RankTrace, rank: int) -> RankTrace:
    return msgspec.structs.replace(trace, rank=rank)


def _place(finding: Finding) -> tuple[str, int]:
    return (finding.location.path, finding.location.line) if finding.location is not None else ("", 0)


def _row(member: _Member) -> dict[str, Any]:
    digest = member.digest
    return {
        "rank": member.rank,
        "path": digest.path,
        "kind": digest.kind,
        **digest.figures,
        "categories": digest.categories,
        "codes": sorted({f.code for f in digest.findings}),
    }


def _outliers(table: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Files that differ from the others of their kind."""
    for kind in FILE_KINDS:
        rows = {row["rank"]: row for row in table if row["kind"] == kind}
        for one in outliers(list(rows.values()), COMPARED):
            yield {"kind": kind, "path": rows[one["rank"]]["path"], **one}


def _verdict(findings: Sequence[Finding], members: Sequence[_Member], files: int) -> Verdict:
    """Clean if each of the files was read and is evidence of health: the others may have what was not seen."""
    if findings:
        return "findings"
    healthy = sum(m.digest.verdict == "clean" for m in members)
    return "clean" if healthy == files else "undetermined"


def _not_reached(done: int, files: int) -> list[NotChecked]:
    if done == files:
        return []
    return [NotChecked(check=count(files - done, "file"), reason="interrupted before they were read")]


def _damaged(digests: Sequence[Digest]) -> Iterator[NotChecked]:
    for digest in digests:
        if digest.error is not None:
            yield NotChecked(check=digest.path, reason=digest.error)


def _gaps(members: Sequence[_Member]) -> Iterator[NotChecked]:
    """What could not be looked at in files, each gap once."""
    found: dict[NotChecked, list[str]] = {}
    for member in members:
        for gap in dict.fromkeys(member.digest.not_checked):
            found.setdefault(gap, []).append(member.digest.path)
    for gap, paths in found.items():
        yield NotChecked(check=gap.check, reason=f"{gap.reason} ({count(len(paths), 'file')}: {_some(paths)})")
