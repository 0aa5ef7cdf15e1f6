"""Where an object goes under another name: assigned, passed, taken as a default, looped over."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torchvet.source import syntax
from torchvet.source.program import scopes
from torchvet.source.program.scopes import Placed, Scope
from torchvet.source.syntax import Base, FunctionNode
from torchvet.source.walking import Context

FlowKind = Literal["assign", "method", "argument", "default", "iterate"]


@dataclass(frozen=True, eq=False)
class Flow(Placed):
    """`source` is also known as `target`: a name or attribute, or the parameter `position`/`keyword` of `callee`.

    `method` names a bound method of `source` that flows in its place.
    """

    kind: FlowKind
    source: Base
    target: Base | None = None
    callee: ast.expr | None = None
    position: int | None = None
    keyword: str | None = None
    method: str = ""


def _methods(value: ast.expr) -> Iterator[tuple[Base, Base | None]]:
    """The objects that an expression may stand for, each with the object whose bound method it may be."""
    for base, keys in syntax.bases(value):
        inner = syntax.peel(base.value)[0] if isinstance(base, ast.Attribute) and not keys else None
        yield base, inner


def of(node: ast.AST, scope: Scope, context: Context) -> Iterator[Flow]:
    """The flows of one node itself."""
    if isinstance(node, ast.Call):
        yield from _of_call(node, scope, context)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _of_loop(node.target, node.iter, scope, context)
    for target, value, exact in syntax.bindings(node):
        # Exact: of `a, b = pair` it is not known which part is whose.
        if exact and isinstance(target, (ast.Name, ast.Attribute)):
            for base, inner in _methods(value):
                yield Flow(value, scope, context, "assign", base, target)
                if inner is not None:
                    yield Flow(value, scope, context, "method", inner, target, method=syntax.ident(base))


def _of_call(call: ast.Call, scope: Scope, context: Context) -> Iterator[Flow]:
    """Arguments, those handed on by `partial(f, x)` and `Thread(target=f, args=(x,))` among them."""
    for callee, position, keyword, value in _arguments(call):
        for base, inner in _methods(value):
            yield Flow(call, scope, context, "argument", base, callee=callee, position=position, keyword=keyword)
            if inner is not None:
                yield Flow(call, scope, context, "method", inner, method=syntax.ident(base))


def _arguments(call: ast.Call) -> Iterator[tuple[ast.expr, int | None, str | None, ast.expr]]:
    """Who gets each argument, at which position or for which keyword, and the argument."""
    func, args = call.func, call.args
    # What `partial` is given goes to the function, at the same positions.
    if syntax.ident(func) in ("partial", "partialmethod") and args:
        func, args = args[0], args[1:]
    for index, value in enumerate(args):
        if isinstance(value, ast.Starred):
            break  # the positions behind `*args` are not known
        yield func, index, None, value
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    yield from ((func, None, name, value) for name, value in keywords.items())
    # `Thread` and `Process` call `target(*args)`.
    target, handed = keywords.get("target"), keywords.get("args")
    if target is not None and isinstance(handed, (ast.Tuple, ast.List)):
        yield from ((target, index, None, value) for index, value in enumerate(handed.elts))


def of_function(node: FunctionNode, outer: Scope) -> Iterator[Flow]:
    """Defaults: `def hook(module, inputs, output, store=losses)`."""
    for name, value in scopes.defaults(node):
        for base, _ in syntax.bases(value):
            target = ast.copy_location(ast.Name(id=name, ctx=ast.Store()), value)
            yield Flow(node, outer, Context(), "default", base, target)


def _of_loop(target: ast.expr, iterated: ast.expr, scope: Scope, context: Context) -> Iterator[Flow]:
    """`for values in records.values()`: the targets are elements."""
    source = iterated
    # `enumerate(zip(a, b))`: elements of the first argument, as far as a name can tell.
    while isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.args:
        source = source.args[0]
    base, _ = syntax.peel(source)
    if base is not None:
        for name in ast.walk(target):
            if isinstance(name, (ast.Name, ast.Attribute)):
                yield Flow(iterated, scope, context, "iterate", base, name)
