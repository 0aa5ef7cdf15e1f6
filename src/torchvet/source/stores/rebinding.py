"""Whether every pass binds a name to a value that is not made from the one before: then the name keeps nothing.

Batches that get longer over a run look like a tensor that is joined to itself (`x = torch.cat([x, y])`) if only the
bytes are known: in both there is one tensor, larger each time. What the value is made of shows which it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import syntax
from torchvet.source.holder import Part
from torchvet.source.program.module import LoopVariable
from torchvet.source.program.mutations import Mutation
from torchvet.source.program.project import CONSTRUCTORS, Project
from torchvet.source.program.scopes import Scope, Variable
from torchvet.source.statements import path_to_node, spans
from torchvet.source.stores.aliases import AliasSearch

_OTHER_SIZE = frozenset(("resize_", "resize_as_", "set_"))
_MOST = 200
"""Values that are followed for one answer. A search that needs more counts as one that found a debt."""


def is_rebound(project: Project, search: AliasSearch, part: Part) -> bool:
    """See `SourceIndex.is_renewed`. `search` has followed the part of a name."""
    own = [use.mutation for use in search.likely if syntax.ident(use.mutation.base) == part.name]
    # `resize_` and its like make a tensor larger under the name that it has.
    if any(syntax.ident(getattr(m.node, "func", None)) in _OTHER_SIZE for m in own):
        return False
    repeated = [m for m in own if _recurs(project, m)]
    anew = [m for m in repeated if _binds_anew(project, m, part.name)]
    # A loop's variable is new in every turn, whatever its body then does to it.
    new: list[Mutation | LoopVariable] = [*anew, *_loop_variables(search, part.name)]
    # Without any statement found nothing is proven.
    return bool(repeated or new) and all(
        m in anew or any(_comes_before(one, m) for one in new) or _is_given_anew(project, m, part.name)
        for m in repeated
    )


def _recurs(project: Project, mutation: Mutation) -> bool:
    """Whether a statement binds or adds to a name again and again."""
    return (_binds(mutation) or mutation.adds) and _again(project, mutation)


def _binds_anew(project: Project, mutation: Mutation, name: str) -> bool:
    """Whether a statement binds a name to what nothing of its value before is in."""
    if not _binds(mutation):
        return False
    return mutation.value is None or not _owes(project, mutation.scope, mutation.value, name)


def _binds(mutation: Mutation) -> bool:
    """Whether the value before is gone, whatever it was. (An item under a key that is no literal is a tensor's.)"""
    # `x["a"] = y` replaces what was under that key.
    return mutation.rebinds or (mutation.store == "item" and None not in mutation.keys)


def _again(project: Project, mutation: Mutation) -> bool:
    """Whether a statement is run again and again."""
    function = mutation.scope.function()
    if mutation.around is not None:
        return True
    return function is not None and function.name not in CONSTRUCTORS and not project.runs_once(function)


def _is_given_anew(project: Project, mutation: Mutation, name: str) -> bool:
    """Whether a function changes a parameter of its own, for which every caller has something new."""
    function = mutation.scope.function()
    # In a loop of its own it would add to the caller's object again and again. `self.x` is no parameter `x`.
    own = isinstance(mutation.base, ast.Name)
    if function is None or not own or mutation.scope is not function or mutation.around is not None:
        return False
    given = list(project.arguments(function, name))
    return bool(given) and not any(_owes(project, site.scope, value, name) for site, value in given)


def _owes(project: Project, scope: Scope, value: ast.AST, name: str) -> bool:
    """Whether a value is made, by way of other names, of `name` or of a container that gets longer."""
    waiting: list[tuple[Scope, ast.AST]] = [(scope, value)]
    # A search by breadth or depth is all the same here: any debt ends it.
    known: set[tuple[int, str]] = set()
    for _ in range(_MOST):
        if not waiting:
            return False
        where, node = waiting.pop()
        for one in ast.walk(node):
            if not isinstance(one, (ast.Name, ast.Attribute)):
                continue
            ident, home = syntax.ident(one), _home(one, where)
            # By name whatever object has it: a debt too many is the safe side.
            if ident == name:
                return True
            if (home, ident) not in known:  # names lead in rings: `x = f(y)`, `y = g(x)`
                known.add((home, ident))
                if _piles_up(project, one, where):
                    return True
                waiting += _made_of(project, one, where)
    return True  # too much to follow: not proven free of a debt


def _same_name(one: ast.Name | ast.Attribute, scope: Scope) -> list[Mutation]:
    home = _home(one, scope)
    return [m for m in scope.file.mutations.get(syntax.ident(one), ()) if _home(m.base, m.scope) == home]


def _piles_up(project: Project, one: ast.Name | ast.Attribute, scope: Scope) -> bool:
    """Whether a name is a container that gets longer from pass to pass."""
    found = _same_name(one, scope)
    return any(m.adds and _again(project, m) and not _is_short(project, m, found) for m in found)


def _made_of(project: Project, one: ast.Name | ast.Attribute, scope: Scope) -> Iterator[tuple[Scope, ast.AST]]:
    """What a name's value is made of: assigned, looped over, or passed by callers, each with its scope."""
    ident, home = syntax.ident(one), _home(one, scope)
    yield from ((m.scope, m.value) for m in _same_name(one, scope) if m.value is not None)
    variables = scope.file.loop_variables.get(ident, ())
    yield from ((v.scope, v.node) for v in variables if _home(one, v.scope) == home)
    if isinstance(one, ast.Name):
        arguments = project.arguments(scope.resolve(ident), ident)
        yield from ((site.scope, given) for site, given in arguments)


def _home(base: ast.Name | ast.Attribute, scope: Scope) -> int:
    """What distinguishes variables of one name; attributes of one name are taken for the same."""
    # Whose attribute it is is rarely known.
    return id(scope.resolve(base.id)) if isinstance(base, ast.Name) else 0


def _is_short(project: Project, mutation: Mutation, others: list[Mutation]) -> bool:
    """Whether a container is made within the pass that fills it: `rows = []` in the loop, or in a function of it."""
    for one in others:
        if one.removal in ("fresh", "maxlen") and not one.keys and one.scope is mutation.scope:
            loop, outer = mutation.around, one.around
            while loop is not None and loop is not outer:
                loop = loop.outer()
            # Made anew as often as it is filled, it holds what one pass puts in and no more.
            # Outside of all loops it must be a function that runs again and again, else it is made once
            # for all passes.
            if loop is outer and (outer is not None or _again(project, one)):
                return True
    return False


def _loop_variables(search: AliasSearch, name: str) -> Iterator[LoopVariable]:
    """The loop variables that a holder is."""
    for subject in search.aliases:
        if isinstance(subject, Variable) and subject.name == name:
            found = subject.scope.file.loop_variables.get(name, ())
            named = (v for v in found if isinstance(v.target, ast.Name))
            yield from (v for v in named if v.scope.resolve(name) is subject.scope)
    for module in {use.mutation.file: None for use in search.uses}:
        yield from (v for v in module.loop_variables.get(name, ()) if isinstance(v.target, ast.Attribute))


def _comes_before(first: Mutation | LoopVariable, then: Mutation) -> bool:
    """Whether every pass that runs one statement has run another, or begun the turn of a loop, before."""
    # In other loops they run in another number.
    if first.scope is not then.scope or first.around is not then.around:
        return False
    if isinstance(first, LoopVariable):
        return True
    path = path_to_node(first.file.tree, first.node)
    # Only as a statement of its own; within an expression it may be skipped.
    if not path or first.node not in (path[-1].statement, getattr(path[-1].statement, "value", None)):
        return False
    return any(spans([s], then.line) for s in path[-1].after)
