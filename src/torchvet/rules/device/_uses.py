"""How a module's attribute is used in its `forward`: combined with other tensors, or moved first."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.source.model import ClassModel, Unit, terminal, walk

_CARRYING = frozenset(
    ("unsqueeze", "squeeze", "view", "reshape", "expand", "repeat", "transpose", "permute", "t", "float", "clone",
     "detach", "flatten", "contiguous", "half", "double", "long", "bool", "expand_as", "exp", "sum", "mean", "log",
     "sqrt")
)  # fmt: skip
"""Methods whose result lives where their tensor does."""


def combined_in_forward(file: SourceFile, owner: ClassModel, name: str) -> bool:
    """Whether `forward`, or what it calls, uses `self.NAME` with other tensors and nothing ever moves it."""
    combined = False
    for unit in _methods_with(file, owner, name):
        parents = {id(child): node for node in walk(unit.node) for child in ast.iter_child_nodes(node)}
        for node in walk(unit.node):
            if not (isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load)):
                continue
            if terminal(node.value) != unit.self_name():
                continue
            use = _use(file, node, parents)
            if use == "unknown":
                return False
            combined |= use == "combined" and _runs_in_forward(file, unit)
    return combined


def _methods_with(file: SourceFile, owner: ClassModel, name: str) -> list[Unit]:
    own = {id(m) for one in owner.lineage for m in one.methods.values()}
    return [u for u in file.units_with(name) if id(u) in own]


def _runs_in_forward(file: SourceFile, unit: Unit) -> bool:
    return unit.name == "forward" or any(e.unit.name == "forward" for e in file.callers(unit))


def _use(file: SourceFile, node: ast.AST, parents: dict[int, ast.AST]) -> str:
    """`combined`, `harmless` (an index, a size), or `unknown` (moved, kept under another name, handed on)."""
    while True:
        parent = parents.get(id(node))
        if isinstance(parent, ast.Attribute):
            call = parents.get(id(parent))
            if parent.attr in ("shape", "device", "dtype", "ndim"):
                return "harmless"
            if parent.attr in ("T", "mT"):
                node = parent
            elif isinstance(call, ast.Call) and call.func is parent and parent.attr in _CARRYING:
                node = call
            else:
                return "unknown" if parent.attr not in ("size", "dim", "numel") else "harmless"
        elif isinstance(parent, ast.Subscript):
            if parent.value is not node:
                return "harmless"
            node = parent
        elif isinstance(parent, ast.UnaryOp):
            node = parent
        elif isinstance(parent, (ast.BinOp, ast.Compare)):
            others = [n for n in ast.iter_child_nodes(parent) if n is not node and isinstance(n, ast.expr)]
            if not all(isinstance(o, (ast.Constant, ast.operator, ast.cmpop)) for o in others):
                return "combined" if any(_is_batch(o) for o in others) else "unknown"
            node = parent
        elif isinstance(parent, ast.Call):
            return _given_to(file, parent, node)
        else:
            return "unknown"


def _given_to(file: SourceFile, call: ast.Call, node: ast.AST) -> str:
    """What a call that takes it does: torch's own operations on several tensors combine them."""
    dotted = file.dotted(call.func)
    others = [a for a in call.args if a is not node]
    if dotted.startswith("torch.") and any(_is_batch(a) for a in others):
        return "combined"
    tensor_method = isinstance(call.func, ast.Attribute) and call.func.attr in ("masked_fill", "matmul", "mul", "add")
    if tensor_method and isinstance(call.func, ast.Attribute) and _is_batch(call.func.value):
        return "combined"
    return "unknown"


def _is_batch(node: ast.AST) -> bool:
    """Whether an operand reads like something that came with the batch: no number, no attribute of the module."""
    if isinstance(node, (ast.Constant, ast.Attribute)):
        return False
    if isinstance(node, ast.Call):
        return True
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Subscript)):
        return any(_is_batch(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))
    return isinstance(node, ast.Name)
