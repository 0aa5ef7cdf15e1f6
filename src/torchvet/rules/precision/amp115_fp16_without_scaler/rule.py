"""AMP115: a model is trained under fp16 autocast with no loss scaling."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.scaled_steps import with_scaler
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.rules.shared.order_rule import OrderRule, Pass
from torchvet.rules.shared.training_loops import is_test
from torchvet.source.model import Event, holds, name_set, names_in, target_names, terminal

_USED = re.compile(r"caler\w*(\[[^\]]*\])?\s*[.(]")
"""A scaler that is called or asked for something; `scaler=None` is neither."""
_SCALED_ELSEWHERE = name_set(
    "scale_loss loss_scale ccelerat deepspeed lightning abric apex amp.initialize fastai get_scale set_autocast"
)
"""Words of what scales the loss for the user, or by hand."""
_TRIAL = 10
"""Turns of a loop up to which it is a trial."""
_MOST, _SOME = 0.5, 0.05
"""Shares of results lost to underflow from which training is wrong, and from which it suffers."""


class Fp16WithoutScaler(OrderRule[Pass], AutocastRule):
    """Training under fp16 autocast without a gradient scaler: small gradients become zero."""

    severity = "warning"
    advice = "scale the loss with `torch.amp.GradScaler`, or use `dtype=torch.bfloat16` where the device has it"
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Unscaled backward passes through fp16, graded by what was lost for want of range."""
        # A backward without an optimizer trains nothing that underflow could harm.
        if any(use.steps for use in rank.all(records.optimizers.OptimizerUse)):
            for seen in rank.latest(records.autocast.UnscaledBackward, "place"):
                if seen.looked and seen.elements:
                    yield self._observed(rank, seen)

    def _observed(self, rank: RankRecording, seen: records.autocast.UnscaledBackward) -> Finding:
        share = seen.lost / seen.elements
        zero = ""
        if seen.gradients:
            zero = f"; {seen.zeros / seen.gradients:.1%} of the parameters' gradients are exactly zero"
        return self.seen_at(
            rank,
            seen.region,
            f"fp16 without a gradient scaler: {share:.1%} of what fp16 operators gave in {seen.looked} "
            f"backward passes is zero where float32 is not{zero}",
            [("backward", "the loss goes backward", seen.place)],
            cause="the loss goes backward as it is, and what is at most 3e-8 becomes 0 in fp16",
            severity="error" if share >= _MOST else "warning" if share >= _SOME else "info",
            steps=seen.calls,
        )

    def passes(self, file: SourceFile) -> list[Pass]:
        """The steps of files with an fp16 region and nothing that scales losses."""
        used = file.mentions("caler") and (file.mentions("GradScaler") or _USED.search(file.text))
        return [] if used or file.mentions(*_SCALED_ELSEWHERE) else [Pass(step) for step in file.steps]

    def in_pass(self, one: Pass) -> Iterator[Finding]:
        """An fp16 region in a training step whose backward and optimizer step nobody scales."""
        backward = _trained(one)
        if backward is None or _is_trial(one):
            return
        for region, event, node in autocast.opened(one.file):
            if _is_fp16(region) and _belongs(one, event, node):
                yield self._finding(event, backward, with_scaler(one.file, one, region.device))
        for call in _own_region(one.file, backward.event, backward.subject):
            yield self._finding(call, backward)

    def _finding(self, event: Event, backward: Effect, made: Sequence[Edit] = ()) -> Finding:
        return self.suspect_at(
            event,
            "fp16 autocast in training with no gradient scaler: gradients of at most 3e-8 become zero",
            cause=f"{backward.subject or 'the loss'} goes backward as it is, and no step is left out if it overflows",
            edits=made,
            severity="info" if is_test(event.unit.file) else None,
            related={"backward": backward},
        )


def _is_fp16(region: autocast.Region | None) -> bool:
    return region is not None and region.dtype == "fp16" and region.may_be_on


def _is_trial(one: Pass) -> bool:
    """Whether the loop has a few turns by its text: a test or a measurement, which trains nothing."""
    over = one.loop.node.iter if one.loop is not None and isinstance(one.loop.node, ast.For) else None
    if not isinstance(over, ast.Call) or terminal(over) != "range" or len(over.args) != 1:
        return False
    turns = autocast.constants(one.file, over.args[0], one.unit)
    return bool(turns) and all(isinstance(number, int) and number <= _TRIAL for number in turns)


def _trained(one: Pass) -> Effect | None:
    """The backward of a step, where an optimizer is stepped after it and no framework is in between."""
    for backward in one.backwards:
        steps = (s for s in one.of("step") if s.order > backward.order and not s.excludes(backward))
        if not backward.through and not backward.scaled and any(not s.through for s in steps):
            return backward
    return None


def _belongs(one: Pass, event: Event, node: ast.With | ast.AsyncWith) -> bool:
    """Whether a region lies in the step and computes, with gradients, the loss of one of its backwards."""
    units = {id(b.event.unit): b for b in one.backwards}
    backward = units.get(id(event.unit))
    if one.file.gradients.enabled(event) != "yes":
        return False
    if backward is None:
        return any(_given_back(one.file, b, event, node) for b in one.backwards)
    if event.unit is one.unit and one.loop is not None and not (event.loop and event.loop.within(one.loop)):
        return False
    if event.index > backward.event.index or event.excludes(backward.event):
        return False
    names = re.split(r"[ ().]+", backward.subject)
    return any(b.line in _lines(node) for name in names for b in event.unit.bindings.get(name, ()))


def _lines(node: ast.With | ast.AsyncWith) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _given_back(file: SourceFile, backward: Effect, event: Event, node: ast.With | ast.AsyncWith) -> bool:
    """Whether a function of this file makes the loss of a backward in a region of its own, and returns it."""
    unit, lines = event.unit, _lines(node)
    made = {n for n, bound in unit.bindings.items() if any(b.line in lines for b in bound)}
    if not unit.returns or not all(names_in(e.node) & made or e.line in lines for e in unit.returns):
        return False
    caller = backward.event.unit
    losses = {id(getattr(b.node, "value", None)) for b in caller.bindings.get(backward.subject, ())}
    calls = (e for e in caller.calls.get(unit.name, ()) if e.index < backward.event.index)
    return any(id(call.node) in losses and file.callee(call) is unit for call in calls)


def _own_region(file: SourceFile, backward: Event, subject: str) -> Iterator[Event]:
    """Calls, with gradients, of a module that enters an fp16 region by itself, whose output makes the loss."""
    unit = backward.unit
    classes = _entering(file)
    made = [b.node for b in unit.bindings.get(subject, ()) if b.index < backward.index] if classes else []
    for call in (e for calls in unit.calls.values() for e in calls if made and e.index < backward.index):
        known = file.roles.class_of(call.call.func, unit)
        if known is None or known.name not in classes or not _goes_into(call, made):
            continue
        if autocast.is_module_call(call) and file.gradients.enabled(call) == "yes":
            yield call


def _entering(file: SourceFile) -> set[str]:
    """The modules of a file whose `forward` opens an fp16 region."""
    return {n for n, c in file.classes.items() if _is_fp16(autocast.of_forward(c))}


def _goes_into(call: Event, made: list[ast.AST]) -> bool:
    """Whether one of some bindings reads a call's result: where it is called, or by a name that it is bound to."""
    bound = target_names(call.statement)
    return any(holds(node, call.node) or names_in(node) & bound for node in made)
