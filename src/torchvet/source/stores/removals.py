"""What bounds a holder: things taken out, limits, guards on its length, and where it is made anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torchvet.source import syntax
from torchvet.source.holder import Part
from torchvet.source.program.module import Module
from torchvet.source.program.mutations import Mutation
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.statements import last_line, spans
from torchvet.source.stores import name_resolution, ranking
from torchvet.source.stores.aliases import AliasSearch, Use
from torchvet.source.stores.answers import Removal, removed
from torchvet.source.text import name_set
from torchvet.source.walking import Loop

_MISSING = name_set("AttributeError KeyError NameError LookupError IndexError")
"""Errors of reading what is not there."""
_TAKES_OUT = {"pop", "popleft", "clear", "del", "slice", "remove", "get", "fresh", "maxlen"}


def of(project: Project, search: AliasSearch, part: Part) -> list[Removal]:
    """The removals among the uses of a part of a name, in the order of files and lines."""
    # What empties `stats["a"]` bounds nothing under `stats["b"]`.
    certain = [use for use in search.likely if ranking.key_fit(use.mutation.keys, part.keys) >= 0]
    found: list[Removal] = []
    for use in certain:
        mutation = use.mutation
        if mutation.removal is None:
            continue
        if mutation.removal != "fresh" or (_is_made_anew(project, mutation) and not _starts(mutation)):
            found.append(removed(mutation, mutation.removal, use.in_loop))
    found += _rings(certain)
    found += _guards(search, certain)
    # One statement may be found by several aliases.
    return sorted(set(found))


def _is_made_anew(project: Project, mutation: Mutation) -> bool:
    """Whether a fresh value replaces one that was filled, rather than starting the first."""
    base, function = mutation.base, mutation.scope.function()
    # A constructor makes the holder of a new object; it empties no other.
    if function is not None and project.constructs(function):
        return False
    # A key's own value is begun once for each key: `counts[k] = []` for a new one is no emptying.
    if mutation.keys:
        return project.is_hot(function) or (mutation.loop is not None and mutation.loop.parent is not None)
    if mutation.loop is not None:
        return True
    if function is None or (isinstance(base, ast.Name) and mutation.scope.resolve(base.id) is mutation.scope):
        return False
    inner = syntax.peel(base.value)[0] if isinstance(base, ast.Attribute) else None
    if isinstance(base, ast.Name) or (isinstance(inner, ast.Name) and inner.id in ("self", "cls")):
        # A function that runs once starts the holder.
        return not project.runs_once(function)
    return project.is_hot(function)


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
        # The first binding decides: an index is computed at one place.
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
                # Of `0 < len(x) < n` the operand in the middle has two operators: the one behind it.
                over = _OVER.get(type(node.ops[min(index, len(node.ops) - 1)]))
                if over is not None and _is_length_of(search, operand, scope):
                    yield over[index > 0]


def _is_length_of(search: AliasSearch, operand: ast.expr, scope: Scope) -> bool:
    if any(syntax.remainders(operand)):
        return False  # `len(x) % n` says how often, not how long
    return any(search.means(syntax.peel(on)[0], scope) for on in syntax.measured(operand))


def _limits(guard: ast.If | ast.While | ast.IfExp, over: bool, uses: list[Use], scope: Scope) -> bool:
    """Whether something is taken out when the length is large, or put in only while it is small."""
    # The arms of a conditional expression are expressions.
    body, orelse = (arm if isinstance(arm, list) else [arm] for arm in (guard.body, guard.orelse))
    large, small = (body, orelse) if over else (orelse, body)
    when_large = _in_block(large, uses)
    if any(m.removal in _TAKES_OUT for m in when_large):
        return True
    if any(m.store for m in _in_block(small, uses)):
        # `if len(x) < n: x.append(v) else: x.append(w)` limits nothing.
        # Item stores in the other arm replace: `else: x[i] = v`.
        return not any(m.store in ("append", "extend", "insert") for m in when_large)
    # `if len(x) > n: return`, and something is put in behind that.
    leaves = bool(large) and isinstance(large[-1], (ast.Return, ast.Break, ast.Continue, ast.Raise))
    # By line: the text's order within the function.
    behind = (use.mutation for use in uses if use.line > last_line(guard))
    return leaves and any(m.store and m.scope is scope for m in behind)


def bound_by_loop(module: Module, function: str, name: str, line: int) -> bool:
    """See `SourceIndex.loop_bound`."""
    scope = name_resolution.function_named(module, function) if function not in ("", "<module>") else None
    scope = scope or module.top
    # The loop whose runs it may outlive.
    loop = module.loop_at(line)
    if loop is None or name in scope.params or scope.resolve(name) is not scope:
        return False
    bound = (m for m in module.mutations.get(name, ()) if m.scope is scope and isinstance(m.base, ast.Name))
    return any(_starts_within(mutation, loop) for mutation in bound)


def _starts_within(mutation: Mutation, loop: Loop) -> bool:
    """Whether a variable starts afresh in every turn of a loop, or right before the loop."""
    fresh = mutation.removal in ("fresh", "maxlen") or mutation.store == "assign"
    # `x = x + [y]` starts nothing.
    if not fresh or mutation.keys or (mutation.value is not None and syntax.mentions(mutation.value, mutation.base)):
        return False
    # In the loop only a fresh value counts: another assignment may be a larger one each time.
    if mutation.around is loop and mutation.removal is not None:
        return True
    return mutation.around is loop.outer() and mutation.line < loop.first


# Whether a value starts a holder ------------------------------------------------------------------------------------


def _starts(mutation: Mutation) -> bool:
    """`if not hasattr(x, "rows"): x.rows = []`. Whether a fresh value starts a holder rather than empties it: it stands
    under a test of whether there is any yet, or where reading the holder failed."""
    for branch, arm in mutation.context.arms:
        if isinstance(branch, ast.If) and _is_absent(branch.test, mutation, there=arm == 1):
            return True
        # The arms of a `try` are what stands in `else`, then the handlers.
        caught = branch.handlers[arm - 1].type if isinstance(branch, ast.Try) and arm else None
        kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
        # A bare `except` may follow any error: its kind is None, whose name is empty.
        if all(syntax.ident(kind) in _MISSING for kind in kinds):
            return True
    return False


def _is_absent(test: ast.expr, mutation: Mutation, *, there: bool) -> bool:
    """Whether a test holds (`there`: fails) only where the holder has no value, or none that keeps anything."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_absent(test.operand, mutation, there=not there)
    if isinstance(test, ast.BoolOp):
        # One part of an `and` that holds is enough; where the whole `and` fails, any part may be the one that failed.
        parts = [_is_absent(one, mutation, there=there) for one in test.values]
        return any(parts) if isinstance(test.op, ast.And) is not there else all(parts)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _compares(test, mutation, there)
    return there and (_asks_for(test, mutation) or _is_target(test, mutation))


def _compares(test: ast.Compare, mutation: Mutation, there: bool) -> bool:
    op, left, right = test.ops[0], test.left, test.comparators[0]
    absent: tuple[type[ast.cmpop], ...] = (ast.IsNot, ast.NotEq) if there else (ast.Is, ast.Eq)
    # `x is None`, and `x == None` as some write it.
    if isinstance(op, absent) and isinstance(right, ast.Constant) and right.value is None:
        return _is_target(left, mutation)
    if not isinstance(op, ast.In if there else ast.NotIn):
        return False
    if mutation.keys:
        base, keys = syntax.peel(right)
        # `if k not in x: x[k] = []`.
        return base is not None and syntax.same(base, mutation.base) and len(keys) < len(mutation.keys)
    named = isinstance(left, ast.Constant) and left.value == syntax.ident(mutation.base)
    return named and syntax.terminal(right) in ("vars", "globals", "dir", "locals", "__dict__")


def _asks_for(test: ast.expr, mutation: Mutation) -> bool:
    """`hasattr(x, "rows")`."""
    if not (isinstance(test, ast.Call) and syntax.ident(test.func) == "hasattr" and len(test.args) == 2):
        return False
    name, base = test.args[1], mutation.base
    on = isinstance(base, ast.Attribute) and syntax.same(test.args[0], base.value)
    return on and isinstance(name, ast.Constant) and name.value == syntax.ident(base)


def _is_target(node: ast.expr, mutation: Mutation) -> bool:
    """Whether an expression reads what the statement binds, by way of `getattr` or `get` too."""
    base, keys = syntax.peel(node)
    return base is not None and syntax.same(base, mutation.base) and len(keys) == len(mutation.keys)


def _in_block(block: Sequence[ast.stmt | ast.expr], uses: list[Use]) -> list[Mutation]:
    return [use.mutation for use in uses if spans(block, use.line)]
