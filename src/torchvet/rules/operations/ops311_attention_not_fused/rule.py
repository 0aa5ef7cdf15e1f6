"""OPS311: attention takes its math implementation, where one change would let torch take a fused one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import count, ms
from torchvet.recording.records.timing import AttentionFallback, Change
from torchvet.rules.kit import Finding, Iterator, RankRecording, Related
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_QUICKER = 0.8
"""What the fused implementation takes of the other's time, with the change, up to which it is worth a word."""
_COSTS = frozenset[Change](["dropout"])
"""Changes of what is computed: nobody is wrong to leave it so."""
_TEXTS: dict[Change, tuple[str, str]] = {
    "strides": (
        "the last dimension of its {operands} has a stride other than 1",
        "`.contiguous()` on {operands} before the call, or make {them} in that layout; results differ by rounding",
    ),
    "rank": (
        "its operands have {rank} dimensions, and fused implementations take four",
        "add the missing dimensions: `query.unsqueeze(0)`, the same for key, value and a mask of as many dimensions, "
        "and `.squeeze(0)` on the result",
    ),
    "broadcast": (
        "its query, key and value differ in the sizes of batch or heads",
        "`expand` them to one size of batch and heads before the call, which copies nothing",
    ),
    "mask-shape": (
        "its mask has fewer dimensions than the scores",
        "`attn_mask.expand(*query.shape[:-1], key.shape[-2])`, which copies nothing",
    ),
    "causal": (
        "it is given a mask, which says no more than `is_causal=True`",
        "`is_causal=True` in place of the mask",
    ),
    "widths": (
        "its value is not as wide as its query and key",
        "pad the narrower ones with zeros (`torch.nn.functional.pad`), pass `scale=query.shape[-1] ** -0.5` with the "
        "width as it was, and cut the result to the value's own width",
    ),
    "groups": (
        "`enable_gqa` leaves key and value with fewer heads than the query",
        "repeat the heads before the call: `key.repeat_interleave(query.shape[1] // key.shape[1], 1)`, the same for "
        "value, without `enable_gqa`",
    ),
    "mask-gradient": (
        "its mask requires a gradient, though nothing that an optimizer updates is in it",
        "`attn_mask.detach()`, or make the mask under `torch.no_grad()`",
    ),
    "dropout": (
        "it drops out attention weights, which no fused implementation does here",
        "where dropout elsewhere serves as well, `dropout_p=0.0`; this changes what the model learns",
    ),
}
"""By change: what keeps the fused implementation away, and what to do."""


class AttentionNotFused(LineCostRule):
    """Attention takes its math implementation, where one change would let torch take a fused one."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines that a fused implementation would make quicker, by what was measured."""
        groups: dict[tuple[object, ...], list[AttentionFallback]] = {}
        for record in rank.all(AttentionFallback):
            groups.setdefault((record.place, record.inner, record.change, *record.operands), []).append(record)
        parts = [part for part in timing.times.lines if part.phase != "data"]
        model = timing.per_step(sum(part.seconds for part in parts))
        for records in groups.values():
            math, changed = sum(one.math for one in records), sum(one.changed for one in records)
            if not model or changed > _QUICKER * math:
                continue
            cost = Cost(timing, parts, saved=min(1.0, (math - changed) / model))
            if cost.counts:
                yield self._falls_back(rank, max(records, key=lambda one: one.math), math, changed, cost)

    def _falls_back(
        self, rank: RankRecording, seen: AttentionFallback, math: float, changed: float, cost: Cost
    ) -> Finding:
        why, advice = _TEXTS[seen.change]
        words = {
            "operands": " and ".join(seen.operands),
            "them": "it" if len(seen.operands) == 1 else "them",
            "rank": len(seen.shapes[0]) if seen.shapes else 0,
        }
        passes = "forward and backward" if seen.backward else "forward"
        calls = count(max(1, round(seen.calls / seen.sampled)), "call")
        return self.observed(
            rank,
            seen.place,
            f"`scaled_dot_product_attention` takes its math implementation, since {why.format(**words)}: "
            f"the fused one ({seen.fused}) would save {cost.of_step()}",
            cause=f"{_forms(seen)}; measured after the run on tensors made alike, {calls} in a step, {passes}: "
            f"{ms(math)} as they are, {ms(changed)} with the change made first; {cost.without()}",
            advice=advice.format(**words),
            severity="info" if seen.change in _COSTS else cost.severity(),
            measured=cost.measured(),
            related=self._beside(seen),
        )

    def _beside(self, seen: AttentionFallback) -> list[Related]:
        """The library's line, and where an operand with an odd layout was made."""
        related = []
        if seen.inner is not None:
            related.append(self.beside("called-from", "the call, in a library", seen.inner))
        if seen.made is not None and seen.made != seen.place and seen.change in ("strides", "mask-gradient"):
            related.append(self.beside("made", f"makes what the {seen.operands[0]} is a view of", seen.made))
        return related


def _forms(seen: AttentionFallback) -> str:
    """Shapes and strides, those of several operands once where they are alike."""
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, shape, stride in zip(seen.operands, seen.shapes, seen.strides, strict=True):
        alike.setdefault((shape, stride), []).append(name)
    told = [f"{' and '.join(names)} {shape} with strides {stride}" for (shape, stride), names in alike.items()]
    return f"{', '.join(told)}, in {seen.dtype}"
