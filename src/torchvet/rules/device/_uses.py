"""How a module's attribute is used in its `forward`: combined with other tensors, or moved first."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import ClassModel, Unit, is_call, name_set, parents_in, receiver, terminal, walk

_CARRYING = name_set(
    "unsqueeze squeeze view reshape expand repeat transpose permute t float clone detach flatten contiguous half "
    "double long bool expand_as exp sum mean log sqrt"
)
"""Methods whose result lives where their tensor does."""


_JOINING = ("masked_fill", "matmul", "mul", "add", "index_select", "gather", "bmm", "mm", "sub", "div")
"""Methods of tensors that take a tensor of the same device."""


def _reads(unit: Unit, name: str) -> Iterator[ast.Attribute]:
    """`self.NAME` wherever a method reads it."""
    named = (n for n in walk(unit.node) if isinstance(n, ast.Attribute) and n.attr == name)
    yield from (n for n in named if isinstance(n.ctx, ast.Load) and terminal(n.value) == unit.self_name())


def combined_in_forward(file: SourceFile, owner: ClassModel, name: str) -> bool:
    """Whether `forward`, or what it calls, uses `self.NAME` with other tensors and nothing ever moves it."""
    combined = False
    for unit, use in _uses_of(file, owner, name):
        if use == "unknown":
            return False
        run = unit.name == "forward" or any(e.unit.name == "forward" for e in file.callers(unit))
        combined |= use == "combined" and run
    return combined


def combined_by(file: SourceFile, owner: ClassModel, name: str) -> Unit | None:
    """The method that uses `self.NAME` with what it is given, `forward` if that does; None where none does."""
    using = [unit for unit, use in _uses_of(file, owner, name) if use == "combined" and unit.name != "__init__"]
    using = [unit for unit in using if unit.given_parameters]
    return min(using, key=lambda unit: unit.name not in ("forward", "__call__"), default=None)


def _uses_of(file: SourceFile, owner: ClassModel, name: str) -> Iterator[tuple[Unit, str]]:
    """Each use of an attribute in the methods of its class."""
    own = {id(m) for one in owner.lineage for m in one.methods.values()}
    for unit in (u for u in file.units_with(name) if id(u) in own):
        parents = parents_in(unit.node)
        for node in _reads(unit, name):
            yield unit, _use(file, node, parents)


def _use(file: SourceFile, node: ast.AST, parents: dict[int, ast.AST]) -> str:
    """`combined`, `harmless` (an index, a size), or `unknown` (moved, kept under another name, handed on)."""
    while True:
        parent = parents.get(id(node))
        if isinstance(parent, ast.Call):
            return _given_to(file, parent, node)
        if isinstance(parent, ast.Attribute):
            found = _asked_for(parent, parents.get(id(parent)))
        elif isinstance(parent, ast.Subscript):
            found = parent if parent.value is node else "harmless"
        elif isinstance(parent, (ast.BinOp, ast.Compare)):
            found = _computed(parent, node)
        else:
            found = parent if isinstance(parent, ast.UnaryOp) else "unknown"
        if isinstance(found, str):
            return found
        node = found


def _asked_for(attribute: ast.Attribute, call: ast.AST | None) -> ast.AST | str:
    """What an attribute, or a method's call, gives of a tensor: what lives where it does, or a use."""
    if attribute.attr in ("shape", "device", "dtype", "ndim", "size", "dim", "numel"):
        return "harmless"
    if attribute.attr in ("T", "mT"):
        return attribute
    carries = isinstance(call, ast.Call) and call.func is attribute and attribute.attr in _CARRYING
    return call if carries and call is not None else "unknown"


def _computed(parent: ast.BinOp | ast.Compare, node: ast.AST) -> ast.AST | str:
    """What is computed of it and other operands; with constants alone it goes on."""
    if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.Is, ast.IsNot)):
        return "harmless"
    others = [n for n in ast.iter_child_nodes(parent) if n is not node and isinstance(n, ast.expr)]
    if all(isinstance(o, ast.Constant) for o in others):
        return parent
    return "combined" if any(_is_batch(o) for o in others) else "unknown"


def _given_to(file: SourceFile, call: ast.Call, node: ast.AST) -> str:
    """What a call that takes it does: torch's own operations on several tensors combine them."""
    torch = file.dotted(call.func).startswith("torch.")
    others = [a for a in call.args if a is not node] if torch else []
    on = receiver(call) if is_call(call, *_JOINING) else None
    if isinstance(on, ast.Name) and on.id in file.imports.names:
        on = None  # a package, and no tensor
    return "combined" if any(_is_batch(one) for one in (*others, on) if one is not None) else "unknown"


def _is_batch(node: ast.AST) -> bool:
    """Whether an operand reads like something that came with the batch: no number, no attribute of the module."""
    if isinstance(node, (ast.Constant, ast.Attribute)):
        return False
    if isinstance(node, ast.Call):
        # What is made on the spot is where this is: a constant beside a constant.
        return not is_call(node, "ones", "zeros", "full", "eye", "arange", "linspace")
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Subscript)):
        return any(_is_batch(n) for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))
    return isinstance(node, ast.Name)
