"""The function that does in one what a formula does in steps, as the text that replaces it; empty where it is not
certain what to write: what stands over several lines, or goes by names that were bound anew."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.rules.numerics import _terms
from torchvet.source.model import Event, holds, names_in, walk

_FUNCTIONAL = (("torch.nn.functional", ""), ("torch.nn", ".functional"), ("torch", ".nn.functional"))


def log_sigmoid(node: ast.expr, value: ast.expr, event: Event) -> str:
    """`log(sigmoid(x))` as `F.logsigmoid(x)`."""
    return _of_one(node, _terms.operand_of(event.unit.file, value, "sigmoid"), event, "logsigmoid")


def softplus(node: ast.expr, exponent: ast.expr, event: Event) -> str:
    """`log(1 + exp(x))` as `F.softplus(x)`."""
    return _of_one(node, exponent, event, "softplus")


def _of_one(node: ast.expr, operand: ast.expr | None, event: Event, name: str) -> str:
    prefix = _functional(event.unit.file)
    if operand is None or not prefix or not holds(node, operand):
        return ""
    text = _line(event.unit.file, node, operand)
    return f"{prefix}.{name}({text})" if text else ""


def log_sum_exp(node: ast.expr, total: ast.expr, exponent: ast.expr, event: Event) -> str:
    """`log(exp(x).sum(1))` as `torch.logsumexp(x, 1)`, the dimension that is summed over and `keepdim` as they are."""
    file = event.unit.file
    given = _dimensions(total, file)
    torch = _imported(file, "torch")
    if not given or not torch or not holds(node, exponent):
        return ""
    text = _line(file, node, exponent)
    return f"{torch}.logsumexp({', '.join([text, *given])})" if text else ""


def softmax(quotient: ast.BinOp, total: ast.Call, event: Event) -> str:
    """`exp(x) / exp(x).sum(1, keepdim=True)` as `torch.softmax(x, 1)`, where the sum keeps its dimension."""
    file = event.unit.file
    above, at = _terms.meaning(quotient.left, event)
    exponent = _terms.operand_of(file, above, "exp")
    given = _dimensions(total, file)
    torch = _imported(file, "torch")
    keeps = len(given) == 2 and given[1] in ("True", "keepdim=True", "keepdims=True")
    if exponent is None or not keeps or not torch or at.unit is not event.unit or _rebound(exponent, at, event):
        return ""
    text = _line(file, quotient, exponent)
    return f"{torch}.softmax({text}, {given[0]})" if text else ""


def _dimensions(call: ast.expr, file: SourceFile) -> list[str]:
    """What a sum is given besides what it sums: one dimension, and whether it is kept. Empty for all else."""
    if not isinstance(call, ast.Call):
        return []
    own = call.args[1:] if file.dotted(call.func).startswith("torch.") else call.args
    named = {k.arg: k.value for k in call.keywords}
    dimension = own[0] if own else named.pop("dim", named.pop("axis", None))
    if dimension is None or not isinstance(dimension, (ast.Constant, ast.UnaryOp, ast.Name, ast.Attribute)):
        return []
    if len(own) > 2 or set(named) - {"keepdim", "keepdims"} or len(own) - 1 + len(named) > 1:
        return []
    kept = [file.segment(v) for v in own[1:]] + [f"{name}={file.segment(v)}" for name, v in named.items()]
    return [ast.unparse(dimension), *kept]


def _rebound(node: ast.expr, since: Event, until: Event) -> bool:
    """Whether a name of an expression was bound anew, or an attribute may have been, between two events."""
    if since is until:
        return False
    if any(isinstance(one, (ast.Attribute, ast.Subscript, ast.Call)) for one in walk(node)):
        return True
    bound = (binding for name in names_in(node) for binding in since.unit.bindings.get(name, ()))
    return any(since.index <= binding.index < until.index for binding in bound)


def _line(file: SourceFile, node: ast.expr, operand: ast.expr) -> str:
    """The operand's text, where the whole stands on one line."""
    return file.segment(operand) if node.lineno == node.end_lineno else ""


def _functional(file: SourceFile) -> str:
    found = (f"{name}{rest}" for module, rest in _FUNCTIONAL if (name := _imported(file, module)))
    return next(found, "")


def _imported(file: SourceFile, module: str) -> str:
    """The name that a file has imported a module under."""
    return next((name for name, dotted in file.imports.names.items() if dotted == module), "")
