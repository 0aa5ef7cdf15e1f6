"""What lines of the program cost in a step, by line: what a fault of speed is measured by. Arithmetic, no judgement."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from torchvet.formatting import count, size
from torchvet.recording.records.crossing import Crossing
from torchvet.recording.records.verify import MadeAt, Reduced

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording.reader import RankRecording
    from torchvet.recording.records.base import Place

Costs = dict[str, dict[tuple[str, int], float]]
"""By kind of cost, path and line: how much of it a step has. What was not counted is not there."""

_NUMBERS = {
    "waits": ("wait for the device per step", "waits for the device per step"),
    "blocking copies": (
        "copy to the device per step that the host waits for",
        "copies to the device per step that the host waits for",
    ),
    "reductions": (
        "average of gradients over all ranks per optimizer step",
        "averages of gradients over all ranks per optimizer step",
    ),
}
_SIZES = {
    "transfers": "copied to the device per step",
    "memory": "of new tensors per step",
    "copies": "of plain copies per step",
}


def costs(rank: RankRecording) -> Costs:
    """The costs of one rank's lines, as far as they were counted in sampled steps."""
    found: Costs = defaultdict(lambda: defaultdict(float))
    # The latest: each record repeats the sums so far.
    for crossing in rank.latest(Crossing, "place", "kind", "what"):
        steps = max(1, crossing.sampled)
        if crossing.kind == "to device":
            found["transfers"][_key(crossing.place)] += crossing.bytes / steps
            found["blocking copies"][_key(crossing.place)] += crossing.waits / steps
        else:
            found["waits"][_key(crossing.place)] += crossing.stalls / steps
    for made in rank.latest(MadeAt):
        found["memory"][_key(made.place)] += made.bytes / max(1, made.sampled)
        found["copies"][_key(made.place)] += made.copied / max(1, made.sampled)
    for one in rank.latest(Reduced):
        # A line in a program without a single optimizer step has no cost by step.
        if one.steps:
            found["reductions"][_key(one.place)] += one.reduced / one.steps
    # Plain dictionaries: a look-up must not make an entry, as "not counted" is another thing than 0.
    return {kind: dict(lines) for kind, lines in found.items()}


def cost_lines(finding: Finding) -> list[tuple[str, int]]:
    """The lines that a finding's cost is counted on: its statement's, and those that it says run with it."""
    at = finding.location
    if at is None:
        return []
    runs = [(r.path, r.line) for r in finding.related if r.role == "runs" and r.path and r.line]
    return runs or [(at.path, line) for line in range(at.line, (at.end_line or at.line) + 1)]


def cost_of(finding: Finding, kind: str, found: Costs) -> float:
    """What the lines of a finding cost in a step; 0 where that was not counted."""
    return sum(found.get(kind, {}).get(key, 0.0) for key in cost_lines(finding))


def worded(kind: str, amount: float) -> str:
    """An amount of a kind of cost, in words."""
    if kind in _SIZES:
        return f"{size(amount)} {_SIZES[kind]}"
    return count(amount, *_NUMBERS[kind])


def _key(place: Place) -> tuple[str, int]:
    return place.path, place.line
