"""A program run by a small framework: each of its functions and methods is called through another's wrapper."""

from __future__ import annotations

import ast
import re

from casebook.variants.closure import enclosed
from casebook.variants.layout import Layout, bound_by
from casebook.variants.scopes import Function
from casebook.variants.text import Line, Module, first_line

ENGINE = '''"""Runs an experiment and keeps the time of its parts."""

import functools
import time

TIMES = {}


class Timer:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *error):
        TIMES[self.name] = TIMES.get(self.name, 0.0) + time.perf_counter() - self.begun
        return False


def task(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with Timer(function.__qualname__):
            return function(*args, **kwargs)

    return call


class Engine:
    def __init__(self, experiment):
        self.experiment = experiment

    def launch(self):
        return self.run(self.experiment)

    def run(self, part, *args, **kwargs):
        return part(*args, **kwargs)
'''


def framed(module: Module) -> dict[str, Module]:
    """The module as a package with a framework beside it."""
    layout = Layout(module)
    if layout.guard is None or not any(isinstance(s, Function) for s in layout.body) or _reads_guarded(layout):
        layout = Layout(enclosed(module))
    assert layout.guard is not None
    taken = set(re.findall(r"\w+", layout.module.text))
    task, name = (next(n for n in names if n not in taken) for names in (("task", "timed"), ("experiment", "whole")))
    decorated = {first_line(f): f.col_offset for f in _plain_functions(layout.module.tree)}
    lines: list[Line] = []
    start, stop = layout.guard.lineno, layout.guard.end_lineno or layout.guard.lineno
    last_import = max((s.end_lineno or 0 for s in layout.imports), default=0)
    for number, line in enumerate(layout.module.lines, start=1):
        if number in decorated:
            lines.append(Line(" " * decorated[number] + f"@{task}"))
        if number == start:
            lines += [Line(f"@{task}"), Line(f"def {name}():"), *(li.indented(4) for li in layout.guarded)]
            lines += [Line(""), Line(""), line, Line(f"    Engine({name}).launch()")]
        elif not start < number <= stop:
            lines.append(line)
        if number == last_import:
            lines += [Line(""), Line("from .engine import Engine, task" + ("" if task == "task" else f" as {task}"))]
    engine = Module(tuple(Line(text) for text in ENGINE.splitlines()))
    return {"__init__": Module(()), "engine": engine, "__main__": Module(tuple(lines))}


def _reads_guarded(layout: Layout) -> bool:
    """Whether functions read what is only set up below the guard."""
    assert layout.guard is not None
    bound = {n for s in layout.guard.body for n in bound_by(s)}
    return any(layout.uses(s) & bound for s in layout.body)


def _plain_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions at the top and methods of classes there, without decorators; not those that Python calls itself."""
    owners: list[ast.Module | ast.ClassDef] = [tree, *(s for s in tree.body if isinstance(s, ast.ClassDef))]
    return [
        s
        for owner in owners
        for s in owner.body
        if isinstance(s, ast.FunctionDef) and not s.decorator_list and not s.name.startswith("__")
    ]
