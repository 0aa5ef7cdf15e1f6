"""A package in one text, as a start for its variants."""

from __future__ import annotations

import ast
from pathlib import Path

from casebook.program import Program
from casebook.variants.text import Line, Module, read


def joined(program: Program) -> Module:
    """The program as one module: of a package, each file before those that import it.

    Raises ValueError for imports of a package's own files that are not of the form ``from .file import name``.
    """
    if not (program.folder / program.name).is_dir():
        return read(program.folder, f"{program.name}.py")
    return Module(tuple(_merged(program.folder, program.name)))


def _merged(folder: Path, package: str) -> list[Line]:
    imports: dict[str, Line] = {}
    lines: list[Line] = []
    done: set[str] = set()

    def add(name: str) -> None:
        if name in done:
            return
        done.add(name)
        module = read(folder, f"{package}/{name}.py")
        gone: set[int] = set()
        for statement in module.tree.body:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                continue
            gone |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
            if isinstance(statement, ast.ImportFrom) and statement.level:
                if statement.module is None or any(a.asname for a in statement.names):
                    raise ValueError(f"{package}/{name}.py: cannot join {ast.unparse(statement)!r}")
                add(statement.module)
            else:
                imports.update({ast.unparse(one): Line(ast.unparse(one)) for one in _single(statement)})
        lines.extend(line for number, line in enumerate(module.lines, start=1) if number not in gone)

    add("__main__")
    return [*imports.values(), *lines]


def _single(statement: ast.Import | ast.ImportFrom) -> list[ast.stmt]:
    if isinstance(statement, ast.Import):
        return [ast.Import([alias]) for alias in statement.names]
    return [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
