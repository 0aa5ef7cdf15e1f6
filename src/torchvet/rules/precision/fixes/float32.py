"""Edits that bring half tensors back to float32 on a line where a run has seen them computed with."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import may_be_tensor, with_method
from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, events_at
from torchvet.source.model import Event, edits, receiver, terminal, walk

_HALVES = ("half", "bfloat16")


def loss_in_float32(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """What the one loss on the line is given: the first argument in float32, and no other made half for its sake."""
    calls = [e for e in events_at(file, finding) if isinstance(e.node, ast.Call) and e.call.args and _is_loss(file, e)]
    if len(calls) != 1:
        return ()
    first, *others = calls[0].call.args
    made = [*_in_float32(file, first)]
    for other in others:
        if isinstance(other, ast.Call) and terminal(other) in _HALVES and not other.args:
            made += _in_float32(file, other)
    return made


def _is_loss(file: SourceFile, event: Event) -> bool:
    dotted = file.dotted(event.call.func)
    if dotted.startswith("torch.nn.functional."):
        return dotted.endswith(("_loss", "cross_entropy", "cross_entropy_with_logits", "kl_div"))
    return bool(file.roles.of(event.call.func, event.unit) & {"criterion"})


def _in_float32(file: SourceFile, node: ast.expr) -> Sequence[Edit]:
    """`x.float()` for `x`, and for `x.half()`."""
    inner = receiver(node) if isinstance(node, ast.Call) and terminal(node) in _HALVES and not node.args else None
    if inner is None:
        return with_method(file, node, "float()")
    return [edits.replace(file, node, f"{file.segment(inner)}.float()")] if node.lineno == node.end_lineno else ()


def made_before_in_float32(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """The names on the line that were bound before the region that is off: each in float32."""
    region = next((r.line for r in finding.related if r.role == "region" and r.path == file.path), None)
    at = finding.location
    if region is None or at is None or at.path != file.path or not events_at(file, finding):
        return ()
    unit = file.unit_at(at.line)
    statements = {id(e.statement): e.statement for e in events_at(file, finding)}.values()
    called = {id(n.func) for s in statements for n in walk(s) if isinstance(n, ast.Call)}
    made: list[Edit] = []
    for node in (n for s in statements for n in walk(s)):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or node.lineno != at.line:
            continue
        before = [e for e in unit.bindings.get(node.id, ()) if e.line < region]
        within = [e for e in unit.bindings.get(node.id, ()) if region <= e.line < at.line]
        if before and not within and id(node) not in called and _is_output(file, before[-1], node):
            made += with_method(file, node, "float()")
    return made


def _is_output(file: SourceFile, binding: Event, node: ast.Name) -> bool:
    """Whether a name was bound to a result: no module, and no constant."""
    value = getattr(binding.node, "value", None)
    module = file.roles.of(node, binding.unit) & {"module", "optimizer", "scaler", "loader"}
    return isinstance(value, ast.expr) and may_be_tensor(value) and not module
