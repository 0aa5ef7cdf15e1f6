"""AMP108: a loss is multiplied by the loss scale twice."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.source.model import Event, Unit, edits, terminal, value_for


class LossScaledTwice(Rule):
    """A loss is multiplied by the loss scale twice."""

    code = "AMP108"
    name = "loss-scaled-twice"
    summary = "A loss that is scaled already is scaled again"
    severity = "error"
    words = ("caler",)

    fix_changes_results = True
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Gradients of a loss that was scaled more than once, divided once."""
        for fault in runs.faults(rank, "scaled-twice"):
            left = fault.count - fault.applied
            yield runs.seen(
                self, rank, fault, f"what is scaled here is scaled already: {runs.of(left, fault.count)} were left "
                f"out, and the others applied gradients up to {runs.smaller(fault.factor)}"
                if fault.applied else f"what is scaled here is scaled already: all {left:,} steps were left out",
                severity="error", role="backward",
                cause="scale() multiplies by the scale each time, and scaler.step divides once",
                advice="scale the loss once, right where its backward begins",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`scale` of what is, or stands for, a scaled loss."""
        for event in file.calls("scale"):
            if scaling.is_scale_call(event.node, event.unit) and len(event.call.args) == 1:
                first = self._scaled_before(event.call.args[0], event)
                if first is not None:
                    yield self._finding(file, event, first)

    def _scaled_before(self, node: ast.expr, event: Event) -> ast.AST | None:
        """The call that scaled an expression before."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.Add)):
            return self._scaled_before(node.left, event) or self._scaled_before(node.right, event)
        if isinstance(node, ast.Call):
            return node if scaling.is_scale_call(node, event.unit) else None
        if not isinstance(node, ast.Name):
            return None
        before = [b for b in event.unit.bindings.get(node.id, ()) if b.index < event.index and not b.excludes(event)]
        if not before or not event.sure_after(before[-1]) or not isinstance(before[-1].node, ast.Assign):
            return None
        target = before[-1].node.targets[0]
        value = value_for(before[-1].node, target) if isinstance(target, ast.Name) else None
        if value is None or scaling.deeper(before[-1].loop, event.loop):
            return None
        return value if self._is_scaled(value, event.unit) else None

    @staticmethod
    def _is_scaled(value: ast.expr, unit: Unit) -> bool:
        """Whether a value is `scaler.scale(…)`, or what a function of this file gives that returns nothing else."""
        if scaling.is_scale_call(value, unit):
            return True
        call = next((e for e in unit.calls.get(terminal(value), ()) if e.node is value), None)
        callee = unit.file.callee(call) if call is not None else None
        if callee is None:
            return False
        returned = [e.node.value for e in callee.events if isinstance(e.node, ast.Return)]
        return bool(returned) and all(r is not None and scaling.is_scale_call(r, callee) for r in returned)

    def _finding(self, file: SourceFile, event: Event, first: ast.AST) -> Finding:
        given = event.call.args[0]
        text = file.segment(given)
        return self.suspect(
            file, event, f"{text} is scaled already: {file.segment(event.node)} multiplies it by the scale again",
            cause=f"{file.segment(first)} has multiplied it once, and step() divides the gradients by the scale once",
            advice=f"use `{text}` as it is", safe=True, edits=self._edits(file, event, given),
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, event: Event, given: ast.expr) -> list[Edit]:
        if not isinstance(given, (ast.Name, ast.Call)):
            return []
        return [edits.replace(file, event.call, file.segment(given))]
