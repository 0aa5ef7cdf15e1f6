"""DST102: one rank needs more memory than the others."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from torchvet.analysis.rank_needs import Need, need_of
from torchvet.formatting import size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.shared.snapshot_rule import location_of, named

if TYPE_CHECKING:
    from torchvet.snapshots.ranks import RankPeak

_TOLD, _WARNING = 0.10, 0.25
"""Shares of the largest peak that the others do not need. Batches of unlike lengths differ by some per cent."""
_WORTH = 64 << 20
"""Bytes below which it is nobody's trouble."""
_LEAST = 16 << 20
"""The same in a run, whose amounts are a process's own: below it interpreters differ. What is a warning, by bytes as
well, is `grading.of_waste`'s to say."""
_ALIKE, _SAME_MODEL = 0.5, 0.02
"""The share of the lines that allocate which ranks of one program have in common, and by how much their parameters may
differ where each holds the whole model or an equal part of it."""


_APART = 60_000_000
"""Microseconds between recordings of one program, whose ring buffers may be short and whose clocks not the same."""


_ADVICE = "give it what the others get, or keep on the host what it alone keeps"
_ON_HOST = "give it what the others get, or let each rank keep its share of what it alone keeps"
_OF_STEPS = ("activations", "inputs", "backward temporaries", "optimizer temporaries")
_MAKES = ("assign", "setattr")
_BESIDE = "no tensors that a name holds: arrays, objects, what libraries keep"


class RankImbalance(kit.Rule):
    """One rank needs more memory at its peak than the others."""

    severity = "warning"
    found_with = ("run", "--nproc", "2")

    def in_recording(self, recording: kit.Recording) -> kit.Findings:
        """From the records of all ranks: of their devices, and of the hosts' memory that each process takes."""
        ranks = [one for one in recording.members if one.ticks]
        for host in (False, True):
            needs = [need for need in (need_of(one, host) for one in ranks) if need is not None]
            found = _largest([n.bytes for n in needs], _LEAST) if len(needs) == len(ranks) else None
            if found is not None:
                yield self._of_run(found, needs, recording)

    def _of_run(self, found: _Largest, needs: list[Need], recording: kit.Recording) -> kit.Finding:
        worst, others = needs[found.number], [n for i, n in enumerate(needs) if i != found.number]
        part, more = _largest_part(found, worst, others)
        place, _ = _difference(worst.lines, [n.lines for n in others]) if worst.lines else (None, 0)
        holding = worst.names.get(part)
        at = _bound_at(holding, recording) if holding is not None else place if part in _OF_STEPS else None
        parameters = [n.parameters for n in needs]
        certain = 0 < max(parameters) <= (1 + _SAME_MODEL) * min(parameters)
        cause = f"{size(more)} of the difference are {part}"
        cause += "" if certain else "; the ranks' parameters differ too, as those of pipeline stages do"
        grave = certain and found.share >= _WARNING
        return self.observed(
            worst.rank,
            at,
            f"rank {worst.rank.rank} needs {size(found.bytes)} of {'the host' if worst.device == 'cpu' else 'its GPU'} "
            f"at its peak, {_more(found)}",
            severity=grading.of_waste(found.more, found.share) if grave else "info",
            cause=cause,
            advice=_ON_HOST if worst.device == "cpu" else _ADVICE,
            measured=kit.Measured(bytes=found.more, peak_bytes=found.bytes, share=found.share),
            device=worst.device,
        )

    def in_ranks(self, ranks: Sequence[RankPeak]) -> kit.Findings:
        """From snapshots of several ranks: by the peaks, with the category and the line that make the difference."""
        found = _largest([r.bytes for r in ranks])
        if found is None:
            return
        worst, others = ranks[found.number], [r for n, r in enumerate(ranks) if n != found.number]
        if not all(_alike(worst, other) for other in others):
            return
        category, more = _difference(worst.by_category, [r.by_category for r in others])
        place, _ = _difference(worst.by_line, [r.by_line for r in others])
        same = max(r.parameters for r in ranks) <= (1 + _SAME_MODEL) * min(r.parameters for r in ranks)
        # Ranks that hold different parts of a model (pipeline stages) differ by design.
        certain = same and worst.parameters > 0
        cause = f"{size(more)} of the difference are {category}, most of it from {named(place)}"
        if not certain:
            cause += "; the ranks' parameters differ too, as those of pipeline stages do"
        finding = self._finding(found, worst.rank, f"cuda:{worst.device}", cause)
        severity = "warning" if certain and found.share >= _WARNING else "info"
        yield msgspec.structs.replace(finding, location=location_of(place), severity=severity)

    def in_trace(self, trace: kit.Trace) -> kit.Findings:
        """From traces of several ranks with memory events: by the allocator's own counts."""
        known = [(r, m) for r in trace.ranks for m in r.memory[:1] if m.device != "cpu"]
        found = _largest([m.peak for _, m in known]) if len(known) == len(trace.ranks) else None
        if found is not None:
            rank, memory = known[found.number]
            cause = "the traces do not say what it is: compare memory snapshots of the ranks"
            yield self._finding(found, rank.rank, memory.device, cause)

    def _finding(self, found: _Largest, rank: int | None, device: str, cause: str) -> kit.Finding:
        return kit.Finding(
            code=self.code,
            name=self.name,
            severity="info",
            evidence="observed",
            location=None,
            message=f"rank {rank} needs {size(found.bytes)} at its peak, {_more(found)}",
            cause=cause,
            remedy=kit.Remedy(summary=_ADVICE),
            measured=kit.Measured(bytes=found.more, peak_bytes=found.bytes, share=found.share),
            rank=rank,
            device=device,
        )


class _Largest(NamedTuple):
    """The largest of some peaks: whose, how large, by how much above the median of the others, as its share."""

    number: int
    bytes: int
    more: int
    share: float


def _more(found: _Largest) -> str:
    return f"{size(found.more)} ({found.share:.0%}) more than the others do"


def _largest_part(found: _Largest, worst: Need, others: list[Need]) -> tuple[str, int]:
    """The category or name that makes most of a difference, or what is left of it where that is more."""
    part, more = _difference(worst.parts, [n.parts for n in others]) if worst.parts else ("", 0)
    rest = found.more - more
    return (part, more) if more >= rest else (_BESIDE, rest)


def _bound_at(holding: records.base.Holding, recording: kit.Recording) -> kit.Place | kit.Store | kit.Location | None:
    """The line that stores into a name, else the first that binds it: made once, it may be what a step would reset."""
    name, _, path, _ = holding.where
    stores, file = recording.index.stores(*holding.where), recording.model(path)
    if holding.container == "Tensor":
        # What is written into a tensor does not make it larger.
        stores = [store for store in stores if store.kind in _MAKES and store.value != "None"]
    if stores or file is None:
        return next(iter(stores), None)
    bound = [event for unit in file.units for event in unit.bindings.get(name, ())]
    # `cache = None` is there for the other ranks.
    bound.sort(key=lambda event: isinstance(getattr(event.statement, "value", None), ast.Constant))
    return next((file.place(event.node, event) for event in bound), None)


def _largest(peaks: list[int], least: int = _WORTH) -> _Largest | None:
    """None where there are fewer than two, or none stands out."""
    if len(peaks) < 2:
        return None
    index = peaks.index(max(peaks))
    more = peaks[index] - int(median(p for n, p in enumerate(peaks) if n != index))
    if more < least or more < _TOLD * peaks[index]:
        return None
    return _Largest(index, peaks[index], more, more / peaks[index])


def _alike(one: RankPeak, other: RankPeak) -> bool:
    """Whether two recordings are of one program: made at the same time, by the same lines."""
    together = max(one.began, other.began) - min(one.ended, other.ended) <= _APART
    mine, theirs = one.program, other.program
    return bool(mine) and together and len(mine & theirs) >= _ALIKE * len(mine | theirs)


def _difference(one: Mapping[Any, int], others: Sequence[Mapping[Any, int]]) -> tuple[Any, int]:
    """The key with the largest difference to the median of the others, and the difference."""
    differences = {key: held - int(median(o.get(key, 0) for o in others)) for key, held in one.items()}
    key = max(differences, key=lambda k: differences[k])
    return key, differences[key]
