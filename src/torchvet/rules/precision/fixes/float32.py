"""Edits that bring half tensors back to float32 on a line where a run has seen them computed with."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, events_at, may_be_tensor, with_method
from torchvet.rules.precision.fixes.moves import line_of, related_lines
from torchvet.source.model import Event, edits, is_call, receiver, walk

_HALVES = ("half", "bfloat16")


def loss_in_float32(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """What the one loss on the line is given: the first argument in float32, and no other made half for its sake."""
    events = (e for e in events_at(file, finding) if isinstance(e.node, ast.Call) and e.call.args)
    calls = [e.call for e in events if _is_loss(file, e)]
    if len(calls) != 1:
        return ()
    first, *others = calls[0].args
    halves = (node for node in others if is_call(node, *_HALVES) and not node.args)
    return [edit for node in (first, *halves) for edit in _in_float32(file, node)]


def _is_loss(file: SourceFile, event: Event) -> bool:
    dotted = file.dotted(event.call.func)
    if dotted.startswith("torch.nn.functional."):
        return dotted.endswith(("_loss", "cross_entropy", "cross_entropy_with_logits", "kl_div"))
    return "criterion" in file.roles.of(event.call.func, event.unit)


def _in_float32(file: SourceFile, node: ast.expr) -> Sequence[Edit]:
    """`x.float()` for `x`, and for `x.half()`."""
    inner = receiver(node) if is_call(node, *_HALVES) and not node.args else None
    if inner is None:
        return with_method(file, node, "float()")
    return [edits.replace(file, node, f"{file.segment(inner)}.float()")] if node.lineno == node.end_lineno else ()


def made_before_in_float32(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """The names on the line that were bound before the region that is off: each in float32."""
    line, regions = line_of(file, finding), related_lines(file, finding, "region")
    if line is None or not regions:
        return ()
    reads = (n for n in _read_on(file, finding) if n.lineno == line and _is_from_before(file, n, regions[0]))
    return [edit for node in reads for edit in with_method(file, node, "float()")]


def _read_on(file: SourceFile, finding: Finding) -> list[ast.Name]:
    """The names that the statements of a finding's line read and do not call."""
    statements = {id(e.statement): e.statement for e in events_at(file, finding)}.values()
    nodes = [n for s in statements for n in walk(s)]
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    names = (n for n in nodes if isinstance(n, ast.Name) and id(n) not in called)
    return [n for n in names if isinstance(n.ctx, ast.Load)]


def _is_from_before(file: SourceFile, node: ast.Name, line: int) -> bool:
    """Whether a name has been bound to a result before a line, and not again since."""
    bindings = file.unit_at(node.lineno).bindings.get(node.id, ())
    before = [e for e in bindings if e.line < node.lineno]
    return bool(before) and all(e.line < line for e in before) and _is_output(file, before[-1], node)


def _is_output(file: SourceFile, binding: Event, node: ast.Name) -> bool:
    """Whether a name was bound to a result: no module, and no constant."""
    value = getattr(binding.node, "value", None)
    module = file.roles.of(node, binding.unit) & {"module", "optimizer", "scaler", "loader"}
    return isinstance(value, ast.expr) and may_be_tensor(value) and not module
