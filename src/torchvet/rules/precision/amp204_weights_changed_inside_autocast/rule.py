"""AMP204: weights change between two forward passes of one autocast region, which keeps copies of the old ones."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.region_splits import around_calls, around_changes
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Loop, Unit, calls_in, receiver, terminal
from torchvet.source.model.steps import text_of

_SWAPS = ("load_state_dict", "copy_to", "apply_shadow", "restore", "swap_parameters")
"""Calls that put other values into a model's weights."""
_KINDS = {"step": "an optimizer step", "load": "load_state_dict", "other": "a change of the weights"}


class WeightsChangedInsideAutocast(AutocastRule):
    """Weights change between two forward passes of one autocast region."""

    severity = "error"
    cause = "autocast keeps the half copy of each weight until the outermost region ends"
    advice = "give each forward pass a region of its own, and change weights outside"
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The region ended before the weights change, and opened anew after that."""
        return around_calls(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Layers that read old copies after a change of their weights; steps again and again are AMP203's."""
        for seen in rank.latest(records.autocast.StaleWeights, "region", "change", "kind"):
            if seen.stale and (seen.kind != "step" or seen.changes == 1):
                yield self.seen_at(
                    rank,
                    seen.change or seen.forward,
                    f"after {_KINDS[seen.kind]} within an autocast region {seen.stale} of {seen.looked} layers looked "
                    f"at still read the half copies of before, off by up to {seen.deviation:.2g} of the largest weight",
                    [
                        ("stale", f"{seen.module} reads an old copy", seen.forward),
                        ("region", "the region begins", seen.region),
                    ],
                )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A module called before and after a change of its weights, all within one region."""
        if file.mentions("clear_autocast_cache"):
            return
        for region, at, block in autocast.opened(file):
            # With `cache_enabled=False` each forward pass casts the weights anew.
            if region.enabled == "no" or not region.cached:
                continue
            calls = autocast.module_calls(at.unit, region)
            for change in autocast.calls_inside(at.unit, region):
                found = _stale(file, change, calls, block)
                if found is not None:
                    yield self._finding(file, change, *found, at, region)

    def _finding(
        self, file: SourceFile, change: Event, before: Event, after: Event, at: Event, region: autocast.Region
    ) -> Finding:
        model = file.segment(after.call.func)
        return self.suspect_at(
            change,
            f"{file.segment(change.node)} changes the weights of {model}, and {model}(…) in line {after.line} still "
            "uses the half copies that this autocast region made before",
            severity=autocast.severity_of_stale_weights(region, at.unit),
            edits=around_changes(file, region, change),
            related={"copied": before, "stale": after, "region": (at, "the region begins")},
        )


def _stale(file: SourceFile, change: Event, calls: list[Event], block: ast.stmt) -> tuple[Event, Event] | None:
    """The forward passes before and after a change of the same module's weights."""
    loop = _loop_within(block, change)
    if loop is not None and terminal(change.node) == "step":
        return None  # steps in a loop are AMP203's
    names = _changed(file, change, {text_of(c.call.func) for c in calls})
    mine = [c for c in calls if text_of(c.call.func) in names and not c.excludes(change)]
    before = [c for c in mine if c.index < change.index]
    after = [c for c in mine if c.index > change.index and not any(c.excludes(b) for b in before)]
    if before and after:
        return before[-1], after[0]
    return _in_the_loop(loop, after)


def _loop_within(block: ast.stmt, change: Event) -> Loop | None:
    """The loop around a change that lies in a region's block itself."""
    return change.loop if change.loop is not None and block.lineno <= change.loop.first else None


def _in_the_loop(loop: Loop | None, after: list[Event]) -> tuple[Event, Event] | None:
    """`for state in states: model.load_state_dict(state); model(x)` within one region."""
    again = [c for c in after if c.inside(loop)] if loop is not None else []
    return (again[0], again[0]) if again else None


def _changed(file: SourceFile, change: Event, called: set[str]) -> set[str]:
    """Which of the called modules an event gives new weights."""
    name, on = terminal(change.node), receiver(change.call)
    if on is not None and name == "step":
        return _changed_by_step(file, change, on, called)
    if on is None or name not in _SWAPS:
        return set()
    if name == "load_state_dict":
        return {text_of(on)} & called
    # `ema.copy_to(model.parameters())`: the module is what the parameters are asked of.
    given = {text_of(receiver(a)) if isinstance(a, ast.Call) else text_of(a) for a in change.call.args}
    return given & called or (called if len(called) == 1 and not given else set())


def _changed_by_step(file: SourceFile, step: Event, on: ast.expr, called: set[str]) -> set[str]:
    scaler = file.roles.is_a("scaler", on, step.unit)
    optimizer = step.call.args[0] if scaler and step.call.args else on
    steps = scaler or file.roles.is_a("optimizer", on, step.unit)
    return _stepped(file, optimizer, step.unit, called) if steps else set()


def _stepped(file: SourceFile, optimizer: ast.expr, unit: Unit, called: set[str]) -> set[str]:
    """The called modules whose parameters an optimizer was given; the only one where that is not known."""
    calls = (call for value, _ in file.roles.values(optimizer, unit) for call in calls_in(value))
    owners = {text_of(receiver(call)) for call in calls if terminal(call) == "parameters"}
    if not owners:
        return called if len(called) == 1 else set()
    return {c for c in called if any(c == o or c.startswith(o + ".") for o in owners)}
