"""Turns a slice into code that runs in a copy of its frame's names, with the lines of the user's file kept."""

from __future__ import annotations
import __future__

import ast
import copy
from types import CodeType
from typing import Any

from torchvet.probes.replay.slicing import Slice

END = "__torchvet_end__"
"""The name of the exception that stands for `return`."""
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_REFUSED = {
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Await: "await",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
}


class Refused(Exception):
    """A slice that cannot run by itself; the message says why."""


def build(found: Slice, like: CodeType, owner: str | None, entered: set[int]) -> CodeType:
    """Code for a slice of the function `like`; `owner` is its class, for private names.

    Levels in `entered` are `with` blocks that are in force still: they are not entered again.
    """
    # Copies of the nodes: the file's tree is shared by all replays.
    body = _levels(found, 0, entered)
    for node in (n for statement in body for n in ast.walk(statement)):
        if type(node) in _REFUSED:
            raise Refused(f"{_REFUSED[type(node)]} cannot be done again")
    # A loop of one round, in which `break` and `continue` of the program's loop stay valid.
    # Names that no program has.
    target, rounds = ast.Name("__torchvet_once__", ast.Store()), ast.Tuple([ast.Constant(None)], ast.Load())
    once = ast.For(target=target, iter=rounds, body=body, orelse=[])
    ast.copy_location(once, found.way.target)
    # At module level, because a function would need its closure's cells.
    module = ast.Module([_Alone(owner).visit(once)], [])
    ast.fix_missing_locations(module)
    # Under the user's file name, whose lines frames then show, and with the `__future__` flags of that file.
    # `dont_inherit`: this file's own future statements are not the program's.
    code: CodeType = compile(module, like.co_filename, "exec", like.co_flags & _FUTURES, True)
    # Frames then look like the function's own to whatever reads their names.
    changes: dict[str, Any] = {"co_name": like.co_name}
    if hasattr(like, "co_qualname"):
        changes["co_qualname"] = like.co_qualname
    return code.replace(**changes)


def _levels(found: Slice, level: int, entered: set[int]) -> list[ast.stmt]:
    """The chosen statements of a block, then what is below it on the way."""
    mine = [i for i, item in enumerate(found.items) if item.level == level and i in found.chosen]
    body = [copy.deepcopy(found.items[i].node) for i in mine]
    if level + 1 >= len(found.way.steps):
        return body
    below = _levels(found, level + 1, entered)
    holder = found.way.steps[level + 1].node
    # A context whose object is alive is in force already (`no_grad`, autocast): entering it twice could do harm.
    if isinstance(holder, (ast.With, ast.AsyncWith)) and level + 1 not in entered and below:
        again = copy.copy(holder)
        again.body = below
        below = [again]
    return body + below


class _Alone(ast.NodeTransformer):
    """Rewrites what only works within a function: `return`, `super()`, `nonlocal`, private names."""

    def __init__(self, owner: str | None) -> None:
        self._owner = owner
        self._inner = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        # `return` within a function or lambda of the slice stays one.
        self._inner += 1
        self.generic_visit(node)
        self._inner -= 1
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # type: ignore[assignment]

    def visit_Return(self, node: ast.Return) -> Any:
        self.generic_visit(node)
        if self._inner:
            return node
        value = [ast.copy_location(ast.Expr(node.value), node)] if node.value is not None else []
        # An exception stands for `return`, which no module may have.
        return [*value, ast.copy_location(ast.Raise(ast.Name(END, ast.Load()), None), node)]

    def visit_Nonlocal(self, node: ast.Nonlocal | ast.Global) -> ast.AST:
        # A slice runs like a module: the frame's names are its globals.
        return ast.copy_location(ast.Pass(), node)

    visit_Global = visit_Nonlocal

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        # Without arguments it needs the cell `__class__`, which only a function within a class has.
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            # `__class__` is put among the names by whoever runs the slice.
            node.args = [ast.Name("__class__", ast.Load()), ast.Name("self", ast.Load())]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        # Python mangles private names only within a class.
        if self._owner and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self._owner.lstrip('_')}{node.attr}"
        return node
