"""What bounds a holder: things taken out, limits, guards on its length, and where it is made anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import beginnings, places, ranking, subjects, syntax
from torchvet.source.follow import Follower, Seen
from torchvet.source.holder import Part
from torchvet.source.module import Module
from torchvet.source.project import Project
from torchvet.source.scopes import Scope
from torchvet.source.subjects import UNLIKELY
from torchvet.source.touches import RemovalKind

Found = tuple[str, int, RemovalKind, bool]
"""Path, line, kind, whether in a loop."""

_INIT = {"__init__", "__new__", "__post_init__"}
_TAKES_OUT = {"pop", "popleft", "clear", "del", "slice", "remove", "get", "fresh", "maxlen"}


def of(project: Project, follower: Follower, part: Part) -> list[Found]:
    """The removals among the touches of a part of a name, in the order of files and lines."""
    certain = [s for s in follower.seen if s.fit > UNLIKELY and ranking.key_fit(s.touch.keys, part.keys) >= 0]
    found: list[Found] = []
    for seen in certain:
        kind = seen.touch.removal
        if kind is None:
            continue
        if kind != "fresh" or (_is_made_anew(project, seen) and not beginnings.starts(seen.module, seen.touch)):
            found.append((seen.module.path, seen.line, kind, seen.touch.loop is not None or seen.again))
    found += _rings(certain)
    found += _guards(follower, certain)
    return sorted(set(found))


def _is_made_anew(project: Project, seen: Seen) -> bool:
    """Whether a fresh value replaces one that was filled, rather than starting the first."""
    touch = seen.touch
    function = touch.scope.function()
    if function is not None and (function.name in _INIT or project.only_from_init(function)):
        return False
    hot = project.is_hot(function)
    if touch.keys:
        return hot or (touch.loop is not None and touch.loop.parent is not None)
    if touch.loop is not None:
        return True
    if function is None:
        return False
    if isinstance(touch.base, ast.Name) and touch.scope.resolve(touch.base.id) is touch.scope:
        return False
    if isinstance(touch.base, ast.Name) or _is_self(touch.base):
        return not project.runs_once(function)
    return hot


def _is_self(base: ast.Attribute) -> bool:
    inner, _ = syntax.peel(base.value)
    return isinstance(inner, ast.Name) and inner.id in ("self", "cls")


def _rings(seen: list[Seen]) -> Iterator[Found]:
    """`x[i] = v` where `i` is computed with `%`: a ring buffer."""
    for one in seen:
        node = one.touch.node
        if one.touch.store != "item" or not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _is_wrapped(one.module, target.slice, one.touch.scope):
                yield one.module.path, one.line, "modulo", one.touch.loop is not None or one.again


def _is_wrapped(module: Module, index: ast.expr, scope: Scope) -> bool:
    if not isinstance(index, (ast.Name, ast.Attribute)):
        return False
    for touch in module.touches.get(syntax.ident(index), ()):
        if isinstance(index, ast.Name) and touch.scope.resolve(index.id) is not scope.resolve(index.id):
            continue
        if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(touch.value or touch.base)):
            return touch.store in ("assign", "augmented")
        if isinstance(touch.node, ast.AugAssign) and isinstance(touch.node.op, ast.Mod):
            return True
    return False


def _guards(follower: Follower, seen: list[Seen]) -> Iterator[Found]:
    modules = {id(s.module): s.module for s in seen}
    for module in modules.values():
        here = [s for s in seen if s.module is module]
        for guard, scope in module.guards:
            for over in _lengths(follower, guard.test, scope, module):
                if _limits(guard, over, here, scope):
                    loop = places.loop_at(module, guard.lineno)
                    yield module.path, guard.lineno, "len-guard", loop is not None
                    break


def _lengths(follower: Follower, test: ast.expr, scope: Scope, module: Module) -> Iterator[bool]:
    """For each comparison of the object's length: true where it holds when the length is large, false when small."""
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare):
            continue
        operands = [node.left, *node.comparators]
        for index, operand in enumerate(operands):
            if not _is_length_of(follower, operand, scope, module):
                continue
            op = node.ops[min(index, len(node.ops) - 1)] if index < len(node.ops) else node.ops[-1]
            more = isinstance(op, (ast.Gt, ast.GtE))
            fewer = isinstance(op, (ast.Lt, ast.LtE))
            left = index == 0
            if isinstance(op, ast.Eq):
                yield True
            if more or fewer:
                yield more if left else fewer
            if isinstance(op, ast.NotEq):
                yield False


def _is_length_of(follower: Follower, operand: ast.expr, scope: Scope, module: Module) -> bool:
    for node in ast.walk(operand):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return False
        if not isinstance(node, ast.Call):
            continue
        name = syntax.ident(node.func)
        on = node.args[0] if name == "len" and node.args else None
        if name in ("qsize", "__len__", "currsize") and isinstance(node.func, ast.Attribute):
            on = node.func.value
        base, _ = syntax.peel(on)
        if base is not None and any(follower.fit(x, base, scope, module) > UNLIKELY for x in follower.leads.values()):
            return True
    return False


def _limits(guard: ast.If | ast.While | ast.IfExp, over: bool, seen: list[Seen], scope: Scope) -> bool:
    """Whether something is taken out when the length is large, or put in only while it is small."""
    body = guard.body if isinstance(guard.body, list) else [guard.body]
    orelse = guard.orelse if isinstance(guard.orelse, list) else [guard.orelse]
    large, small = (body, orelse) if over else (orelse, body)
    if any(s.touch.removal in _TAKES_OUT for s in _inside(large, seen)):
        return True
    if any(s.touch.store is not None for s in _inside(small, seen)):
        return not any(s.touch.store in ("append", "extend", "insert") for s in _inside(large, seen))
    leaves = bool(large) and isinstance(large[-1], (ast.Return, ast.Break, ast.Continue, ast.Raise))
    after = guard.end_lineno or guard.lineno
    return leaves and any(s.touch.store is not None and s.touch.scope is scope and s.line > after for s in seen)


def _inside(block: list[ast.stmt] | list[ast.expr], seen: list[Seen]) -> Iterator[Seen]:
    if block:
        first, last = block[0].lineno, block[-1].end_lineno or block[-1].lineno
        yield from (s for s in seen if first <= s.line <= last)


def bound_by_loop(module: Module, function: str, name: str, line: int) -> bool:
    """See `SourceIndex.loop_bound`."""
    scope = subjects.function_named(module, function) if function not in ("", "<module>") else None
    scope = scope or module.top
    loop = places.loop_at(module, line)
    if loop is None or name in scope.params or scope.resolve(name) is not scope:
        return False
    outer = loop.parent.statement() if loop.parent is not None else None
    for touch in module.touches.get(name, ()):
        fresh = touch.removal in ("fresh", "maxlen") or touch.store == "assign"
        if not fresh or touch.keys or touch.scope is not scope or not isinstance(touch.base, ast.Name):
            continue
        if touch.value is not None and syntax.mentions(touch.value, touch.base):
            continue
        around = touch.loop.statement() if touch.loop is not None else None
        if around is loop and touch.removal is not None:
            return True
        if around is outer and touch.node.lineno < loop.first:
            return True
    return False
