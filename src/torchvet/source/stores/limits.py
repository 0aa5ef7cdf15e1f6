"""What source says of how often a statement can store: the turns of the loop around it, the items of a dataset."""

from __future__ import annotations

import ast

from torchvet.source import syntax
from torchvet.source.model.expressions import names_in
from torchvet.source.program.module import Module
from torchvet.source.program.scopes import Scope
from torchvet.source.statements import spans
from torchvet.source.stores import numbers
from torchvet.source.walking import Loop

_SEEN_THROUGH = frozenset(("enumerate", "tqdm", "trange", "track", "list", "tuple", "sorted", "reversed", "range"))
_DEEPEST = 3
"""Functions outward through their only calls; names and wrappers around a range."""


def turns_around(module: Module, line: int) -> tuple[int, int] | None:
    """How often a line is run at most, and the line of the loop that says so: the `for` statements around it, and
    around the only call of its function, go over ranges that the program states. None where one does not."""
    total, first = 1, 0
    for _ in range(_DEEPEST):
        loop = module.loop_at(line)
        while loop is not None:
            # One loop of unknown length, and the product says nothing.
            turns = _turns_of(loop, module.scope_at(line))
            if turns is None:
                return None
            # The innermost loop is the one to name: it is the one around the store.
            total, first = total * turns, first or loop.first
            loop = loop.outer()
        function = module.function_at(line)
        calls = list(module.project.calls(function.name)) if function is not None else []
        if len(calls) != 1:  # several calls are an unknown number
            break
        module, line = calls[0].file, calls[0].line
    return (total, first) if first else None


def turns_of(module: Module, line: int) -> int | None:
    """The turns of the `for` loop at a line, where the program states them."""
    loop = next((one for one in module.loops if one.first == line), None)
    return _turns_of(loop, module.scope_at(line)) if loop is not None else None


def _turns_of(loop: Loop, scope: Scope) -> int | None:
    return _turns(loop.node.iter, scope) if isinstance(loop.node, ast.For) else None


def _turns(over: ast.expr, scope: Scope, depth: int = 0) -> int | None:
    """The number of elements of what a loop goes over, where it is written down."""
    if depth > _DEEPEST:
        return None
    if isinstance(over, (ast.List, ast.Tuple, ast.Set)):
        return None if any(isinstance(e, ast.Starred) for e in over.elts) else len(over.elts)
    if isinstance(over, ast.Name):
        value = _bound_once(over.id, scope)
        return _turns(value, scope, depth + 1) if value is not None else None
    if not isinstance(over, ast.Call) or syntax.ident(over.func) not in _SEEN_THROUGH or not over.args:
        return None
    if syntax.ident(over.func) in ("range", "trange"):
        return _turns_of_range(over.args, scope)
    return _turns(over.args[0], scope, depth + 1)


def _turns_of_range(args: list[ast.expr], scope: Scope) -> int | None:
    known = [n for n in (numbers.number(a, scope) for a in args) if n is not None]
    # `range(0, n, 0)` raises.
    # One unknown argument, and the others say nothing.
    valid = len(known) == len(args) <= 3 and 0 not in known[2:]
    return len(range(*known)) if valid else None


def _bound_once(name: str, scope: Scope) -> ast.expr | None:
    """The value that a name has, where one statement binds it and nothing adds to it."""
    # Its value comes with each call or turn.
    if name in scope.resolve(name).params or scope.file.loop_variables.get(name):
        return None
    found = scope.file.bindings_of(name, scope)
    return found[0].value if len(found) == 1 and found[0].rebinds else None


def is_keyed_by_index(module: Module, line: int) -> bool:
    """Whether a dataset's method stores under a key made of what it is given: at most as many items as it has."""
    function = module.function_at(line)
    if function is None or function.node is None or not _is_in_dataset(module, function):
        return False
    # Without `self`.
    made_of_given = set(function.params[1:])
    keys: list[ast.expr] = []
    assigned = (n for n in ast.walk(function.node) if isinstance(n, ast.Assign))
    for target, node in ((target, one) for one in assigned for target in one.targets):
        # `key = (index, self.split)` is made of the index too.
        if isinstance(target, ast.Name) and names_in(node.value) & made_of_given:
            made_of_given.add(target.id)
        if isinstance(target, ast.Subscript) and spans([node], line):
            keys.append(target.slice)
    # Also a key of several parts: with one that is the index it still is one for each item and setting.
    return bool(keys) and all(names_in(key) & made_of_given for key in keys)


def _is_in_dataset(module: Module, function: Scope) -> bool:
    """Whether a function is a method of a class whose number of indexes `__len__` limits."""
    owner = function.owner_class()
    methods = ("__getitem__", "__len__") if owner is not None else ()
    return bool(methods) and all(any(s.parent is owner for s in module.functions(m)) for m in methods)


def of_trainings(module: Module, line: int, value: str) -> int | None:
    """The line of the loop around a statement that stores a model which the loop makes and trains: one for each
    training. `for fold in folds: model = build(); optimizer = SGD(model.parameters()); ...; models.append(model)`."""
    loop = module.loop_at(line)
    stored = syntax.expression(value)
    if loop is None or stored is None:
        return None
    calls = (n for n in ast.walk(loop.node) if isinstance(n, ast.Call))
    of = [syntax.receiver(c) for c in calls if syntax.ident(c.func) in ("parameters", "named_parameters")]
    trained = {on.id for on in of if isinstance(on, ast.Name)}
    # A model that is stored and not trained in the loop may be a snapshot of one that is.
    return loop.first if any(_is_made_in(loop, n, module.scope_at(line)) for n in trained & names_in(stored)) else None


def _is_made_in(loop: Loop, name: str, scope: Scope) -> bool:
    """Whether a call in the loop makes what a name has, of other things than what it had, and nothing else does."""
    bound = [m for m in scope.file.bindings_of(name, scope) if m.rebinds]
    made = [m.value for m in bound if isinstance(m.value, ast.Call) and m.around is loop]
    # `model = wrap(model)` beside `model = build()` is fine; alone it is the model of the turn before.
    return any(name not in names_in(value) for value in made) and len(made) == len(bound)
