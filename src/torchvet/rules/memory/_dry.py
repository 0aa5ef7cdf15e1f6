"""The common part of findings from dry runs: what a step took on the simulated card, in parts."""

from __future__ import annotations

from typing import NamedTuple

from torchvet.rules.kit import Findings, RankRecording, Recording, Rule, Severity, records

SMALL = 64 << 20
"""Bytes below which a peak is no one's trouble, whatever it consists of."""


class Sized(NamedTuple):
    """A rank's own steps and the parts of their peak, bytes by category."""

    rank: RankRecording
    size: records.dry.DrySize
    parts: dict[str, int]

    @property
    def own_batch(self) -> records.dry.DryBatch | None:
        """The step with the program's own batch that was not cut short."""
        return next(
            (b for b in self.rank.all(records.dry.DryBatch) if b.batch == self.size.batch and not b.bounded), None
        )

    @property
    def severity(self) -> Severity:
        """A warning where memory ran out."""
        return "warning" if self.size.ran_out else "info"

    def share(self, category: str) -> float:
        """A category's share of the peak."""
        whole = sum(self.parts.values())
        return self.parts.get(category, 0) / whole if whole else 0.0


class DryRule(Rule):
    """A rule about the peak of a step that a dry run has sized."""

    severity = "info"
    runs_on = "cuda"
    found_with = ("run", "--simulate-gpu", "24GiB", "--dry")

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """The rule's findings, where the rank was sized and its peak is worth a word."""
        size = rank.last(records.dry.DrySize)
        # Of an evaluation no graph and no gradients are expected.
        if size is not None and size.kind == "training" and size.allocated >= SMALL:
            yield from self.in_step(Sized(rank, size, {p.category: p.bytes for p in rank.all(records.dry.DryPart)}))

    def in_step(self, one: Sized) -> Findings:
        """Yield what a step shows."""
        raise NotImplementedError
