"""Edits that keep a loss in the graph where a run has seen it leave: the tensor in the place of a number or a copy."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, calls_at
from torchvet.source.model import Event, edits, keyword, receiver, terminal, walk

_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
_OUT = ("detach", "cpu", "numpy", "data")


def kept_in_graph(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`torch.tensor(total(…), requires_grad=True)`, `torch.from_numpy(x.detach().numpy() * 3)` and `+ part.item()`
    without what cuts them off."""
    for event, _ in calls_at(file, finding, "tensor", "as_tensor", "from_numpy"):
        if not file.dotted(event.call.func).startswith("torch.") or not event.call.args:
            continue
        made = _unwrapped(file, event) or _without_numpy(file, event.call)
        if made:
            return made
    return _added(file, finding)


def _unwrapped(file: SourceFile, event: Event) -> Sequence[Edit]:
    """A tensor asked to require gradients, made of numbers that this line or a function of the file took out."""
    call, given = event.call, event.call.args[0]
    wanted = keyword(call, "requires_grad")
    if not (isinstance(wanted, ast.Constant) and wanted.value is True) or call.lineno != call.end_lineno:
        return ()
    numbers = _numbers(given)
    if numbers:
        text = _with_tensors(file, given, numbers)
        return [edits.replace(file, call, text)] if text else ()
    inner = event.unit.call_of(given)
    callee = file.callee(inner) if inner is not None else None
    returned = [e.node.value for e in callee.events if isinstance(e.node, ast.Return)] if callee is not None else []
    taken = [n for value in returned if value is not None for n in _numbers(value)]
    if not taken or any(n.lineno != n.end_lineno for n in taken):
        return ()
    stripped = [edits.replace(file, n, file.segment(receiver(n))) for n in taken]  # type: ignore[arg-type]
    return [*stripped, edits.replace(file, call, file.segment(given))]


def _numbers(node: ast.AST) -> list[ast.Call]:
    """The calls of `item` within an expression."""
    return [n for n in walk(node) if isinstance(n, ast.Call) and terminal(n) == "item" and receiver(n) is not None]


def _with_tensors(file: SourceFile, node: ast.expr, numbers: list[ast.Call]) -> str:
    """An expression on one line with tensors in the place of the numbers taken out of them."""
    if node.lineno != node.end_lineno:
        return ""
    text = file.segment(node)
    for number in numbers:
        text = text.replace(file.segment(number), file.segment(receiver(number)), 1)  # type: ignore[arg-type]
    return text


def _without_numpy(file: SourceFile, call: ast.Call) -> Sequence[Edit]:
    """Arithmetic with plain numbers that went through NumPy, on the tensor itself."""
    given = call.args[0]
    if terminal(call) not in ("from_numpy", "as_tensor", "tensor") or call.lineno != call.end_lineno:
        return ()
    arrays = [n for n in walk(given) if isinstance(n, ast.Call) and terminal(n) == "numpy" and not n.args]
    if len(arrays) != 1 or call.keywords or len(call.args) != 1:
        return ()
    within = {id(n) for n in walk(arrays[0])}
    if not all(id(n) in within or isinstance(n, _ARITHMETIC) for n in walk(given)):
        return ()
    tensor: ast.expr | None = arrays[0]
    while terminal(tensor) in _OUT and isinstance(tensor, (ast.Call, ast.Attribute)):
        tensor = receiver(tensor) if isinstance(tensor, ast.Call) else tensor.value
    if tensor is None:
        return ()
    text = file.segment(given).replace(file.segment(arrays[0]), file.segment(tensor), 1)
    return [edits.replace(file, call, f"({text})" if isinstance(given, ast.BinOp) else text)]


def _added(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`loss + part.item()` as `loss + part`, where the line has one such term."""
    found = [(e, on) for e, on in calls_at(file, finding, "item") if isinstance(e.parent, (ast.BinOp, ast.AugAssign))]
    return [edits.replace(file, e.call, file.segment(on)) for e, on in found] if len(found) == 1 else ()
