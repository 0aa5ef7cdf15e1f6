"""A program spread over several files."""

from __future__ import annotations

import ast
from collections.abc import Set

from casebook.variants.layout import Definition, Layout, bound_by, lines_of
from casebook.variants.text import Line, Module, spaced

LITERALS = (ast.Constant, ast.List, ast.Dict, ast.Set, ast.Tuple)

LOOPS = (ast.For, ast.While, ast.With)


def split(module: Module, wanted: Set[int]) -> dict[str, Module] | None:
    """The module as a package: the files' texts by name, the lines that are wanted in one of them.

    None where nothing can be moved without changing what happens.
    """
    layout = Layout(module)
    return _before_the_loop(layout, wanted) or _definitions(layout, wanted)


def _loop(layout: Layout) -> int | None:
    found = (number for number, statement in enumerate(layout.body) if isinstance(statement, LOOPS))
    return next(found, None)


def _before_the_loop(layout: Layout, wanted: Set[int]) -> dict[str, Module] | None:
    """All that a script does before its loop in a file, which the file with the loop imports."""
    at = _loop(layout) or 0
    first, second = layout.body[:at], layout.body[at:]
    if not first or (_any_in(first, wanted) and _any_in(second, wanted)):
        return None
    bound = {n for s in first for n in bound_by(s)}
    later = {n for s in second for n in bound_by(s)}
    read = {n for s in first if isinstance(s, Definition) for n in layout.uses(s)}
    if read & later:
        return None
    moved = _file(layout, first, {})
    main = _file(layout, second, {"preparation": bound}, layout.docstring)
    return {"__init__": Module(()), "preparation": moved, "__main__": main}


def _definitions(layout: Layout, wanted: Set[int]) -> dict[str, Module] | None:
    """Functions and classes in one or two files beside the rest."""
    movable = _movable(layout)
    staying = [s for s in layout.body if s not in movable]
    fixed = [*staying, *([layout.guard] if layout.guard else [])]
    faulty = [s for s in movable if _any_in([s], wanted)]
    if _any_in(fixed, wanted):
        staying = [s for s in layout.body if s in staying or s in faulty]
        movable, faulty = [s for s in movable if s not in faulty], []
    others = [s for s in movable if s not in faulty]
    if not any(isinstance(s, Definition) for s in movable) or (staying and _needs(layout, movable, staying)):
        return None
    if faulty and others and _needs(layout, others, faulty) and _needs(layout, faulty, others):
        faulty, others = movable, []
    groups = {name: group for name, group in (("work", faulty), ("parts", others)) if group}
    bound = {name: {n for s in group for n in bound_by(s)} for name, group in groups.items()}
    files = {
        name: _file(layout, group, {other: names for other, names in bound.items() if other != name})
        for name, group in groups.items()
    }
    guard = layout.module.span(layout.guard) if layout.guard else ()
    files["__main__"] = _file(layout, staying, bound, layout.docstring, guard)
    return {"__init__": Module(()), **files}


def _movable(layout: Layout) -> list[ast.stmt]:
    """Definitions and plain constants that need nothing else, in order."""
    declared = {n for node in ast.walk(layout.module.tree) if isinstance(node, ast.Global) for n in node.names}
    movable: list[ast.stmt] = [
        s for s in layout.body if isinstance(s, Definition) or (isinstance(s, ast.Assign) and _is_plain(s.value))
    ]
    movable = [s for s in movable if not declared & (bound_by(s) | layout.uses(s))]
    while True:
        stuck = {n for s in layout.body if s not in movable for n in bound_by(s)}
        still = [s for s in movable if not layout.uses(s) & stuck]
        if len(still) == len(movable):
            return still
        movable = still


def _is_plain(value: ast.expr) -> bool:
    return all(
        isinstance(n, (*LITERALS, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context))
        for n in ast.walk(value)
    )


def _needs(layout: Layout, those: list[ast.stmt], others: list[ast.stmt]) -> bool:
    bound = {n for s in others for n in bound_by(s)}
    return any(layout.uses(s) & bound for s in those)


def _any_in(statements: list[ast.stmt], wanted: Set[int]) -> bool:
    return any(line in wanted for s in statements for line in lines_of(s))


def _file(
    layout: Layout,
    statements: list[ast.stmt],
    elsewhere: dict[str, set[str]],
    docstring: tuple[Line, ...] = (),
    guard: tuple[Line, ...] = (),
) -> Module:
    used = {n for s in statements for n in layout.uses(s)}
    used |= layout.uses(layout.guard) if guard and layout.guard else set()
    own = [
        Line(f"from .{name} import {', '.join(sorted(names & used))}")
        for name, names in sorted(elsewhere.items())
        if names & used
    ]
    imports = layout.import_lines(used)
    gap = (Line(""),) if imports and own else ()
    head = (*docstring, *((Line(""),) if docstring else ()), *imports, *gap, *own)
    blocks: list[tuple[Line, ...]] = [head] if head else []
    previous: ast.stmt | None = None
    for statement in statements:
        span = layout.module.span(statement)
        together = previous is not None and not isinstance(statement, Definition)
        if together and not isinstance(previous, Definition):
            blocks[-1] = (*blocks[-1], *span)
        else:
            blocks.append(span)
        previous = statement
    return Module(spaced([*blocks, *([guard] if guard else [])]))
