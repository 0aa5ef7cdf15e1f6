"""TRN124: reading an item changes what the dataset keeps, so that each epoch sees other data."""

from __future__ import annotations

import ast

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.source.model import edits, terminal, walk

_BATCHES = 3
"""Batches after which what a dataset keeps was another."""


class DatasetChangedByReading(kit.Rule):
    """Reading an item changes what the dataset keeps, so that each epoch sees other data."""

    severity = "warning"
    fix_changes_results = True

    silence_clears = False  # datasets in workers, and what they keep elsewhere, are not looked at

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """A copy of the item, where its line reads the attribute once."""
        noted = kit.about(finding)
        statements = {id(e.statement): e.statement for e in kit.events_at(file, finding)}
        read = [n for s in statements.values() for n in walk(s) if isinstance(n, ast.Subscript)]
        items = [n for n in read if isinstance(n.ctx, ast.Load) and terminal(n.value) in noted.operands]
        return [edits.called_on(file, items[0], noted.variant)] if len(items) == 1 else ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Arrays that were others after nearly each batch that was looked at."""
        worst: dict[tuple[str, str], records.training.ChangedByReading] = {}
        for seen in rank.latest(records.training.ChangedByReading, "id", "attribute"):
            if seen.changed >= max(_BATCHES, seen.batches // 2):
                # Two datasets of one class, for training and for testing, are one fault.
                key = seen.dataset, seen.attribute
                worst[key] = max(seen, worst.get(key, seen), key=lambda one: one.changed)
        yield from (self._changed(rank, recording, seen) for seen in worst.values())

    def _changed(
        self, rank: kit.RankRecording, recording: kit.Recording, seen: records.training.ChangedByReading
    ) -> kit.Finding:
        made = _reads(recording, seen)
        return self.observed(
            rank,
            made or seen.read_at or seen.place,
            f"reading a batch changes `{seen.dataset}.{seen.attribute}`: {seen.changed} of {seen.batches} batches, all "
            "of them after the first loop over it, left other rows there than they had found",
            cause="an item is a view of the array, and something on its way writes in place (`-=`, `/=`, `x[...] =`, a "
            "method that ends in `_`): in each epoch that is done once more",
            advice="copy the item before it is changed: `.copy()` of an array, `.clone()` of a tensor; or write what "
            "is changed to a new one (`x = (x - mean) / std`)",
            measured=kit.Measured(steps=seen.batches),
            related=[self.beside("loop", "the loop that reads it", seen.place)] if seen.place is not None else [],
            about=kit.About("clone()" if seen.is_tensor else "copy()", (seen.attribute,)),
        )


def _reads(recording: kit.Recording, seen: records.training.ChangedByReading) -> kit.Location | None:
    """The first line of the item's function that has the attribute."""
    file = recording.model(seen.read_at.path) if seen.read_at is not None else None
    if file is None or seen.read_at is None:
        return None
    unit = file.unit_at(seen.read_at.line)
    lines = [line for line in file.lines_with(seen.attribute) if unit.first <= line <= unit.last]
    return kit.Location(path=seen.read_at.path, line=lines[0], function=unit.name) if lines else None
