"""Edits that keep a loss in the graph where a run has seen it leave: the tensor in the place of a number or a copy."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, calls_at, events_at
from torchvet.source.model import Event, edits, holds, is_attribute, is_call, is_set, receiver, terminal, walk

_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
_OUT = ("detach", "cpu", "numpy", "data")


def kept_in_graph(file: SourceFile, finding: Finding) -> Edits:
    """`torch.tensor(total(…), requires_grad=True)`, `torch.from_numpy(x.detach().numpy() * 3)`, `+ part.item()` and
    `x.detach()` without what cuts them off."""
    for event, _ in calls_at(file, finding, "tensor", "as_tensor", "from_numpy"):
        if not file.dotted(event.call.func).startswith("torch.") or not event.call.args:
            continue
        made = _unwrapped(file, event) or _without_numpy(file, event.call)
        if made:
            return made
    return _added(file, finding) or _undetached(file, finding)


def _unwrapped(file: SourceFile, event: Event) -> Edits:
    """A tensor asked to require gradients, made of numbers that this line or a function of the file took out."""
    call, given = event.call, event.call.args[0]
    if not is_set(call, "requires_grad") or not edits.on_one_line(call):
        return ()
    numbers = _numbers(given)
    if numbers:
        text = _with_tensors(file, given, numbers)
        return [edits.replace(file, call, text)] if text else ()
    inner = event.unit.call_of(given)
    callee = file.callee(inner) if inner is not None else None
    taken = [n for e in callee.returns for n in _numbers(e.node)] if callee is not None else []
    if not taken or not all(edits.on_one_line(n) for n in taken):
        return ()
    stripped = [edits.replace(file, n, file.segment(receiver(n))) for n in taken]  # type: ignore[arg-type]
    return [*stripped, edits.replace(file, call, file.segment(given))]


def _numbers(node: ast.AST) -> list[ast.Call]:
    """The calls of `item` within an expression."""
    return [n for n in walk(node) if is_call(n, "item") and receiver(n) is not None]


def _with_tensors(file: SourceFile, node: ast.expr, numbers: list[ast.Call]) -> str:
    """An expression on one line with tensors in the place of the numbers taken out of them."""
    if node.lineno != node.end_lineno:
        return ""
    text = file.segment(node)
    for number in numbers:
        text = text.replace(file.segment(number), file.segment(receiver(number)), 1)  # type: ignore[arg-type]
    return text


def _without_numpy(file: SourceFile, call: ast.Call) -> Edits:
    """Arithmetic with plain numbers that went through NumPy, on the tensor itself."""
    given = call.args[0]
    arrays = [n for n in walk(given) if is_call(n, "numpy") and not n.args]
    if len(arrays) != 1 or call.keywords or len(call.args) != 1 or not edits.on_one_line(call):
        return ()
    tensor = _under_numpy(arrays[0])
    if tensor is None or not all(holds(arrays[0], n) or isinstance(n, _ARITHMETIC) for n in walk(given)):
        return ()
    text = file.segment(given).replace(file.segment(arrays[0]), file.segment(tensor), 1)
    return [edits.replace(file, call, f"({text})" if isinstance(given, ast.BinOp) else text)]


def _under_numpy(array: ast.expr) -> ast.expr | None:
    """The tensor whose numbers an array has: `x` of `x.data.cpu().numpy()`."""
    tensor: ast.expr | None = array
    while terminal(tensor) in _OUT and isinstance(tensor, (ast.Call, ast.Attribute)):
        tensor = receiver(tensor) if isinstance(tensor, ast.Call) else tensor.value
    return tensor


def _added(file: SourceFile, finding: Finding) -> Edits:
    """`loss + part.item()` as `loss + part`, where the line has one such term."""
    found = [(e, on) for e, on in calls_at(file, finding, "item") if isinstance(e.parent, (ast.BinOp, ast.AugAssign))]
    return [edits.replace(file, e.call, file.segment(on)) for e, on in found] if len(found) == 1 else ()


def _undetached(file: SourceFile, finding: Finding) -> Edits:
    """`x.clone().detach()` as `x.clone()`, where the line cuts at one place and what it makes stays a tensor."""
    # With another cut on the line this may be the one that is meant.
    nodes = [n for e in events_at(file, finding) for n in walk(e.statement)]
    if any(is_attribute(n, "data", "item", "numpy") for n in nodes):
        return ()
    found = [(e, on) for e, on in calls_at(file, finding, "detach") if not isinstance(e.parent, ast.Attribute)]
    return [edits.replace(file, e.call, file.segment(on)) for e, on in found] if len(found) == 1 else ()
