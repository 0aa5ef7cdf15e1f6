"""AMP204: weights change between two forward passes of one autocast region, which keeps copies of the old ones."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import StaleWeights
from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.precision._observed import also, totals
from torchvet.rules.precision.fixes.region_splits import around_calls, around_changes
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event, Unit, receiver, terminal, walk
from torchvet.source.model.steps import text_of

_SWAPS = ("load_state_dict", "copy_to", "apply_shadow", "restore", "swap_parameters")
"""Calls that put other values into a model's weights."""
_STEPS = ("step",)


class WeightsChangedInsideAutocast(Rule):
    """Weights change between two forward passes of one autocast region, which keeps copies of the old ones."""

    code = "AMP204"
    name = "weights-changed-inside-autocast"
    summary = "Weights change between two forward passes of one autocast region"
    severity = "error"
    words = ("autocast",)

    fix_changes_results = True
    needs_at_work = "autocast"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The region ended before the weights change, and opened anew after that."""
        return around_calls(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Layers that read old copies after a change of their weights; steps again and again are AMP203's."""
        for seen in totals(rank, StaleWeights, "region", "change", "kind"):
            if seen.stale and (seen.kind != "step" or seen.changes == 1):
                yield self._observed(rank, seen)

    def _observed(self, rank: RankRecording, seen: StaleWeights) -> Finding:
        how = {"step": "an optimizer step", "load": "load_state_dict", "other": "a change of the weights"}[seen.kind]
        return self.observed(
            rank, severity="error", place=seen.change or seen.forward,
            message=f"after {how} within an autocast region {seen.stale} of {seen.looked} layers looked at still read "
            f"the half copies of before, off by up to {seen.deviation:.2g} of the largest weight",
            cause="autocast keeps the half copy of each weight until the outermost region ends",
            advice="give each forward pass a region of its own, and change weights outside",
            related=[*also("stale", f"{seen.module} reads an old copy", seen.forward),
                     *also("region", "the region begins", seen.region)],
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A module called before and after a change of its weights, all within one region."""
        if file.mentions("clear_autocast_cache"):
            return
        for region, at, block in autocast_regions.opened(file):
            if region.enabled == "no" or not region.cached:
                continue
            events = [e for e in autocast_regions.inside(at.unit, region) if e.node.__class__ is ast.Call]
            calls = [e for e in events if autocast_regions.is_module_call(e)]
            for change in events:
                found = self._stale(file, change, calls, block)
                if found is not None:
                    yield self._finding(file, change, found, at, region)

    def _stale(self, file: SourceFile, change: Event, calls: list[Event], block: ast.AST) -> tuple[Event, Event] | None:
        """The forward passes before and after a change of the same module's weights."""
        names = self._changed(file, change, {text_of(c.call.func) for c in calls})
        if not names:
            return None
        mine = [c for c in calls if text_of(c.call.func) in names and not c.excludes(change)]
        before = [c for c in mine if c.index < change.index]
        after = [c for c in mine if c.index > change.index and not any(c.excludes(b) for b in before)]
        if before and after:
            return before[-1], after[0]
        return self._in_loop(change, after, block)

    @staticmethod
    def _in_loop(change: Event, after: list[Event], block: ast.AST) -> tuple[Event, Event] | None:
        """`for state in states: model.load_state_dict(state); model(x)` within one region."""
        loop = change.loop
        if loop is None or terminal(change.node) in _STEPS:  # steps in loops are AMP203's
            return None
        within = block.lineno <= loop.node.lineno  # type: ignore[attr-defined]
        again = [c for c in after if c.inside(loop)]
        return (again[0], again[0]) if within and again else None

    def _changed(self, file: SourceFile, change: Event, called: set[str]) -> set[str]:
        """Which of the called modules an event gives new weights."""
        name, on = terminal(change.node), receiver(change.call)
        if on is None:
            return set()
        if name == "step":
            roles = file.roles
            scaler = roles.is_a("scaler", on, change.unit)
            optimizer = change.call.args[0] if scaler and change.call.args else on
            if scaler or roles.is_a("optimizer", on, change.unit):
                return self._stepped(file, optimizer, change.unit, called)
            return set()
        if name not in _SWAPS:
            return set()
        if name == "load_state_dict":
            return {text_of(on)} & called
        given = {text_of(receiver(a)) if isinstance(a, ast.Call) else text_of(a) for a in change.call.args}
        return given & called or (called if len(called) == 1 and not given else set())

    @staticmethod
    def _stepped(file: SourceFile, optimizer: ast.expr, unit: Unit, called: set[str]) -> set[str]:
        """The called modules whose parameters an optimizer was given; the only one where that is not known."""
        owners: set[str] = set()
        for value, _ in file.roles.values(optimizer, unit):
            found = [n for n in walk(value) if isinstance(n, ast.Call) and terminal(n) == "parameters"]
            owners |= {text_of(receiver(n)) for n in found}
        if not owners:
            return called if len(called) == 1 else set()
        return {c for c in called if any(c == o or c.startswith(o + ".") for o in owners)}

    def _finding(self, file: SourceFile, change: Event, calls: tuple[Event, Event], at: Event,
                 region: autocast_regions.Region) -> Finding:  # fmt: skip
        before, after = calls
        model = file.segment(after.call.func)
        return self.suspect(
            file, change, f"{file.segment(change.node)} changes the weights of {model}, and {model}(…) in line "
            f"{after.line} still uses the half copies that this autocast region made before",
            cause="autocast keeps the half copy of each weight until the outermost region ends",
            severity="error" if region.enabled == "yes" else "warning",
            advice="give each forward pass a region of its own, and change weights outside",
            edits=around_changes(file, region, change),
            related=[self.also(file, "copied", before, file.segment(before.node)),
                     self.also(file, "stale", after, file.segment(after.node)),
                     self.also(file, "region", at, "the region begins")],
        )  # fmt: skip
