"""Edits that turn tensors set as attributes of a custom Function's `ctx` into saved tensors."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Callable, Edits, Finding, SourceFile, unit_of
from torchvet.source.model import ClassModel, Unit, blocks, edits, terminal, walk

_SAVES = "save_for_backward|saved_tensors"


def saved_for_backward(file: SourceFile, finding: Finding, is_tensor: Callable[[ClassModel, Unit, str], bool]) -> Edits:
    """`ctx.x = x` becomes `ctx.save_for_backward(x)` and `ctx.x` in backward `ctx.saved_tensors[0]`.

    Only where forward sets names, each on a line of its own, saves nothing yet, and backward does no more than read.
    `is_tensor` says of a name in forward whether it surely is one: nothing else can be saved.
    """
    unit = unit_of(file, finding)
    model = unit.method_class() if unit is not None and unit.name == "forward" else None
    backward = model.method("backward") if model is not None else None
    if unit is None or model is None or backward is None or re.search(_SAVES, file.text_of(model)):
        return ()
    sets = [one for one in _sets(unit) if is_tensor(model, unit, one[2])]
    return _saved(file, unit.parameters[0], backward, sets) if sets else ()


def _sets(unit: Unit) -> list[tuple[ast.Assign, str, str]]:
    """The statements that set an attribute of `ctx` to something that has a name, each attribute once."""
    found = []
    for node in (e.node for e in unit.events if isinstance(e.node, ast.Assign) and len(e.node.targets) == 1):
        target = node.targets[0]
        on_context = isinstance(target, ast.Attribute) and terminal(target.value) == unit.parameters[0]
        if on_context and isinstance(node.value, ast.Name):
            found.append((node, terminal(target), node.value.id))
    distinct = {attribute for _, attribute, _ in found}
    # Set twice, backward may read either.
    return found if len(distinct) == len(found) else []


def _reads(backward: Unit, wanted: set[str]) -> list[ast.Attribute] | None:
    """Where backward reads the attributes; None where something else touches them."""
    context, found = backward.parameters[0], []
    for node in walk(backward.node):
        if isinstance(node, ast.Attribute) and node.attr in wanted and terminal(node.value) == context:
            # Written to in backward, it is more than a saved tensor.
            if not isinstance(node.ctx, ast.Load) or not edits.on_one_line(node):
                return None
            found.append(node)
    return found


def _saved(file: SourceFile, context: str, backward: Unit, sets: list[tuple[ast.Assign, str, str]]) -> Edits:
    """One call in the place of the first statement, without the others and their lines; and what backward reads."""
    first, *others = statements = [statement for statement, _, _ in sets]
    places = {attribute: f"{backward.parameters[0]}.saved_tensors[{n}]" for n, (_, attribute, _) in enumerate(sets)}
    reads = _reads(backward, set(places))
    if reads is None or not blocks.have_lines_of_their_own(file, statements):
        return ()
    # All in one call: a second call would replace what the first has saved.
    written = edits.replace(file, first, f"{context}.save_for_backward({', '.join(name for _, _, name in sets)})")
    taken = [edit for one in others for edit in blocks.without(file, [one])]
    return [written, *taken, *(edits.replace(file, node, places[node.attr]) for node in reads)]
