"""OPS316: distances of all pairs of rows are computed from a tensor of all their differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import ms, size
from torchvet.recording.records.timing import Distance, PairDifferences
from torchvet.rules.kit import Finding, Iterator, RankRecording, Related
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_QUICKER = 0.8
"""What the other way takes of the time, up to which it is worth a word."""
_BYTES = {"float64": 8}
_SQUARES = "`(x.square().sum(-1, keepdim=True) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT).clamp_min(0)`"
_TEXTS: dict[Distance, tuple[str, str]] = {
    "squares": ("their squares are summed up", _SQUARES),
    "root": ("their norm is taken", "`torch.cdist(x, y)`"),
    "absolute": ("their absolute values are summed up", "`torch.cdist(x, y, p=1)`"),
}
"""By distance: what is summed up, and what to do."""


class PairwiseDifferences(LineCostRule):
    """Distances of all pairs of rows are computed from a tensor of all their differences."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines that would be quicker without that tensor, by what was measured."""
        groups: dict[tuple[object, ...], list[PairDifferences]] = {}
        for record in rank.all(PairDifferences):
            groups.setdefault((record.place, record.inner, record.distance), []).append(record)
        parts = [part for part in timing.times.lines if part.phase != "data"]
        model = timing.per_step(sum(part.seconds for part in parts))
        for records in groups.values():
            quick = [one for one in records if 0 < _best(one) <= _QUICKER * one.plain and one.sampled and one.every]
            saved = sum(_seconds(one, model) * (1 - _best(one) / one.plain) for one in quick)
            if not model or not quick:
                continue
            cost = Cost(timing, parts, saved=min(1.0, saved / model))
            if cost.counts:
                yield self._differences(rank, max(quick, key=lambda one: one.forward + one.backward), cost)

    def _differences(self, rank: RankRecording, seen: PairDifferences, cost: Cost) -> Finding:
        filled = size(_BYTES.get(seen.dtype, 4) * _elements(seen))
        what, advice = _TEXTS[seen.distance]
        passes = "forward and backward" if seen.backward else "forward"
        ways = f"{ms(_best(seen))} without that tensor"
        if seen.distance != "absolute" and not seen.twice:
            ways = f"{ms(seen.product)} by a matrix product, {ms(seen.subtracting)} by `torch.cdist` without one"
        return self.observed(
            rank,
            seen.place,
            f"distances of all pairs of {seen.rows[0]:,} and {seen.rows[1]:,} rows are computed from a tensor of their "
            f"differences: without it a step would save {cost.of_step()}",
            cause=f"{seen.left} minus {seen.right} has {filled}, {seen.width} times as much as the distances, and only "
            f"{what}, {_often(seen)}; measured after the run on tensors made alike, {passes}: "
            f"{ms(seen.plain)} as it is, {ways}; {cost.without()}",
            advice=advice + _operands(seen) + _caution(seen),
            severity=cost.severity(),
            measured=cost.measured(),
            related=self._beside(seen),
        )

    def _beside(self, seen: PairDifferences) -> list[Related]:
        """The library's line, and where the differences are summed up."""
        related = []
        if seen.inner is not None:
            related.append(self.beside("called-from", "the difference, in a library", seen.inner))
        if seen.reduced is not None and seen.reduced != seen.place:
            related.append(self.beside("reduced", "the differences are summed up here", seen.reduced))
        return related


def _seconds(seen: PairDifferences, model: float) -> float:
    """Of its operators in a step; no more than their share of what a step takes without being sampled."""
    own = seen.forward + seen.backward
    return min(own / seen.sampled, own / seen.every * model)


def _best(seen: PairDifferences) -> float:
    """Seconds of the quickest other way."""
    # The backward pass of `torch.cdist` without a product cannot be differentiated (torch 2.13.0).
    if seen.twice:
        return seen.plain if seen.distance == "absolute" else seen.product
    return min(seen.product, seen.subtracting)


def _elements(seen: PairDifferences) -> int:
    elements = 1
    for left, right in zip(seen.left, seen.right, strict=True):
        elements *= max(left, right)
    return elements


def _often(seen: PairDifferences) -> str:
    times = seen.calls / seen.sampled
    if times < 1:
        return "in some steps"
    return "once in a step" if round(times) == 1 else f"{round(times)} times in a step"


def _operands(seen: PairDifferences) -> str:
    """What x and y are, and what else belongs to the same distances."""
    told = f", divided by {seen.width}" * seen.mean + ", x and y being the rows before they are broadcast"
    if seen.scaled:
        told += (
            "; a number goes to the distances, and factors of a row's elements go to both rows before (their roots, "
            "where they multiply squares)"
        )
    return told


def _caution(seen: PairDifferences) -> str:
    """What is lost where rows lie close together, and what else differs."""
    if seen.distance == "absolute":
        return ". It subtracts as well, and keeps no differences"
    told = ". A product loses digits where rows lie closer together than about a thousandth of their length"
    if seen.twice:
        told += ", and the gradient, which is differentiated again here, can be had of no other way"
    else:
        square = ".square()" * (seen.distance == "squares")
        told += f": there `torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist'){square}`"
    if seen.distance == "root":
        told += ". By itself torch.cdist takes a product from 26 rows on"
    elif seen.autocast:
        told += ". Autocast would take the product in half precision: compute it outside"
    return told
