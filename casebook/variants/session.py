"""A program moved into a class: functions become methods, and what they shared becomes attributes."""

from __future__ import annotations

import ast
import re

from casebook.variants.layout import Layout, bound_by
from casebook.variants.rewriting import Rewriting
from casebook.variants.scopes import Function, scopes
from casebook.variants.text import Edit, Line, Module, spaced, written


def in_a_class(module: Module) -> Module | None:
    """The module with its functions and all that it does at once in a class.

    None where the functions use a variable of a loop, which no attribute can stand for.
    """
    layout = Layout(module)
    if _bound_names(layout) & {"self"}:
        return None
    moved = _moved(layout)
    functions = {s.name: s for s in moved if isinstance(s, Function)}
    statements = [s for s in moved if not isinstance(s, Function)]
    flat = [*statements, *(layout.guard.body if layout.guard else [])]
    shared = {n for s in flat for n in bound_by(s)}
    attributes = {n for s in flat for n in _assigned(s)} | (shared & _read_in(layout, functions))
    if attributes & {n for s in flat for n in _passing(s)}:
        return None
    entry = _entry(layout, functions)
    rewriting = Rewriting(module)
    for name, scope in layout.scopes.uses:
        of = scope.of(name.id)
        if (of is layout.scopes.module and name.id in attributes | functions.keys()) or (
            entry is not None and of is not None and of.node is entry and name.id in _lasting(entry) - functions.keys()
        ):
            rewriting.put(name, f"self.{name.id}")
    edits = [*rewriting.edits(), *(_with_self(module, f) for f in functions.values()), *_undeclared(module, attributes)]
    return _assembled(Layout(module.edited(edits)), layout)


def _assembled(after: Layout, before: Layout) -> Module:
    """The text of the class, of a module whose names are already those of the class."""
    pairs = list(zip(before.body, after.body, strict=True))
    at_once = _moved(before)
    methods = [new for old, new in pairs if old in at_once and isinstance(new, Function)]
    statements = [new for old, new in pairs if old in at_once and not isinstance(new, Function)]
    rest = [after.module.span(new) for old, new in pairs if old not in at_once]
    name, run = _free_names(before.module.tree)
    body = [(*after.moved(m, 4), Line("")) for m in methods]
    at_last = [line for s in statements for line in after.moved(s, 8)] + [line.indented(8) for line in after.guarded]
    return Module(
        spaced(
            [
                (*after.docstring, Line(""), *(li for s in after.imports for li in after.module.span(s))),
                *rest,
                (
                    Line(f"class {name}:"),
                    *(li for part in body for li in part),
                    Line(f"    def {run}(self):"),
                    *at_last,
                ),
                written(f'if __name__ == "__main__":\n    {name}().{run}()'),
            ]
        )
    )


def _free_names(tree: ast.Module) -> tuple[str, str]:
    """A class and a method that the program does not have."""
    taken = {n.name for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, Function))}
    taken |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    classes, methods = ("Session", "Experiment", "Undertaking"), ("run", "begin", "carry_out")
    return next(c for c in classes if c not in taken), next(m for m in methods if m not in taken)


def _moved(layout: Layout) -> list[ast.stmt]:
    """What goes into the class: all that no class and nothing else that stays has need of."""
    staying = [s for s in layout.body if isinstance(s, ast.ClassDef) or getattr(s, "decorator_list", None)]
    while True:
        needed = {n for s in staying for n in layout.uses(s)}
        more = [s for s in layout.body if s not in staying and bound_by(s) & needed]
        if not more:
            return [s for s in layout.body if s not in staying]
        staying += more


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement itself gives a value to, by plain assignment."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or _is_parser(statement.value):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_parser(value: ast.expr | None) -> bool:
    return value is not None and ast.unparse(value).startswith("argparse.")


def _passing(statement: ast.stmt) -> set[str]:
    """The names that loops, `with`, `except` and the like bind within a statement: no attribute stands there."""
    bound = set(scopes(ast.Module([statement], [])).module.names)
    plain = {n for s in ast.walk(statement) if isinstance(s, ast.stmt) for n in _assigned(s)}
    loops = [n.target for n in ast.walk(statement) if isinstance(n, ast.For)]
    targets = {n.id for t in loops for n in ast.walk(t) if isinstance(n, ast.Name)}
    return (bound - plain - _augmented(statement)) | targets


def _augmented(statement: ast.stmt) -> set[str]:
    return {n.target.id for n in ast.walk(statement) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}


def _read_in(layout: Layout, functions: dict[str, Function]) -> set[str]:
    return {n for f in functions.values() for n in layout.uses(f)} - functions.keys()


def _entry(layout: Layout, functions: dict[str, Function]) -> ast.AST | None:
    """The function without parameters that the program begins with."""
    for statement in layout.guard.body if layout.guard else []:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and not statement.value.args:
            name = ast.unparse(statement.value.func)
            if name in functions:
                return functions[name]
    return None


def _lasting(entry: ast.AST) -> set[str]:
    """What the entry function sets up before it loops, and keeps."""
    body: list[ast.stmt] = entry.body  # type: ignore[attr-defined]
    passing = {n for s in body if not isinstance(s, (ast.Assign, ast.AnnAssign)) for n in _passing(s)}
    return {n for s in body for n in _assigned(s)} - passing


def _with_self(module: Module, function: Function) -> Edit:
    line = module.lines[function.lineno - 1].text
    found = re.search(rf"def\s+{re.escape(function.name)}\s*\(", line)
    assert found is not None
    new = "self, " if ast.unparse(function.args) else "self"
    return Edit(function.lineno, found.end(), function.lineno, found.end(), new)


def _undeclared(module: Module, attributes: set[str]) -> list[Edit]:
    """What was declared global is an attribute now."""
    declared = [n for n in ast.walk(module.tree) if isinstance(n, ast.Global) and set(n.names) <= attributes]
    return [Edit(n.lineno, n.col_offset, n.lineno, len(module.lines[n.lineno - 1].text), "pass") for n in declared]


def _bound_names(layout: Layout) -> set[str]:
    """Names in the functions at the top of the module."""
    functions = [s for s in layout.body if isinstance(s, Function)]
    return {a.arg for f in functions for n in ast.walk(f) if isinstance(n, ast.arguments) for a in n.args}
