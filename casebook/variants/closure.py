"""A program whose whole text stands within one function: its globals become cells that its functions close over."""

from __future__ import annotations

import ast

from casebook.variants.layout import Layout
from casebook.variants.rewriting import Rewriting
from casebook.variants.text import Line, Module, spaced, written


def enclosed(module: Module) -> Module:
    """The module with everything but its imports in a function."""
    layout = Layout(_without_globals(module))
    name = "assemble"
    lines: list[Line] = []
    previous: ast.stmt | None = None
    for statement in layout.body:
        apart = previous is None or isinstance(statement, _DEFINITIONS) or isinstance(previous, _DEFINITIONS)
        lines += written("\n") if apart and lines else ()
        lines += layout.moved(statement, 4)
        previous = statement
    lines += [line.indented(4) for line in layout.guarded]
    return Module(
        spaced(
            [
                (*layout.docstring, Line(""), *(li for s in layout.imports for li in layout.module.span(s))),
                (Line(f"def {name}():"), *lines),
                written(f'if __name__ == "__main__":\n    {name}()'),
            ]
        )
    )


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _without_globals(module: Module) -> Module:
    """Names declared global are declared nonlocal: what they mean is now in the function around."""
    rewriting = Rewriting(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            rewriting.put_words(node, {"global": "nonlocal"})
    return rewriting.done()
