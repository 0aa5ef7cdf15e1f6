"""AMP203: one autocast region holds the whole training loop, so that its copies of the weights go stale."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Iterator, RankRecording, Recording, SourceFile, Step, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.regions import into_the_loop
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event


class AutocastAroundLoop(AutocastRule):
    """One autocast region holds the training loop: its half copies of the weights go stale."""

    severity = "error"
    cause = "autocast keeps each weight's half copy until the outermost region ends, and the loop lies in it"
    advice = "open the region inside the loop, around forward pass and loss only"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Layers that read old copies after several optimizer steps within one region."""
        for seen in rank.latest(records.autocast.StaleWeights, "region", "change", "kind"):
            if seen.kind == "step" and seen.changes > 1 and seen.stale:
                yield self.seen_at(
                    rank,
                    seen.region,
                    f"after {seen.changes} optimizer steps within this autocast region layers still read the weights' "
                    f"first half copies, off by up to {seen.deviation:.2g} of the largest weight",
                    [
                        ("stepped", "the weights change here", seen.change),
                        ("stale", f"{seen.module} reads an old copy", seen.forward),
                    ],
                    steps=seen.changes,
                )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A step with an optimizer whose loop lies within a region that keeps its copies."""
        for step in file.steps:
            changes = step.of("step", "scaler_step")
            if step.loop is not None and changes and not _has_own_precision(step):
                for at, region in _regions_around(file, step):
                    # Without the cache every forward pass casts the weights anew, and none is stale.
                    if region.cached and region.enabled != "no":
                        yield self._finding(file, step, at, region, changes[0].event)

    def _finding(self, file: SourceFile, step: Step, at: Event, region: autocast.Region, change: Event) -> Finding:
        return self.suspect_at(
            at,
            f"{file.segment(change.node)} changes weights whose half copies this autocast region keeps until its end: "
            "every step after the first runs on stale weights",
            node=region.node,
            severity=autocast.severity_of_stale_weights(region, step.unit),
            edits=into_the_loop(file, step, at, region),
            related={"stepped": change},
        )


def _has_own_precision(step: Step) -> bool:
    """Whether a region in the loop is off: the forward pass may be in there."""
    withs = (w for e in step.unit.events if step.repeats(e) for w in e.context.withs if _is_after(w, step))
    return autocast.are_some_off(step.unit, withs)


def _regions_around(file: SourceFile, step: Step) -> Iterator[tuple[Event, autocast.Region]]:
    """Regions of the step's unit around its loop, else those around the calls of the unit."""
    inside = next((e for e in step.unit.events if step.repeats(e)), None)
    if inside is None:
        return
    own = [r for r in autocast.regions(inside) if not _is_after(r.node, step)]
    around = [(inside, own)] if own else [(caller, autocast.regions(caller)) for caller in file.callers(step.unit)]
    yield from ((at, found[0]) for at, found in around if found)


def _is_after(node: ast.expr, step: Step) -> bool:
    """Whether an expression stands after the head of the step's loop; decorators and outer `with`s do not."""
    head = step.loop.node if step.loop is not None else node
    return (node.lineno, node.col_offset) > (head.lineno, head.col_offset)  # type: ignore[attr-defined]
