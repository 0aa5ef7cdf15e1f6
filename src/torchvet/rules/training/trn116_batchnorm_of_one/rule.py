"""TRN116: batch norm trains on batches of one sample, and evaluation uses statistics that fit none of them."""

from __future__ import annotations

import ast

from torchvet.formatting import count, percent
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.source.model import argument

_NORMS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")
_FEW = 3
_LOOKS = 6
"""Passes of one sample, once the running statistics have settled."""
_MOST = 0.5
"""Share of a model's passes in training that have one sample."""
_EFFECT = 0.25
"""Share of a sample's loss by which it changes. Measured: 0.13 at most where an evaluation's loss is that of training,
0.5 and more where it is about twice as high or more."""
_SHIFT, _POSITIONS = 0.5, 256
"""Standard deviations between a sample's means and the running ones, and the values that a mean is of: those of few
values differ anyway. Measured: up to 0.35 evaluations lose a quarter at most, from 0.5 on two thirds and more."""


class BatchnormOfOne(kit.Rule):
    """Batch norm trains on batches of one sample, and evaluation uses statistics that fit none of them."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Models that train on single samples, which the running statistics do not fit."""
        for record in rank.latest(records.layers.SingleSamples, "model"):
            misfit = _misfit(record) if record.single >= _MOST * record.passes else ""
            if misfit:
                finding = self._finding(rank, record, misfit)
                finding.related.extend([self.beside("made", text, place) for text, place in _made(recording)])
                yield finding

    def _finding(self, rank: kit.RankRecording, record: records.layers.SingleSamples, misfit: str) -> kit.Finding:
        layers, share = count(record.layers, "batch norm layer"), percent(record.single / record.passes)
        used = [self.beside("evaluates", f"{record.model} evaluates here", record.used)] if record.used else []
        return self.observed(
            rank,
            record.place,
            f"{layers} of {record.model} trained on batches of one sample in {share} of {record.passes:,} "
            f"sampled passes: {misfit}",
            cause="in training each sample is normalized by its own mean and variance, in an evaluation by running "
            "ones, which are an average over samples",
            advice="use batches of more samples (of one size, padded or cropped), or a norm that no batch changes: "
            "`GroupNorm`, or `InstanceNorm`, which does in an evaluation what batch norm does here",
            # A loss that would be lower is no harm to what evaluates so.
            severity="warning" if record.used and (_shifted(record) or record.effect > 0) else "info",
            measured=kit.Measured(steps=record.looks),
            related=used,
        )


def _made(recording: kit.Recording) -> list[tuple[str, kit.Location]]:
    """The lines that make batch norms, and loaders of single samples, as far as the text shows few."""
    files = [file for path in recording.sources if (file := recording.model(path)) is not None]
    norms = [(file, event) for file in files for event in file.calls(*_NORMS)]
    loaders = [(file, event) for file in files for event in file.calls("DataLoader") if _gives_single(event.call)]
    return [
        (text, file.place(event.node, event))
        for text, found in (("makes the batch norm", norms), ("gives one sample a batch", loaders))
        for file, event in found
        if len(found) <= _FEW
    ]


def _gives_single(call: ast.Call) -> bool:
    size = argument(call, "batch_size", 1)
    # Without a size a loader gives single samples; a sampler of batches has its own.
    alone = size is None and all(one.arg not in (None, "batch_sampler") for one in call.keywords)
    return alone or (isinstance(size, ast.Constant) and size.value == 1)


def _misfit(record: records.layers.SingleSamples) -> str:
    """How the running statistics do not fit a sample."""
    found = []
    if _shifted(record):
        found.append(
            f"in {record.layer} a sample's means lie {record.shift:.2g} standard deviations from the running ones"
        )
    if record.losses >= _LOOKS and abs(record.effect) >= _EFFECT:
        way = "higher" if record.effect > 0 else "lower"
        found.append(
            f"with the running statistics a sample's loss is {percent(abs(record.effect))} {way}, by its gradients"
        )
    return ", and ".join(found)


def _shifted(record: records.layers.SingleSamples) -> bool:
    return record.looks >= _LOOKS and record.shift >= _SHIFT and record.positions >= _POSITIONS
