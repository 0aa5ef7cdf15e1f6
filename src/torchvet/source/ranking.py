"""Puts the stores into a holder in order: the one that a person would change first."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchvet.source import syntax
from torchvet.source.follow import Follower, Seen
from torchvet.source.holder import Part
from torchvet.source.project import Project
from torchvet.source.subjects import UNLIKELY
from torchvet.source.touches import StoreKind

_CONTAINER: dict[StoreKind, int] = {
    "append": 6, "extend": 6, "insert": 6, "add": 6, "put": 6, "item": 5, "setdefault": 5, "update": 4, "augmented": 3,
    "assign": 2, "setattr": 2, "call": 0,
}  # fmt: skip
_SINGLE: dict[StoreKind, int] = {**_CONTAINER, "augmented": 8, "assign": 7, "setattr": 7}
_INIT = {"__init__", "__new__", "__post_init__", "setUp", "build", "setup"}


def ranked(project: Project, follower: Follower, part: Part, first: Sequence[str]) -> list[Seen]:
    """The stores among the touches of a part of a name, best first; each statement once."""
    weights = _CONTAINER if _is_container(follower, part) else _SINGLE
    found = [s for s in follower.seen if s.touch.store is not None and _wanted(s)]
    if any(s.fit > UNLIKELY for s in found):
        found = [s for s in found if s.fit > UNLIKELY]
    found.sort(key=lambda s: _score(project, s, part, first, weights), reverse=True)
    kept: dict[tuple[str, int, int], Seen] = {}
    for one in found:
        kept.setdefault((one.module.path, one.line, one.touch.node.col_offset), one)
    return list(kept.values())


def _wanted(seen: Seen) -> bool:
    """Calls of methods that nobody knows say something about the name itself only."""
    return seen.touch.store != "call" or seen.depth == 0


def _is_container(follower: Follower, part: Part) -> bool:
    if part.keys:
        return True
    fresh = [s.touch.value for s in follower.seen if s.touch.removal == "fresh" and s.touch.rebinds]
    made = [v for v in fresh if isinstance(v, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.Call))]
    plain = [v for v in fresh if isinstance(v, (ast.Constant, ast.UnaryOp))]
    return bool(made) or not plain


def _score(
    project: Project, seen: Seen, part: Part, first: Sequence[str], weights: dict[StoreKind, int]
) -> tuple[int, ...]:
    touch = seen.touch
    assert touch.store is not None
    return (
        key_fit(touch.keys, part.keys),
        _carries(project, seen),
        seen.fit,
        heat(project, seen),
        weights[touch.store],
        _grows(seen),
        int(seen.module.path in first),
        -seen.depth,
        -seen.line,
    )


def key_fit(stored: tuple[str | None, ...], asked: tuple[str | None, ...]) -> int:
    """1 where a literal key agrees, -1 where one differs, 0 where the text does not tell."""
    pairs = [(s, a) for s, a in zip(stored, asked, strict=False) if s is not None and a is not None]
    if any(s != a and s.startswith(("'", '"')) for s, a in pairs):
        return -1
    return int(any(s == a for s, a in pairs))


def _carries(project: Project, seen: Seen) -> int:
    """0 for what is no tensor, or the name's own value detached; 1 otherwise."""
    value = seen.touch.value
    if value is None:
        return 1
    if syntax.is_number(_plain(value)) or _is_given_number(project, seen, value):
        return 0
    lets_go = any(isinstance(n, ast.Attribute) and n.attr in ("detach", "data") for n in ast.walk(value))
    others = {n.func.id for n in ast.walk(value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    sums = any(isinstance(n, (ast.BinOp, ast.AugAssign)) for n in ast.walk(value))
    own = lets_go and seen.touch.rebinds and syntax.mentions(value, seen.touch.base)
    return 0 if own and not sums and others <= {"tuple", "list", "map"} else 1


def _plain(value: ast.expr) -> ast.expr:
    """What a tensor is made of that is written down: `torch.as_tensor(float(x))` holds a number."""
    made = isinstance(value, ast.Call) and syntax.ident(value.func) in ("tensor", "as_tensor") and bool(value.args)
    return value.args[0] if made else value  # type: ignore[attr-defined]


def _is_given_number(project: Project, seen: Seen, value: ast.expr) -> bool:
    """Whether a variable is only ever a number: by all its assignments, or by what all callers pass."""
    if not isinstance(value, ast.Name):
        return False
    home = seen.touch.scope.resolve(value.id)
    values = [
        t.value
        for t in seen.module.touches.get(value.id, ())
        if isinstance(t.base, ast.Name) and t.store in ("assign", "augmented") and t.scope.resolve(value.id) is home
    ]
    if value.id in home.params:
        values += [argument for _, _, argument in project.arguments(home, value.id)]
    return bool(values) and all(syntax.is_number(v) for v in values)


def heat(project: Project, seen: Seen) -> int:
    """3 in a loop or in a function that runs again and again, 2 in another that is called, 0 in a constructor: a loop
    there sets up."""
    function = seen.touch.scope.function()
    if function is not None and (function.name in _INIT or project.only_from_init(function)):
        return 3 if seen.again else 0
    if seen.touch.loop is not None or seen.again or seen.touch.scope.kind == "lambda":
        return 3
    if function is None:
        return 0
    if project.is_hot(function):
        return 3
    return 2 if project.is_called(function) else 1


def _grows(seen: Seen) -> int:
    """1 where the new value is made from the old one."""
    value = seen.touch.value
    return int(value is not None and seen.touch.rebinds and syntax.mentions(value, seen.touch.base))
