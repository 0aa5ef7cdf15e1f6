"""MEM207: a few tensors make the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import percent
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.memory._evaluations import WholeSet, whole_sets
from torchvet.rules.memory._temporaries import Pattern, patterns
from torchvet.rules.memory.fixes.one_hot_rows import looked_up
from torchvet.rules.shared.growth_rule import allocated as allocated_in_run
from torchvet.rules.shared.number_format import size as in_bytes
from torchvet.rules.shared.snapshot_rule import allocated, in_memory, named
from torchvet.snapshots.categories import ACTIVATIONS, TEMPORARIES

if TYPE_CHECKING:
    from torchvet.snapshots.memory import DeviceMemory
    from torchvet.snapshots.state_at import Row

_BLOCK, _LINE = 0.10, 0.25
"""Shares of the peak: of a single block, to be reported at all; of all of its line, to be a warning."""
_ATTENTION = {"bmm", "baddbmm", "softmax", "_softmax"}
_SMALL_PEAK = 256 << 20
"""Bytes below which a peak is no one's trouble, whatever it consists of; in a run, where more is known of it, half."""


class LargeTemporary(kit.Rule):
    """A few tensors that live for a moment make the peak."""

    severity = "warning"

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The rows of a layer's weight looked up, where it is given one-hot rows."""
        return looked_up(file, finding)

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """What was written out by hand in the highest sampled step, on whichever device; and the largest evaluation in
        one pass."""
        evaluation = next(whole_sets(rank), None)
        if evaluation is not None:
            yield self._evaluation(rank, evaluation)
        window = max(rank.all(records.base.Window), key=lambda w: w.peak, default=None)
        if window is None or window.peak < _SMALL_PEAK // 2:
            return
        for pattern in patterns(rank, recording, window):
            # A quarter of a block's share, as a written-out form keeps several of one shape.
            if pattern.bytes > _LINE * window.peak and _of_one(pattern.largest) >= _BLOCK / 4 * window.peak:
                yield self._observed(rank, window, pattern)

    def _observed(self, rank: kit.RankRecording, window: records.base.Window, pattern: Pattern) -> kit.Finding:
        share, largest = pattern.bytes / window.peak, pattern.largest
        shape = " × ".join(f"{size:,}" for size in largest.site.shape)
        return self.observed(
            rank,
            severity=pattern.severity,
            place=pattern.place,
            message=f"{in_bytes(pattern.bytes)} in {pattern.storages} {pattern.what} are {percent(share)} of the peak; "
            f"the largest is {shape} {largest.site.dtype}, {in_bytes(_of_one(largest))}",
            cause="written out in single operators, each result is kept for the backward pass",
            advice=pattern.instead,
            related=[allocated_in_run(s) for s in pattern.sites[:4]],
            measured=kit.Measured(bytes=pattern.bytes, peak_bytes=window.peak, share=share),
        )

    def _evaluation(self, rank: kit.RankRecording, one: WholeSet) -> kit.Finding:
        record, step = one.record, one.record.training_rows
        largest = record.sites[0] if record.sites else None
        holds = f"; at the peak {in_bytes(largest.bytes)} are of {_maker(largest)}" if largest is not None else ""
        graph = " and, with gradients on, is kept for a backward pass" if record.graph else ""
        return self.observed(
            rank,
            severity=one.severity,
            place=record.place,
            message=f"evaluating {record.rows:,} rows in one pass takes {in_bytes(record.bytes)}, "
            f"{one.times:.3g} times the {in_bytes(one.training)} of a training step of {kit.count(step, 'row')}",
            cause=f"what each layer gives has all rows of the set{graph}{holds}",
            advice=f"evaluate in batches{' under torch.no_grad()' if record.graph else ''}: go over "
            f"`x.split({one.batch})` or a DataLoader with `batch_size={one.batch}`, and sum up losses and hits or "
            "`torch.cat` the results",
            related=[allocated_in_run(s) for s in record.sites],
            measured=kit.Measured(bytes=one.excess, peak_bytes=record.bytes, share=one.excess / record.bytes),
        )

    def in_snapshot(self, snapshot: kit.SnapshotMemory) -> kit.Findings:
        """The line that has most of the peak in temporaries or activations, a tenth of it in one block."""
        for memory in snapshot.devices:
            rows = [r for r in memory.peak.lines if r.category in (TEMPORARIES, ACTIVATIONS) and _large(memory, r)]
            if rows and memory.peak.bytes >= _SMALL_PEAK:
                yield self._finding(memory, rows)

    def _finding(self, memory: DeviceMemory, rows: list[Row]) -> kit.Finding:
        first, peak = rows[0], memory.peak.bytes
        share = first.bytes / peak
        largest = max(first.sizes)
        # Where nothing is trained, a large result may be all that the program is there for.
        trains = bool(memory.phases.backwards)
        makes = f"what {first.operator} {'make' if len(first.operators) > 1 else 'makes'} there"
        return in_memory(
            self, memory, severity="warning" if share > _LINE and trains else "info", place=first.place,
            message=f"{in_bytes(first.bytes)} in {first.blocks} {'block' if first.blocks == 1 else 'blocks'} of "
            f"{'the backward of ' if first.note else ''}{named(first.place)} are {percent(share)} of the peak; "
            f"the largest takes {in_bytes(largest)}",
            cause=f"{makes if first.operator else 'what is made there'} are few tensors, each of which is a large part "
            "of all that is in use",
            advice=_alternative(first, trains), related=[allocated(r) for r in rows[1:4]],
            measured=kit.Measured(bytes=first.bytes, peak_bytes=peak, share=share),
        )  # fmt: skip


def _maker(site: records.base.SiteBytes) -> str:
    name = site.site.op.removeprefix("aten.").partition(".")[0]
    return f"`{name}` in {site.site.module}" if site.site.module else f"`{name}`"


def _large(memory: DeviceMemory, row: Row) -> bool:
    return max(row.sizes, default=0) >= _BLOCK * memory.peak.bytes


def _of_one(site: records.base.SiteBytes) -> int:
    return site.bytes // site.storages


def _alternative(row: Row, trains: bool) -> str:
    function = row.place.function.lower() if row.place is not None else ""
    # By the function's name first: a snapshot knows operators but not what they are for.
    if "attention" in function or "attn" in function:
        return (
            "use `torch.nn.functional.scaled_dot_product_attention`, which does not keep the whole matrix, or compute "
            "it in chunks"
        )
    # Without a backward pass nothing is kept for one, and nothing is gained by computing it again.
    again = ", or run it under `torch.utils.checkpoint`" if trains else ""
    if _ATTENTION & row.operators.keys():
        return (
            "where it is attention, `torch.nn.functional.scaled_dot_product_attention` does not keep the matrix; else "
            f"compute it in chunks{again}"
        )
    if "cross_entropy" in function or "log_softmax" in function:
        return "use `torch.nn.functional.cross_entropy` on the logits, in chunks over the sequence where they are large"
    return f"use a fused form where there is one, or compute it in chunks{again}"
