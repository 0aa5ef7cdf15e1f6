"""AMP108: a loss is multiplied by the loss scale twice."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Iterator, Recording, SourceFile, records
from torchvet.rules.precision._scaler_runs import Report, ScalerRule, of, smaller
from torchvet.rules.precision._scaling import is_scale_call, returned, run_by, scale_calls
from torchvet.rules.shared.order_rule import deeper
from torchvet.source.model import Event, Unit, edits, value_for


class LossScaledTwice(ScalerRule):
    """A loss that is scaled already is scaled again."""

    severity = "error"
    words = ("caler",)
    kinds = ("scaled-twice",)
    fix_changes_results = True

    def of_fault(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Gradients of a loss that was scaled more than once, divided once."""
        left, effect = fault.count - fault.applied, f"and the others applied gradients up to {smaller(fault.factor)}"
        text = (
            f"{of(left, fault.count)} were left out, {effect}" if fault.applied else f"all {left:,} steps were left out"
        )
        return Report(
            f"what is scaled here is scaled already: {text}",
            severity="error",
            cause="scale() multiplies by the scale each time, and scaler.step divides once",
            advice="scale the loss once, right where its backward begins",
            role="backward",
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`scale` of what is, or stands for, a scaled loss."""
        for event in scale_calls(file):
            first = _scaled_before(event.call.args[0], event) if len(event.call.args) == 1 else None
            if first is not None:
                yield self._finding(file, event, first)

    def _finding(self, file: SourceFile, event: Event, first: ast.AST) -> Finding:
        given = event.call.args[0]
        text = file.segment(given)
        return self.suspect_at(
            event,
            f"{text} is scaled already: {file.segment(event.node)} multiplies it by the scale again",
            cause=f"{file.segment(first)} has multiplied it once, and step() divides the gradients by the scale once",
            advice=f"use `{text}` as it is",
            edits=[edits.replace(file, event.call, text)] if isinstance(given, (ast.Name, ast.Call)) else (),
        )


def _scaled_before(node: ast.expr, event: Event) -> ast.AST | None:
    """The call that scaled an expression before."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div, ast.Add)):
        return _scaled_before(node.left, event) or _scaled_before(node.right, event)
    if isinstance(node, ast.Call):
        return node if is_scale_call(node, event.unit) else None
    if not isinstance(node, ast.Name):
        return None
    binding = event.binding_of(node.id)
    # Bound in a deeper loop, the name may not have been bound at all.
    if binding is None or not isinstance(binding.node, ast.Assign) or deeper(binding.loop, event.loop):
        return None
    target = binding.node.targets[0]
    value = value_for(binding.node, target) if isinstance(target, ast.Name) else None
    return value if value is not None and _is_scaled(value, event.unit) else None


def _is_scaled(value: ast.expr, unit: Unit) -> bool:
    """Whether a value is `scaler.scale(…)`, or what a function of this file gives that returns nothing else."""
    callee = run_by(value, unit)
    if is_scale_call(value, unit) or callee is None:
        return is_scale_call(value, unit)
    results = [result for result, _ in returned(callee)]
    return bool(results) and all(r is not None and is_scale_call(r, callee) for r in results)
