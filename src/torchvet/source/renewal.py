"""Whether a name is bound anew in every pass to what owes nothing to its value before: then it keeps nothing.

Batches that get longer over a run look like a tensor that is joined to itself (`x = torch.cat([x, y])`) if only the
bytes are known: in both there is one tensor, larger each time. What tells them apart is what the value is made of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import syntax
from torchvet.source.follow import Follower
from torchvet.source.holder import Part
from torchvet.source.module import Module, Turns
from torchvet.source.project import Project
from torchvet.source.scopes import Loop, Scope
from torchvet.source.subjects import UNLIKELY, Variable
from torchvet.source.touches import StoreKind, Touch

_BINDS: frozenset[StoreKind | None] = frozenset(("assign", "setattr", "item"))
_ADDS: frozenset[StoreKind | None] = frozenset(("append", "extend", "insert", "add", "put", "update", "setdefault"))
_OTHER_SIZE = frozenset(("resize_", "resize_as_", "set_"))
_INIT = frozenset(("__init__", "__new__", "__post_init__"))
_MOST = 200
"""Values that are looked into for one answer; what needs more is taken for one that owes something."""


def is_renewed(project: Project, follower: Follower, part: Part) -> bool:
    """See `SourceIndex.is_renewed`. `follower` has followed the part of a name."""
    own = [(s.module, s.touch) for s in follower.seen if s.fit > UNLIKELY and syntax.ident(s.touch.base) == part.name]
    if any(isinstance(t.node, ast.Call) and syntax.ident(t.node.func) in _OTHER_SIZE for _, t in own):
        return False
    stores = [(m, t) for m, t in own if _binds(t) or _adds(t)]
    loops = list(_turns(follower, part.name))
    anew = [(m, t) for m, t in stores if _is_anew(project, m, t, part.name)]
    depending = [(m, t) for m, t in stores if not any(t is a for _, a in anew) and _again(project, t)]
    if not (anew or loops or depending):
        return False
    return all(
        any(m is n and _comes_before(n, a, t) for n, a in anew)
        or any(_is_of(f, t) for f in loops)
        or _is_given_anew(project, t, part.name)
        for m, t in depending
    )


def _binds(touch: Touch) -> bool:
    """Whether the value before is gone, whatever it was. (An item under a key that is no literal is a tensor's.)"""
    return touch.rebinds or (touch.store in _BINDS and None not in touch.keys)


def _adds(touch: Touch) -> bool:
    """Whether a statement makes a container longer."""
    more = isinstance(touch.node, ast.AugAssign) and isinstance(touch.value, (ast.List, ast.ListComp, ast.Tuple))
    return more or touch.store in _ADDS


def _again(project: Project, touch: Touch) -> bool:
    """Whether a statement is run again and again."""
    function = touch.scope.function()
    return _around(touch) is not None or (
        function is not None and function.name not in _INIT and not project.runs_once(function)
    )


def _around(touch: Touch) -> Loop | None:
    return touch.loop.statement() if touch.loop is not None else None


def _is_anew(project: Project, module: Module, touch: Touch, name: str) -> bool:
    if not _binds(touch) or not _again(project, touch):
        return False
    return touch.value is None or not _owes(project, module, touch.scope, touch.value, name)


def _is_given_anew(project: Project, touch: Touch, name: str) -> bool:
    """Whether a function changes a parameter of its own, for which every caller has something new."""
    function = touch.scope.function()
    if function is None or touch.scope is not function or name not in function.params or _around(touch) is not None:
        return False
    given = list(project.arguments(function, name))
    return bool(given) and not any(_owes(project, m, site.scope, value, name) for m, site, value in given)


def _owes(project: Project, module: Module, scope: Scope, value: ast.AST, name: str) -> bool:
    """Whether a value is made, by way of other names, of `name` or of a container that gets longer."""
    waiting: list[tuple[Module, Scope, ast.AST]] = [(module, scope, value)]
    known: set[tuple[int, str]] = set()
    for _ in range(_MOST):
        if not waiting:
            return False
        here, where, node = waiting.pop()
        for one in ast.walk(node):
            if not isinstance(one, (ast.Name, ast.Attribute)):
                continue
            ident = syntax.ident(one)
            if ident == name:
                return True
            home = _home(one, where)
            if (home, ident) in known:
                continue
            known.add((home, ident))
            touches = [t for t in here.touches.get(ident, ()) if _home(t.base, t.scope) == home]
            if any(_adds(t) and _again(project, t) and not _is_short(project, t, touches) for t in touches):
                return True
            waiting += [(here, t.scope, t.value) for t in touches if t.value is not None]
            waiting += [(here, t.scope, t.node) for t in here.turns.get(ident, ()) if _home(one, t.scope) == home]
            function = where.resolve(ident) if isinstance(one, ast.Name) else None
            if function is not None and ident in function.params:
                waiting += [(m, site.scope, given) for m, site, given in project.arguments(function, ident)]
    return True


def _home(base: ast.Name | ast.Attribute, scope: Scope) -> int:
    """What tells variables of one name apart; attributes of one name are taken for the same."""
    return id(scope.resolve(base.id)) if isinstance(base, ast.Name) else 0


def _is_short(project: Project, touch: Touch, touches: list[Touch]) -> bool:
    """Whether a container is made within the pass that fills it: `rows = []` in the loop, or in a function of it."""
    for one in touches:
        if one.removal in ("fresh", "maxlen") and not one.keys and one.scope is touch.scope:
            loop, outer = _around(touch), _around(one)
            while loop is not None and loop is not outer:
                loop = loop.parent.statement() if loop.parent is not None else None
            if loop is outer and (outer is not None or _again(project, one)):
                return True
    return False


def _turns(follower: Follower, name: str) -> Iterator[Turns]:
    """The loops whose variable a holder is."""
    for subject in follower.leads:
        if subject.name != name:
            continue
        if isinstance(subject, Variable):
            turns = subject.module.turns.get(name, ())
            yield from (t for t in turns if isinstance(t.target, ast.Name) and t.scope.resolve(name) is subject.scope)
    for module in {id(s.module): s.module for s in follower.seen}.values():
        yield from (t for t in module.turns.get(name, ()) if isinstance(t.target, ast.Attribute))


def _is_of(turns: Turns, touch: Touch) -> bool:
    """Whether a statement stands right in the loop whose variable it changes."""
    return turns.scope is touch.scope and turns.loop.statement() is _around(touch)


def _comes_before(module: Module, first: Touch, then: Touch) -> bool:
    """Whether every pass that comes to one statement has come through another before."""
    if first.scope is not then.scope or _around(first) is not _around(then):
        return False
    line = then.node.lineno
    for node in ast.walk(module.tree):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None)):
            if not isinstance(body, list):
                continue
            at = next((i for i, s in enumerate(body) if s is first.node or getattr(s, "value", s) is first.node), None)
            if at is not None:
                return any(s.lineno <= line <= (s.end_lineno or s.lineno) for s in body[at + 1 :])
    return False
