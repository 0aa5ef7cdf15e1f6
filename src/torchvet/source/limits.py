"""What source says of how often a statement can store: the turns of the loop around it, the items of a dataset."""

from __future__ import annotations

import ast

from torchvet.source import numbers, places, syntax
from torchvet.source.module import Module
from torchvet.source.project import Project
from torchvet.source.scopes import Loop, Scope

_SEEN_THROUGH = frozenset(("enumerate", "tqdm", "trange", "track", "list", "tuple", "sorted", "reversed", "range"))
_DEEPEST = 3


def turns_around(project: Project, module: Module, line: int) -> tuple[int, int] | None:
    """How often a line is run at most, and the line of the loop that says so: the `for` statements around it, and
    around the only call of its function, go over ranges that the program states. None where one does not."""
    total, first = 1, 0
    where: tuple[Module, int] | None = (module, line)
    for _ in range(_DEEPEST):
        if where is None:
            break
        here, at = where
        loop = places.loop_at(here, at)
        while loop is not None:
            node = _node_of(here, loop)
            function = places.function_at(here, at)
            turns = _turns(project, here, node.iter, function or here.top) if isinstance(node, ast.For) else None
            if turns is None:
                return None
            total, first = total * turns, first or loop.first
            loop = loop.parent.statement() if loop.parent is not None else None
        where = _only_call(project, here, at)
    return (total, first) if first else None


def turns_of(project: Project, module: Module, line: int) -> int | None:
    """The turns of the `for` loop at a line, where the program states them."""
    node = next((n for n in ast.walk(module.tree) if isinstance(n, ast.For) and n.lineno == line), None)
    return _turns(project, module, node.iter, places.function_at(module, line) or module.top) if node else None


def _only_call(project: Project, module: Module, line: int) -> tuple[Module, int] | None:
    """The one call of the function around a line; None at a module's top. Several calls are an unknown number."""
    function = places.function_at(module, line)
    if function is None:
        return None
    calls = [(m, site) for m in project.containing(function.name) for site in m.calls.get(function.name, ())]
    return (calls[0][0], calls[0][1].node.lineno) if len(calls) == 1 else None


def _node_of(module: Module, loop: Loop) -> ast.AST | None:
    kinds = (ast.For, ast.AsyncFor, ast.While)
    return next((n for n in ast.walk(module.tree) if isinstance(n, kinds) and n.lineno == loop.first), None)


def _turns(project: Project, module: Module, over: ast.expr, scope: Scope, depth: int = 0) -> int | None:
    """The number of elements of what a loop goes over, where it is written down."""
    if depth > _DEEPEST:
        return None
    if isinstance(over, (ast.List, ast.Tuple, ast.Set)):
        return None if any(isinstance(e, ast.Starred) for e in over.elts) else len(over.elts)
    if isinstance(over, ast.Name):
        value = _bound_once(module, over.id, scope)
        return _turns(project, module, value, scope, depth + 1) if value is not None else None
    if not isinstance(over, ast.Call) or syntax.ident(over.func) not in _SEEN_THROUGH or not over.args:
        return None
    if syntax.ident(over.func) not in ("range", "trange"):
        return _turns(project, module, over.args[0], scope, depth + 1)
    stated = [numbers.number(project, module, a, scope) for a in over.args]
    known = [n for n in stated if n is not None]
    valid = len(known) == len(stated) <= 3 and (len(known) < 3 or known[2] != 0)
    return len(range(*known)) if valid else None


def _bound_once(module: Module, name: str, scope: Scope) -> ast.expr | None:
    """The value that a name has, where one statement binds it and nothing adds to it."""
    home = scope.resolve(name)
    if name in home.params or module.turns.get(name):
        return None
    touches = [t for t in module.touches.get(name, ())
               if isinstance(t.base, ast.Name) and t.scope.resolve(name) is home]  # fmt: skip
    return touches[0].value if len(touches) == 1 and touches[0].rebinds else None


def is_keyed_by_index(module: Module, line: int) -> bool:
    """Whether a statement of a dataset stores under a key that is made of what its method is given: as many items at
    most as the dataset has."""
    function = places.function_at(module, line)
    owner = function.owner_class() if function is not None else None
    if function is None or owner is None or not all(_has(module, owner, m) for m in ("__getitem__", "__len__")):
        return False
    known = set(function.params[1:])
    stored: list[ast.expr] = []
    for node in ast.walk(function.node) if function.node is not None else ():
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name) and _names(node.value) & known:
                known.add(target.id)
            if isinstance(target, ast.Subscript) and node.lineno <= line <= (node.end_lineno or line):
                stored.append(target.slice)
    return bool(stored) and all(_names(key) & known for key in stored)


def of_trainings(module: Module, line: int, value: str) -> int | None:
    """The line of the loop around a statement that stores a model which the loop makes and trains: one for each
    training. `for fold in folds: model = build(); optimizer = SGD(model.parameters()); ...; models.append(model)`."""
    loop = places.loop_at(module, line)
    try:
        stored = ast.parse(value, mode="eval")
    except SyntaxError:
        return None
    node = _node_of(module, loop) if loop is not None else None
    if loop is None or node is None:
        return None
    scope = places.function_at(module, line) or module.top
    trained = {n.func.value.id for n in ast.walk(node) if isinstance(n, ast.Call)
               and isinstance(n.func, ast.Attribute) and n.func.attr in ("parameters", "named_parameters")
               and isinstance(n.func.value, ast.Name)}  # fmt: skip
    return loop.first if any(_is_made_in(module, loop, n, scope) for n in trained & _names(stored)) else None


def _is_made_in(module: Module, loop: Loop, name: str, scope: Scope) -> bool:
    """Whether a call in the loop makes what a name has, of other things than what it had, and nothing else does."""
    bound = [t for t in module.touches.get(name, ()) if isinstance(t.base, ast.Name)
             and t.scope.resolve(name) is scope.resolve(name) and t.rebinds]  # fmt: skip
    made = [t for t in bound if isinstance(t.value, ast.Call) and t.loop is not None and t.loop.statement() is loop]
    return any(t.value is not None and name not in _names(t.value) for t in made) and len(made) == len(bound)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _has(module: Module, owner: Scope, method: str) -> bool:
    return any(s.parent is owner for s in module.functions(method))
