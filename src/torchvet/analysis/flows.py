"""What becomes of a statement's result within its function, by the names of the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

_SAYS = re.compile(r"log|record|report|print|write|track|info|debug|warn|add_(scalar|text|image|histogram)|set_postfix")
"""Methods that say what they are given to somebody."""
_BRANCHES = (ast.For, ast.AsyncFor, ast.While, ast.If)
_HEADS = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try)


def feeds(statements: Sequence[ast.stmt], maker: int, user: int) -> bool:
    """Whether the statement on the line `user` reads what that on the line `maker` makes, over however many others of
    one function: `statements`, in the order of their lines. What comes later may be read in the next iteration."""
    at = next((n for n, one in enumerate(statements) if _covers(one, user)), None)
    if at is None:
        return False
    asked = statements[at]
    wanted = set(_read(asked))
    # Backward from there, and then from the end on.
    for one in (*reversed(statements[:at]), *reversed(statements[at + 1 :])):
        made = set(_made(one))
        if _covers(one, maker):
            return not wanted.isdisjoint(made)
        if wanted.isdisjoint(made):
            continue
        if _replaces(one) and not _may_be_left_out(one, asked, statements):
            wanted -= made
        wanted.update(_read(one))
    return False


def _may_be_left_out(one: ast.stmt, asked: ast.stmt, statements: Sequence[ast.stmt]) -> bool:
    """Whether a branch or a loop is around it in which what is asked for does not stand."""
    around = [each for each in statements if isinstance(each, _BRANCHES) and _within(one, each)]
    return not all(_within(asked, each) for each in around)


def _within(one: ast.stmt, outer: ast.stmt) -> bool:
    return one is not outer and outer.lineno <= one.lineno <= (outer.end_lineno or outer.lineno)


def _covers(one: ast.stmt, line: int) -> bool:
    last = one.body[0].lineno - 1 if isinstance(one, _HEADS) else one.end_lineno or one.lineno
    return one.lineno <= line <= max(one.lineno, last)


def _replaces(one: ast.stmt) -> bool:
    """Whether names have another value after it, and not more in the same one."""
    return isinstance(one, (ast.For, ast.AsyncFor)) or (
        isinstance(one, ast.Assign)
        and all(
            not isinstance(part, (ast.Subscript, ast.Starred)) for target in one.targets for part in ast.walk(target)
        )
    )


def _targets(one: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(one, ast.Assign):
        yield from one.targets
    elif isinstance(one, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor)):
        yield one.target
    elif isinstance(one, (ast.With, ast.AsyncWith)):
        yield from (item.optional_vars for item in one.items if item.optional_vars is not None)
    elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call):
        called, given = one.value.func, one.value.args or one.value.keywords
        # A call whose result nobody reads is there for what it does, such as `rollouts.update(batch)`.
        if isinstance(called, ast.Attribute) and given and not _SAYS.match(called.attr):
            yield called.value


def _made(one: ast.stmt) -> Iterator[str]:
    for target in _targets(one):
        waiting = [target]
        while waiting:
            node = waiting.pop()
            if isinstance(node, (ast.Tuple, ast.List)):
                waiting += node.elts
            elif isinstance(node, (ast.Subscript, ast.Starred)):
                waiting.append(node.value)
            # Another object's attribute is not the object: `model.score = …` makes no model.
            elif (name := _name(node)) and (isinstance(node, ast.Name) or name.startswith("self.")):
                yield name


def _read(one: ast.stmt) -> Iterator[str]:
    """The names in it: of a compound statement in its head."""
    waiting: list[ast.AST] = [one]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            if isinstance(node.ctx, ast.Store):
                continue
            if name := _name(node):
                yield name
                continue
        waiting += [part for part in ast.iter_child_nodes(node) if not isinstance(part, (ast.stmt, ast.ExceptHandler))]


def _name(node: ast.expr) -> str:
    """A variable's: of an object's own attribute with `self`, of another's without the attribute."""
    inner = node
    while isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Attribute):
        inner = inner.value
    if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
        return f"self.{inner.attr}" if inner.value.id == "self" else inner.value.id
    return inner.id if isinstance(inner, ast.Name) and inner.id != "self" else ""
