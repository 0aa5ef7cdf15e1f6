"""Where an object goes under another name: assigned, passed, taken as a default, looped over."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torchvet.source import scopes, syntax
from torchvet.source.scopes import FunctionNode, Loop, Scope
from torchvet.source.syntax import Base

FlowKind = Literal["assign", "method", "argument", "default", "iterate"]


@dataclass(frozen=True, eq=False)
class Flow:
    """`source` is also known as `target`: a name or attribute, or the parameter `position`/`keyword` of `callee`.

    `part` says that what flows is an element of `source`; `method` names a bound method of it that flows instead.
    """

    kind: FlowKind
    source: Base
    scope: Scope
    node: ast.AST
    loop: Loop | None = None
    target: Base | None = None
    callee: ast.expr | None = None
    position: int | None = None
    keyword: str | None = None
    part: bool = False
    method: str = ""


def of_assignment(targets: list[ast.expr], value: ast.expr, scope: Scope, loop: Loop | None) -> Iterator[Flow]:
    """`h = self.history`, `append = losses.append`, tuples element by element."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for left, right in zip(target.elts, value.elts, strict=True):
                    yield from of_assignment([left], right, scope, loop)
            continue
        if not isinstance(target, (ast.Name, ast.Attribute)):
            continue
        for base, keys in syntax.bases(value):
            yield Flow("assign", base, scope, value, loop, target=target, part=bool(keys))
            if isinstance(base, ast.Attribute) and not keys:
                inner, inner_keys = syntax.peel(base.value)
                if inner is not None:
                    yield Flow("method", inner, scope, value, loop, target=target, part=bool(inner_keys),
                               method=base.attr)  # fmt: skip


def of_call(call: ast.Call, scope: Scope, loop: Loop | None) -> Iterator[Flow]:
    """Arguments, those handed on by `partial(f, x)` and `Thread(target=f, args=(x,))` among them."""
    given = list(_arguments(call))
    for callee, position, keyword, value in given:
        for base, keys in syntax.bases(value):
            yield Flow("argument", base, scope, call, loop, callee=callee, position=position, keyword=keyword,
                       part=bool(keys))  # fmt: skip
            if isinstance(base, ast.Attribute) and not keys:
                inner, inner_keys = syntax.peel(base.value)
                if inner is not None:
                    yield Flow("method", inner, scope, call, loop, part=bool(inner_keys), method=base.attr)


def _arguments(call: ast.Call) -> Iterator[tuple[ast.expr, int | None, str | None, ast.expr]]:
    func, args = call.func, call.args
    if syntax.ident(func) in ("partial", "partialmethod") and args:
        func, args = args[0], args[1:]
    for index, value in enumerate(args):
        if isinstance(value, ast.Starred):
            break
        yield func, index, None, value
    keywords = {k.arg: k.value for k in call.keywords if k.arg}
    for name, value in keywords.items():
        yield func, None, name, value
    target, handed = keywords.get("target"), keywords.get("args")
    if target is not None and isinstance(handed, (ast.Tuple, ast.List)):
        for index, value in enumerate(handed.elts):
            yield target, index, None, value


def of_function(node: FunctionNode, inner: Scope, outer: Scope) -> Iterator[Flow]:
    """Defaults: `def hook(module, inputs, output, store=losses)`."""
    for name, value in scopes.defaults(node):
        for base, keys in syntax.bases(value):
            target = ast.copy_location(ast.Name(id=name, ctx=ast.Store()), value)
            yield Flow("default", base, outer, inner.node or node, target=target, part=bool(keys))


def of_loop(target: ast.expr, iterated: ast.expr, scope: Scope, loop: Loop | None) -> Iterator[Flow]:
    """`for values in records.values()`: the targets are elements."""
    source = iterated
    while isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.args:
        source = source.args[0]
    base, _ = syntax.peel(source)
    if base is None:
        return
    for name in ast.walk(target):
        if isinstance(name, (ast.Name, ast.Attribute)):
            yield Flow("iterate", base, scope, iterated, loop, target=name, part=True)
