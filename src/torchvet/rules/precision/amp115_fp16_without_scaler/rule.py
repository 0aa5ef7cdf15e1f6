"""AMP115: a model is trained under fp16 autocast with no loss scaling."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchvet.recording.records.autocast import UnscaledBackward
from torchvet.recording.records.training import OptimizerUse
from torchvet.rules.kit import Edit, Effect, Finding, Measured, RankRecording, Recording, Rule, SourceFile, Step
from torchvet.rules.precision._observed import also, totals
from torchvet.rules.precision.fixes.scaled_steps import with_scaler
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, targets_of, walk

_USED = re.compile(r"caler\w*(\[[^\]]*\])?\s*[.(]")
"""A scaler that is called or asked for something; `scaler=None` is neither."""
_SCALED_ELSEWHERE = ("scale_loss", "loss_scale", "ccelerat", "deepspeed", "lightning", "abric", "apex",
                     "amp.initialize", "fastai", "get_scale", "set_autocast")  # fmt: skip
"""Words of what scales the loss for the user, or by hand."""

_MOST, _SOME = 0.5, 0.05
"""Shares of results lost to underflow from which training is wrong, and from which it suffers."""


class Fp16WithoutScaler(Rule):
    """A model is trained under fp16 autocast with no loss scaling."""

    code = "AMP115"
    name = "fp16-without-scaler"
    summary = "Training under fp16 autocast without a gradient scaler: small gradients become zero"
    severity = "warning"
    words = ("autocast",)

    fix_changes_results = True
    needs_at_work = "autocast"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Unscaled backward passes through fp16, graded by what was lost for want of range."""
        if not any(use.steps for use in rank.all(OptimizerUse)):
            return
        for seen in totals(rank, UnscaledBackward, "place"):
            if seen.looked and seen.elements:
                yield self._observed(rank, seen)

    def _observed(self, rank: RankRecording, seen: UnscaledBackward) -> Finding:
        share = seen.lost / seen.elements
        zero = f"; {seen.zeros / seen.gradients:.1%} of the parameters' gradients are exactly zero"
        return self.observed(
            rank, severity="error" if share >= _MOST else "warning" if share >= _SOME else "info",
            place=seen.region,
            message=f"fp16 without a gradient scaler: {share:.1%} of what fp16 operators gave in {seen.looked} "
            f"backward passes is zero where float32 is not{zero if seen.gradients else ''}",
            cause="the loss goes backward as it is, and what is at most 3e-8 becomes 0 in fp16",
            advice="scale the loss with `torch.amp.GradScaler`, or use `dtype=torch.bfloat16` where the device has it",
            measured=Measured(steps=seen.calls),
            related=also("backward", "the loss goes backward", seen.place),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """An fp16 region in a training step whose backward and optimizer step nobody scales."""
        if file.mentions(*_SCALED_ELSEWHERE):
            return
        if file.mentions("caler") and (file.mentions("GradScaler") or _USED.search(file.text)):
            return
        for step in file.steps:
            backward = self._trained(step)
            for region, event, node in autocast.opened(file) if backward is not None else ():
                if _is_fp16(region) and self._belongs(file, step, event, node):
                    yield self._finding(file, event, backward, with_scaler(file, step, region.device))
            for call in self._own_region(step, backward) if backward is not None else ():
                yield self._finding(file, call, backward)

    @staticmethod
    def _trained(step: Step) -> Effect | None:
        """The backward of a step, where an optimizer is stepped after it and no framework is in between."""
        for backward in step.of("backward"):
            after = any(
                s.order > backward.order and not s.excludes(backward) and not s.through for s in step.of("step")
            )
            if not backward.through and not backward.scaled and after:
                return backward
        return None

    @staticmethod
    def _belongs(file: SourceFile, step: Step, event: Event, node: ast.With | ast.AsyncWith) -> bool:
        """Whether a region lies in the step and computes, with gradients, the loss of one of its backwards."""
        units = {id(b.event.unit): b for b in step.of("backward")}
        backward = units.get(id(event.unit))
        if file.gradients.enabled(event) != "yes":
            return False
        if backward is None:
            return any(_given_back(file, b, event, node) for b in step.of("backward"))
        if event.unit is step.unit and step.loop is not None and not (event.loop and event.loop.within(step.loop)):
            return False
        if event.index > backward.event.index or event.excludes(backward.event):
            return False
        names = set(backward.subject.replace("(", " ").replace(")", " ").replace(".", " ").split())
        inside = [b for name in names for b in event.unit.bindings.get(name, ())]
        last = node.end_lineno or node.lineno
        return any(node.lineno <= b.line <= last for b in inside)

    @staticmethod
    def _own_region(step: Step, backward: Effect) -> Iterator[Event]:
        """Calls, with gradients, of a module that enters an fp16 region by itself, whose output makes the loss."""
        event = backward.event
        file, unit = event.unit.file, event.unit
        regions = {n: autocast.of_forward(c) for n, c in file.classes.items()}
        if not any(r is not None and _is_fp16(r) for r in regions.values()):
            return
        made = [b.node for b in unit.bindings.get(backward.subject, ()) if b.index < event.index]
        used = {id(n): n for value in made for n in walk(value)}
        names = {n.id for n in used.values() if isinstance(n, ast.Name)}
        for call in [e for calls in unit.calls.values() for e in calls if e.index < event.index]:
            known = file.roles.class_of(call.call.func, unit)
            region = regions.get(known.name) if known is not None else None
            bound = {t.id for t in targets_of(call.statement) if isinstance(t, ast.Name)}
            if region is None or not _is_fp16(region) or not (id(call.node) in used or names & bound):
                continue
            if autocast.is_module_call(call) and file.gradients.enabled(call) == "yes":
                yield call

    def _finding(
        self, file: SourceFile, event: Event, backward: Effect | None, made: Sequence[Edit] = ()
    ) -> Finding:  # fmt: skip
        assert backward is not None
        return self.suspect(
            file, event, "fp16 autocast in training with no gradient scaler: gradients of at most 3e-8 become zero",
            cause=f"{backward.subject or 'the loss'} goes backward as it is, and no step is left out if it overflows",
            advice="scale the loss with `torch.amp.GradScaler`, or use `dtype=torch.bfloat16` where the device has it",
            edits=made,
            related=[self.also(file, "backward", backward.event, file.segment(backward.event.node))],
        )  # fmt: skip


def _is_fp16(region: autocast.Region) -> bool:
    return region.dtype == "fp16" and region.enabled != "no" and not region.framework


def _given_back(file: SourceFile, backward: Effect, event: Event, node: ast.With | ast.AsyncWith) -> bool:
    """Whether a function of this file makes the loss of a backward in a region of its own, and returns it."""
    unit, last = event.unit, node.end_lineno or node.lineno
    made = {n for n, bound in unit.bindings.items() if any(node.lineno <= b.line <= last for b in bound)}
    returned = [e for e in unit.events if isinstance(e.node, ast.Return)]
    names = [{n.id for n in walk(e.node) if isinstance(n, ast.Name)} for e in returned]
    if not returned or not all(n & made or node.lineno <= e.line <= last for n, e in zip(names, returned, strict=True)):
        return False
    caller = backward.event.unit
    given = [getattr(b.node, "value", None) for b in caller.bindings.get(backward.subject, ())]
    calls = [e for e in caller.calls.get(unit.name, ()) if e.index < backward.event.index]
    return any(call.node is value and file.callee(call) is unit for call in calls for value in given)
