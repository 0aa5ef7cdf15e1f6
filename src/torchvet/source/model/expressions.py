"""Small questions that rules ask about expressions: which names one reads, what a method is called on."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, TypeGuard

from torchvet.source.model.units import keyword, receiver, targets_of, terminal, value_for
from torchvet.source.text import name_set as name_set
from torchvet.source.walking import walk

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile


def is_name(node: ast.AST | None, name: str) -> TypeGuard[ast.Name]:
    """Whether a node is this very variable."""
    return isinstance(node, ast.Name) and node.id == name


def is_attribute(node: ast.AST | None, *names: str) -> TypeGuard[ast.Attribute]:
    """Whether a node is an attribute by one of the names, whatever it is taken from."""
    return isinstance(node, ast.Attribute) and node.attr in names


def is_call(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Whether a node calls something whose last identifier is one of the names."""
    return isinstance(node, ast.Call) and terminal(node) in names


def is_set(call: ast.Call, name: str, value: object = True) -> bool:
    """Whether a call gives a keyword argument as a literal of this value."""
    return is_literal(keyword(call, name), value)


def is_literal(node: ast.AST | None, value: object) -> bool:
    """Whether a node is a literal of this value: None, True or False, or a small number."""
    # By identity: `1 == True`, and `None` has no other.
    return isinstance(node, ast.Constant) and node.value is value


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in an expression or statement, itself included."""
    return (n for n in walk(node) if isinstance(n, ast.Call))


def names_in(node: ast.AST | None) -> set[str]:
    """All variables in an expression."""
    return {n.id for n in walk(node) if isinstance(n, ast.Name)} if node is not None else set()


def reads_of(node: ast.AST, name: str) -> list[ast.Name]:
    """Where a variable is read within some code."""
    # `x += 1` has `x` with a Store, although it reads.
    return [n for n in walk(node) if is_name(n, name) and isinstance(n.ctx, ast.Load)]


def target_names(node: ast.AST) -> set[str]:
    """The variables that one binding binds: `x` and `y` of `for x, y in …`."""
    return {t.id for t in targets_of(node) if isinstance(t, ast.Name)}


def sole_target(node: ast.AST | None) -> ast.expr | None:
    """What an assignment to one target assigns to; None for `a = b = …` and for all else."""
    return node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None


def is_unpacked(call: ast.Call) -> bool:
    """Whether a call is given `*args` or `**kwargs`, so that its arguments cannot be told."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)


def names_bound(nodes: Iterable[ast.AST]) -> set[str]:
    """The variables that some code binds."""
    found = (n for node in nodes for n in walk(node))
    return {n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def root_of(node: ast.AST | None) -> str:
    """The variable that a chain of attributes begins with: `self` of `self.head.weight`. Empty for all else."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def holds(outer: ast.AST, node: ast.AST) -> bool:
    """Whether a node is another, or lies in it."""
    return any(one is node for one in walk(outer))


def parents_in(node: ast.AST) -> dict[int, ast.AST]:
    """What is right around each node below a node, by the node's `id`."""
    # By `id`: nodes that `ast.parse` shares (contexts, operators) are skipped by `walk`, all others are unique.
    return {id(child): one for one in walk(node) for child in ast.iter_child_nodes(one)}


def under_methods(node: ast.expr | None, names: Collection[str]) -> ast.expr | None:
    """What a chain of methods of these names begins with: `x` of `x.detach().cpu()`. Any other expression is itself."""
    while isinstance(node, ast.Call) and terminal(node) in names and receiver(node) is not None:
        node = receiver(node)
    return node


def value_bound(node: ast.AST | None, name: str) -> ast.expr | None:
    """The expression that a statement binds a variable to; None where it does not, or to a part of an expression."""
    target = next((t for t in targets_of(node) if is_name(t, name)), None) if node is not None else None
    return value_for(node, target) if node is not None and target is not None else None


def operand(file: SourceFile, call: ast.Call) -> ast.expr | None:
    """The tensor that an operation is about: the first argument of torch's function, what a method is called on."""
    if file.dotted(call.func).startswith("torch."):
        # `torch.relu(x)` and `x.relu()` are the same operation.
        return call.args[0] if call.args else None
    return receiver(call)
