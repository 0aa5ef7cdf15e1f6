"""Edits for `itertools.cycle` over a loader: a generator that begins the loader again in its place."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Edits, Finding, SourceFile, events_at
from torchvet.source.model import blocks, edits, is_call

_ONCE = ("iter", "map", "zip", "filter", "enumerate", "chain", "islice", "reversed")
"""What these make can be gone through once: to begin it again gives nothing."""


def begun_again(file: SourceFile, finding: Finding) -> Edits:
    """A function `endless` before the code that needs it, and its call in the place of `itertools.cycle`."""
    for event in events_at(file, finding):
        node = event.node
        if not isinstance(node, ast.Call) or file.dotted(node.func) != "itertools.cycle" or len(node.args) != 1:
            continue
        again = node.args[0]
        if isinstance(again, ast.GeneratorExp) or (is_call(again, *_ONCE)):
            return ()
        name = "endless"
        while file.mentions(name):
            name += "_"
        # The function goes before the top-level statement, so that it is there when that runs.
        top = next(s for s in file.tree.body if any(one is node for one in ast.walk(s)))
        if not edits.stands_alone(file, top):
            return ()
        step, first = blocks.step_of(file, file.tree.body, None), blocks.first_line(top)
        rows = [f"def {name}(loader):", f"{step}while True:", f"{step * 2}yield from loader", "", "", ""]
        put = Edit(path=file.path, start=(first, 1), end=(first, 1), text=file.newline.join(rows))
        return [put, edits.replace(file, node.func, name)]
    return ()
