"""AMP202: backward runs inside an autocast region."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import AutocastBackward
from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, Severity, SourceFile
from torchvet.rules.precision._observed import also, totals
from torchvet.rules.precision.fixes.regions import computes
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event


class BackwardInsideAutocast(Rule):
    """Backward runs inside an autocast region."""

    code = "AMP202"
    name = "backward-inside-autocast"
    summary = "Backward runs inside an autocast region"
    severity = "warning"
    words = ("autocast",)

    fix_changes_results = True
    needs_at_work = "autocast"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Backward calls in an active region, graded by what had run in float32 before them."""
        for seen in totals(rank, AutocastBackward, "place", "region"):
            yield self._observed(rank, seen)

    def _observed(self, rank: RankRecording, seen: AutocastBackward) -> Finding:
        harm = f"its {seen.products} matrix products looked at had run in {seen.dtype} anyway"
        if seen.full:
            harm = (f"{seen.full} of {seen.products} matrix products looked at had run in float32 and get their "
                    f"gradients in {seen.dtype}")  # fmt: skip
        return self.observed(
            rank, severity="warning" if seen.full else "info", place=seen.place,
            message=f"backward runs inside autocast: {harm}",
            cause="backward repeats the dtypes of the forward pass; an active region casts its operators once more",
            advice="end the `with` block after the loss and call backward outside it",
            related=also("region", "the region begins", seen.region),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A backward of a step whose innermost region is on, or whose call stands in one."""
        if not file.mentions("backward"):
            return
        for step in file.steps:
            for effect in step.of("backward"):
                region = self._region_around(effect)
                if region is not None:
                    yield self._finding(file, effect.event, region)

    @staticmethod
    def _region_around(effect: Effect) -> autocast_regions.Region | None:
        known = autocast_regions.state(effect.event)
        if known is None and effect.at is not effect.event:
            known = autocast_regions.state(effect.at)
        return None if known is None or known.enabled == "no" or known.framework else known

    def _finding(self, file: SourceFile, event: Event, region: autocast_regions.Region) -> Finding:
        mixed = self._has_full_island(event, region)
        severity: Severity = "warning" if mixed else "info"
        harm = "parts that ran in float32 get gradients in half precision" if mixed else "its operators are cast again"
        return self.suspect(
            file, event, f"{file.segment(event.node)} runs inside autocast: {harm}", severity=severity,
            cause="backward repeats the dtypes of the forward pass; an active region casts its operators once more",
            advice="end the `with` block after the loss and call backward outside it", safe=not mixed,
            edits=self._dedent(file, event, region),
        )  # fmt: skip

    @staticmethod
    def _has_full_island(event: Event, region: autocast_regions.Region) -> bool:
        """Whether something of the region runs in float32 on purpose."""
        inner = {id(w): w for e in autocast_regions.inside(event.unit, region) for w in e.context.withs}
        found = [autocast_regions.region(event.unit.file, w, event.unit) for w in inner.values()]
        return any(r is not None and r.enabled == "no" for r in found)

    @staticmethod
    def _dedent(file: SourceFile, event: Event, region: autocast_regions.Region) -> list[Edit]:
        """Take backward and what follows it out of the block; nothing where the lines are not simple."""
        known = autocast_regions.statement_of(event.unit, region)
        if known is None or event.statement not in known[1].body[1:] or len(known[1].items) != 1:
            return []
        block = known[1]
        tail = block.body[block.body.index(event.statement) :]
        if any(s.lineno != s.end_lineno or not isinstance(s, (ast.Expr, ast.Assign)) for s in tail):
            return []
        first, last = event.statement.lineno, tail[-1].lineno
        if any(first <= e.line <= last and computes(file, e) for e in event.unit.events):
            return []  # another forward pass, which belongs into a region
        depth = event.statement.col_offset - block.col_offset
        lines = [(n, file.lines[n - 1]) for n in range(first, last + 1) if file.lines[n - 1].strip()]
        if any(not text[: event.statement.col_offset].isspace() for _, text in lines):
            return []
        return [Edit(path=file.path, start=(n, 1), end=(n, depth + 1), text="") for n, _ in lines]
