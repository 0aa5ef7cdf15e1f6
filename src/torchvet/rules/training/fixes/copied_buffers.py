"""Edits for a model that follows another's parameters alone: its buffers are copied as well."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, unit_of
from torchvet.source.model import blocks, edits, is_call, receiver, terminal, walk


def copied_buffers(file: SourceFile, finding: Finding) -> Edits:
    """After `for a, b in zip(x.parameters(), y.parameters())`, of which `a` is written on the finding's line: the same
    over `buffers()`, with `a.copy_(b)`."""
    unit, line = unit_of(file, finding), finding.location.line if finding.location is not None else 0
    for loop in walk(unit.node) if unit is not None else ():
        if isinstance(loop, ast.For) and loop.lineno < line <= (loop.end_lineno or 0):
            names, models, mine = _pair(loop.target), _models(loop.iter), _written(loop, line)
            if len(names) == 2 and len(models) == 2 and mine in names:
                theirs = names[1 - names.index(mine)]
                over = ", ".join(f"{file.segment(model)}.buffers()" for model in models)
                margin = edits.margin(file, loop)
                body = f"{margin}{blocks.step_of(file, file.tree.body, None)}{mine}.copy_({theirs})"
                return edits.after(file, loop, f"for {names[0]}, {names[1]} in zip({over}):{file.newline}{body}")
    return ()


def _written(loop: ast.For, line: int) -> str:
    """The name that the statement on a line writes to: `a` of `a.data = …` and of `a.mul_(0.9).add_(b)`."""
    simple = [s for s in walk(loop) if isinstance(s, (ast.Expr, ast.Assign, ast.AugAssign)) and s.lineno == line]
    if len(simple) != 1:
        return ""
    (one,) = simple
    if isinstance(one, ast.Expr):
        node: ast.expr | None = one.value if terminal(one.value).endswith("_") else None
    else:
        node = one.targets[0] if isinstance(one, ast.Assign) else one.target
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = receiver(node) if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _pair(target: ast.expr) -> list[str]:
    """The names of `a, b`."""
    return [one.id for one in target.elts if isinstance(one, ast.Name)] if isinstance(target, ast.Tuple) else []


def _models(over: ast.expr) -> list[ast.expr]:
    """`x` and `y` of `zip(x.parameters(), y.parameters())`."""
    given = over.args if isinstance(over, ast.Call) and is_call(over, "zip") else []
    models = [
        receiver(one) for one in given if isinstance(one, ast.Call) and is_call(one, "parameters") and not one.args
    ]
    found = [one for one in models if one is not None]
    return found if len(found) == len(given) else []
