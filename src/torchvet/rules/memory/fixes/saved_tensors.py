"""Edits that turn tensors set as attributes of a custom Function's `ctx` into saved tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable

from torchvet.rules.kit import Edit, Edits, Finding, SourceFile
from torchvet.source.model import ClassModel, Unit, edits, targets_of, terminal, value_for, walk


def saved_for_backward(file: SourceFile, finding: Finding, is_tensor: Callable[[ClassModel, Unit, str], bool]) -> Edits:
    """`ctx.x = x` becomes `ctx.save_for_backward(x)` and `ctx.x` in backward `ctx.saved_tensors[0]`.

    Only where forward sets names, each on a line of its own, saves nothing yet, and backward does no more than read.
    `is_tensor` says of a name in forward whether it surely is one: nothing else can be saved.
    """
    at = finding.location
    unit = file.unit_at(at.line) if at is not None and at.path == file.path else None
    model = unit.method_class() if unit is not None else None
    backward = model.method("backward") if model is not None else None
    if unit is None or model is None or backward is None or unit.name != "forward":
        return ()
    text = "\n".join(file.lines[model.node.lineno - 1 : model.node.end_lineno])
    if "save_for_backward" in text or "saved_tensors" in text:
        return ()
    sets = [one for one in _sets(unit) if is_tensor(model, unit, one[2])]
    reads = _reads(file, model, backward, {attribute for _, attribute, _ in sets})
    if not sets or reads is None or any(not edits.stands_alone(file, s) for s, _, _ in sets):
        return ()
    return [*_written(file, unit, sets), *_read(file, backward, sets, reads)]


def _sets(unit: Unit) -> list[tuple[ast.Assign, str, str]]:
    """The statements that set an attribute of `ctx` to something that has a name, each attribute once."""
    context, found = unit.parameters[0], []
    for event in unit.events:
        for target in targets_of(event.node) if isinstance(event.node, ast.Assign) else ():
            value = value_for(event.node, target)
            if not isinstance(target, ast.Attribute) or terminal(target.value) != context:
                continue
            if isinstance(value, ast.Name) and len(event.node.targets) == 1 and event.node.targets[0] is target:  # type: ignore[attr-defined]
                found.append((event.node, target.attr, value.id))
    distinct = {attribute for _, attribute, _ in found}
    return found if len(distinct) == len(found) else []  # type: ignore[return-value]


def _reads(file: SourceFile, model: ClassModel, backward: Unit, wanted: set[str]) -> list[ast.Attribute] | None:
    """Where backward reads the attributes; None where something else touches them."""
    context, found = backward.parameters[0], []
    for node in walk(backward.node):
        if isinstance(node, ast.Attribute) and node.attr in wanted and terminal(node.value) == context:
            if not isinstance(node.ctx, ast.Load) or node.lineno != node.end_lineno:
                return None
            found.append(node)
    return found


def _written(file: SourceFile, unit: Unit, sets: list[tuple[ast.Assign, str, str]]) -> list[Edit]:
    """One call in the place of the first statement; the others go with their lines."""
    names = ", ".join(name for _, _, name in sets)
    first, *others = [statement for statement, _, _ in sets]
    taken = [
        Edit(path=file.path, start=(one.lineno, 1), end=((one.end_lineno or one.lineno) + 1, 1), text="")
        for one in others
    ]
    return [edits.replace(file, first, f"{unit.parameters[0]}.save_for_backward({names})"), *taken]


def _read(
    file: SourceFile, backward: Unit, sets: list[tuple[ast.Assign, str, str]], reads: list[ast.Attribute]
) -> list[Edit]:
    places = {attribute: number for number, (_, attribute, _) in enumerate(sets)}
    context = backward.parameters[0]
    return [edits.replace(file, node, f"{context}.saved_tensors[{places[node.attr]}]") for node in reads]
