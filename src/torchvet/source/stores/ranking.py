"""Puts the stores into a holder in order: the one that a person would change first."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchvet.source import syntax
from torchvet.source.holder import Part
from torchvet.source.program.mutations import Mutation, StoreKind
from torchvet.source.program.project import Project
from torchvet.source.stores.aliases import AliasSearch, Use

_CONTAINER: dict[StoreKind, int] = {
    "append": 6, "extend": 6, "insert": 6, "add": 6, "put": 6, "item": 5, "setdefault": 5, "update": 4, "augmented": 3,
    # A container is bound once and grows by other statements.
    "assign": 2, "setattr": 2, "call": 0,
}  # fmt: skip
# A single tensor grows by being bound anew, as in `total = total + loss`.
_SINGLE: dict[StoreKind, int] = {**_CONTAINER, "augmented": 8, "assign": 7, "setattr": 7}
_SETS_UP = {"__init__", "__new__", "__post_init__", "setUp", "build", "setup"}
_CONTAINERS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.Call)


def ranked(project: Project, search: AliasSearch, part: Part, first: Sequence[str]) -> list[Use]:
    """The stores among the uses of a part of a name, best first; each statement once."""
    weights = _CONTAINER if _is_container(search, part) else _SINGLE
    # Another class's attribute of the same name counts only where nothing else stores.
    found = [u for u in search.likely if _counts(u)] or [u for u in search.uses if _counts(u)]
    found.sort(key=lambda u: _score(project, u, part, first, weights), reverse=True)
    each_once: dict[tuple[str, int, int], Use] = {}
    for one in found:
        # After sorting: of several ways to one statement the surest stays.
        each_once.setdefault((one.mutation.file.path, one.line, one.mutation.node.col_offset), one)
    return list(each_once.values())


def _counts(use: Use) -> bool:
    """Whether it stores. A call of an unknown method counts for the name itself only, not for its aliases."""
    store = use.mutation.store
    return store is not None and (store != "call" or use.depth == 0)


def _is_container(search: AliasSearch, part: Part) -> bool:
    # A name with a key after it is subscripted.
    if part.keys:
        return True
    # What it is made as says so; without that, a holder that grew is more often a container than a number.
    fresh = [u.mutation.value for u in search.uses if u.mutation.removal == "fresh" and u.mutation.rebinds]
    made = any(isinstance(v, _CONTAINERS) for v in fresh)
    # `total = 0` (or `-1`) is a number's beginning.
    return made or not any(isinstance(v, (ast.Constant, ast.UnaryOp)) for v in fresh)


def _score(
    project: Project, use: Use, part: Part, first: Sequence[str], weights: dict[StoreKind, int]
) -> tuple[int, ...]:
    mutation = use.mutation
    assert mutation.store is not None
    # Most telling first: the same key and what carries a tensor before the kind of store; the line breaks ties.
    return (
        key_fit(mutation.keys, part.keys),
        _carries(project, mutation),
        use.fit,
        heat(project, use),
        weights[mutation.store],
        _is_made_of_itself(mutation),
        int(mutation.file.path in first),
        -use.depth,
        -use.line,
    )


def key_fit(stored: tuple[str | None, ...], asked: tuple[str | None, ...]) -> int:
    """1 where a literal key agrees, -1 where one differs, 0 where the text does not say."""
    pairs = [(s, a) for s, a in zip(stored, asked, strict=False) if s is not None and a is not None]
    if any(s != a and s.startswith(("'", '"')) for s, a in pairs):
        return -1
    return int(any(s == a for s, a in pairs))


def _carries(project: Project, mutation: Mutation) -> int:
    """0 for what is no tensor, or the name's own value detached; 1 otherwise."""
    match mutation.value:
        case ast.Call(func, [given, *_]) if syntax.ident(func) in ("tensor", "as_tensor"):
            plain = given  # `torch.as_tensor(float(x))` holds a number
        case plain:
            pass
    if mutation.value is None:
        return 1
    if syntax.is_number(plain) or _is_given_number(project, mutation, mutation.value):
        return 0
    # `hidden = hidden.detach()` cuts what another statement has stored.
    return 0 if _is_made_of_itself(mutation) and _is_only_detached(mutation.value) else 1


def _is_only_detached(value: ast.expr) -> bool:
    """Whether a value is what an expression reads, detached, or a row of such."""
    nodes = list(ast.walk(value))
    detached = any(isinstance(n, ast.Attribute) and n.attr in ("detach", "data") for n in nodes)
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return detached and called <= {"tuple", "list", "map"} and not any(isinstance(n, ast.BinOp) for n in nodes)


def _is_given_number(project: Project, mutation: Mutation, value: ast.expr) -> bool:
    """Whether a variable is only ever a number: by all its assignments, or by what all callers pass."""
    if not isinstance(value, ast.Name):
        return False
    home = mutation.scope.resolve(value.id)
    bound = mutation.file.bindings_of(value.id, home)
    values = [m.value for m in bound if m.store in ("assign", "augmented")]
    values += [argument for _, argument in project.arguments(home, value.id)]
    return bool(values) and all(syntax.is_number(v) for v in values)


def heat(project: Project, use: Use) -> int:
    """3 in a loop or a function that repeats, 2 in another that is called, 0 in a constructor: a loop there sets up."""
    scope, function = use.mutation.scope, use.mutation.scope.function()
    if function is not None and (function.name in _SETS_UP or project.constructs(function)):
        # A constructor that is called in a loop makes other objects; `again` says that the object is handed
        # to it.
        return 3 if use.again else 0
    if use.in_loop or scope.kind == "lambda":
        return 3
    if function is None:
        return 0
    if project.is_hot(function):
        return 3
    return 2 if project.is_called(function) else 1


def _is_made_of_itself(mutation: Mutation) -> bool:
    """Whether the new value is made from the old one."""
    return mutation.value is not None and mutation.rebinds and syntax.mentions(mutation.value, mutation.base)
