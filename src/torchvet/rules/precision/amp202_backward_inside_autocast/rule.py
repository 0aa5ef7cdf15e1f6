"""AMP202: backward runs inside an autocast region."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.regions import computes
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, edits


class BackwardInsideAutocast(AutocastRule):
    """Backward runs inside an autocast region."""

    severity = "warning"
    cause = "backward repeats the dtypes of the forward pass; an active region casts its operators once more"
    advice = "end the `with` block after the loss and call backward outside it"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Backward calls in an active region, graded by what had run in float32 before them."""
        for seen in rank.latest(records.autocast.AutocastBackward, "place", "region"):
            harm = f"its {seen.products} matrix products looked at had run in {seen.dtype} anyway"
            mixed = (
                f"{seen.full} of {seen.products} matrix products looked at had run in float32 and get their gradients "
                f"in {seen.dtype}"
            )
            yield self.seen_at(
                rank,
                seen.place,
                f"backward runs inside autocast: {mixed if seen.full else harm}",
                [("region", "the region begins", seen.region)],
                # Autograd repeats the dtypes of the forward pass: only what ran in float32 is changed by the region.
                severity="warning" if seen.full else "info",
            )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A backward of a step whose innermost region is on, or whose call stands in one."""
        for effect in [e for step in file.steps for e in step.of("backward")]:
            region = autocast.state(effect.event) or autocast.state(effect.at)
            if region is not None and region.may_be_on:
                yield self._finding(file, effect.event, region)

    def _finding(self, file: SourceFile, event: Event, region: autocast.Region) -> Finding:
        mixed = _has_full_island(event, region)
        harm = "parts that ran in float32 get gradients in half precision" if mixed else "its operators are cast again"
        return self.suspect_at(
            event,
            f"{file.segment(event.node)} runs inside autocast: {harm}",
            severity="warning" if mixed else "info",
            edits=_dedented(file, event, region),
        )


def _has_full_island(event: Event, region: autocast.Region) -> bool:
    """Whether something of the region runs in float32 on purpose."""
    withs = (w for e in autocast.inside(event.unit, region) for w in e.context.withs)
    return autocast.are_some_off(event.unit, withs)


def _lines_without_forward(file: SourceFile, event: Event, tail: Sequence[ast.stmt]) -> Sequence[int]:
    """The lines of a backward and of what follows it; none where a statement is not simple, or runs a forward pass,
    which belongs into a region."""
    if any(not edits.on_one_line(s) or not isinstance(s, (ast.Expr, ast.Assign)) for s in tail):
        return ()
    numbers = range(tail[0].lineno, tail[-1].lineno + 1)
    return () if any(e.line in numbers and computes(file, e) for e in event.unit.events) else numbers


def _dedented(file: SourceFile, event: Event, region: autocast.Region) -> list[Edit]:
    """Take backward and what follows it out of the block; nothing where the lines are not simple."""
    block = autocast.statement_of(event.unit, region)
    if block is None or event.statement not in block.body[1:] or len(block.items) != 1:
        return []
    depth, margin = event.statement.col_offset - block.col_offset, edits.margin(file, event.statement)
    numbers = _lines_without_forward(file, event, block.body[block.body.index(event.statement) :])
    lines = [n for n in numbers if file.lines[n - 1].strip()]
    if margin.strip() or any(not file.lines[n - 1].startswith(margin) for n in lines):
        return []
    return [Edit(path=file.path, start=(n, 1), end=(n, depth + 1), text="") for n in lines]
