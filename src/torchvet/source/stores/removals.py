"""What bounds a holder: things taken out, limits, guards on its length, and where it is made anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import syntax
from torchvet.source.holder import Part
from torchvet.source.program.module import Module
from torchvet.source.program.mutations import Mutation
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.statements import spans
from torchvet.source.stores import initial_values, name_resolution, ranking
from torchvet.source.stores.aliases import AliasSearch, Use
from torchvet.source.stores.answers import Removal, removed
from torchvet.source.walking import Loop

_TAKES_OUT = {"pop", "popleft", "clear", "del", "slice", "remove", "get", "fresh", "maxlen"}


def of(project: Project, search: AliasSearch, part: Part) -> list[Removal]:
    """The removals among the uses of a part of a name, in the order of files and lines."""
    certain = [use for use in search.likely if ranking.key_fit(use.mutation.keys, part.keys) >= 0]
    found: list[Removal] = []
    for use in certain:
        mutation = use.mutation
        if mutation.removal is None:
            continue
        if mutation.removal != "fresh" or (_is_made_anew(project, mutation) and not initial_values.starts(mutation)):
            found.append(removed(mutation, mutation.removal, use.in_loop))
    found += _rings(certain)
    found += _guards(search, certain)
    return sorted(set(found))


def _is_made_anew(project: Project, mutation: Mutation) -> bool:
    """Whether a fresh value replaces one that was filled, rather than starting the first."""
    base, function = mutation.base, mutation.scope.function()
    if function is not None and project.constructs(function):
        return False
    if mutation.keys:
        return project.is_hot(function) or (mutation.loop is not None and mutation.loop.parent is not None)
    if mutation.loop is not None:
        return True
    if function is None or (isinstance(base, ast.Name) and mutation.scope.resolve(base.id) is mutation.scope):
        return False
    if isinstance(base, ast.Name) or _is_self(base):
        return not project.runs_once(function)
    return project.is_hot(function)


def _is_self(base: ast.Attribute) -> bool:
    inner, _ = syntax.peel(base.value)
    return isinstance(inner, ast.Name) and inner.id in ("self", "cls")


def _rings(uses: list[Use]) -> Iterator[Removal]:
    """`x[i] = v` where `i` is computed with `%`: a ring buffer."""
    for use in uses:
        node = use.mutation.node
        if use.mutation.store == "item" and isinstance(node, ast.Assign):
            subscripts = [t for t in node.targets if isinstance(t, ast.Subscript)]
            if any(_is_wrapped(target.slice, use.mutation.scope) for target in subscripts):
                yield removed(use.mutation, "modulo", use.in_loop)


def _is_wrapped(index: ast.expr, scope: Scope) -> bool:
    if not isinstance(index, (ast.Name, ast.Attribute)):
        return False
    for mutation in scope.file.mutations_of(index, scope):
        if any(syntax.remainders(mutation.value or mutation.base)):
            return mutation.store in ("assign", "augmented")
        if isinstance(mutation.node, ast.AugAssign) and isinstance(mutation.node.op, ast.Mod):
            return True
    return False


def _guards(search: AliasSearch, uses: list[Use]) -> Iterator[Removal]:
    for module in {use.mutation.file: None for use in uses}:
        here = [use for use in uses if use.mutation.file is module]
        for guard, scope in module.guards:
            if any(_limits(guard, over, here, scope) for over in _lengths(search, guard.test, scope)):
                in_loop = module.loop_at(guard.lineno) is not None
                yield Removal(module.path, guard.lineno, "len-guard", in_loop)


_OVER: dict[type[ast.cmpop], tuple[bool, bool]] = {
    ast.Gt: (True, False),
    ast.GtE: (True, False),
    ast.Lt: (False, True),
    ast.LtE: (False, True),
    ast.Eq: (True, True),
    ast.NotEq: (False, False),
}
"""By operator, whether a comparison holds when what stands on its left, and on its right, is large."""


def _lengths(search: AliasSearch, test: ast.expr, scope: Scope) -> Iterator[bool]:
    """For each comparison of the object's length: true where it holds when the length is large, false when small."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            for index, operand in enumerate([node.left, *node.comparators]):
                over = _OVER.get(type(node.ops[min(index, len(node.ops) - 1)]))
                if over is not None and _is_length_of(search, operand, scope):
                    yield over[index > 0]


def _is_length_of(search: AliasSearch, operand: ast.expr, scope: Scope) -> bool:
    if any(syntax.remainders(operand)):
        return False  # `len(x) % n` says how often, not how long
    return any(search.means(syntax.peel(on)[0], scope) for on in syntax.measured(operand))


def _limits(guard: ast.If | ast.While | ast.IfExp, over: bool, uses: list[Use], scope: Scope) -> bool:
    """Whether something is taken out when the length is large, or put in only while it is small."""
    body = guard.body if isinstance(guard.body, list) else [guard.body]
    orelse = guard.orelse if isinstance(guard.orelse, list) else [guard.orelse]
    large, small = (body, orelse) if over else (orelse, body)
    when_large = [use.mutation for use in uses if spans(large, use.line)]
    if any(m.removal in _TAKES_OUT for m in when_large):
        return True
    if any(use.mutation.store is not None for use in uses if spans(small, use.line)):
        return not any(m.store in ("append", "extend", "insert") for m in when_large)
    leaves = bool(large) and isinstance(large[-1], (ast.Return, ast.Break, ast.Continue, ast.Raise))
    after = guard.end_lineno or guard.lineno
    later = (use.mutation for use in uses if use.line > after)
    return leaves and any(m.store is not None and m.scope is scope for m in later)


def bound_by_loop(module: Module, function: str, name: str, line: int) -> bool:
    """See `SourceIndex.loop_bound`."""
    scope = name_resolution.function_named(module, function) if function not in ("", "<module>") else None
    scope = scope or module.top
    loop = module.loop_at(line)
    if loop is None or name in scope.params or scope.resolve(name) is not scope:
        return False
    bound = (m for m in module.mutations.get(name, ()) if m.scope is scope and isinstance(m.base, ast.Name))
    return any(_starts_within(mutation, loop) for mutation in bound)


def _starts_within(mutation: Mutation, loop: Loop) -> bool:
    """Whether a variable starts afresh in every turn of a loop, or right before the loop."""
    fresh = mutation.removal in ("fresh", "maxlen") or mutation.store == "assign"
    if not fresh or mutation.keys or (mutation.value is not None and syntax.mentions(mutation.value, mutation.base)):
        return False
    if mutation.around is loop and mutation.removal is not None:
        return True
    return mutation.around is loop.outer() and mutation.line < loop.first
