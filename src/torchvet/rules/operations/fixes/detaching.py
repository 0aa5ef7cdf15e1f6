"""Edits that give a loss detached what a part of the program makes, whose gradients nobody uses."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Unit, edits, is_call, receiver, terminal, walk
from torchvet.source.model.expressions import calls_in, reads_of


def detached_for(file: SourceFile, finding: Finding) -> Edits:
    """`.detach()` behind what the finding's line assigns; where something after the backward pass reads that, too,
    behind each use before the pass.

    Nothing where the line assigns anything but one name, or the pass is called by another function.
    """
    unit = unit_of(file, finding)
    back = next((r.line for r in finding.related if r.role == "backward" and r.path == file.path), None)
    assigned = _assigned(unit, finding) if unit is not None else None
    if unit is None or assigned is None or back is None or file.unit_at(back) is not unit:
        return ()
    return [edits.called_on(file, one, "detach()") for one in _cuts(unit, *assigned, back) if edits.on_one_line(one)]


def _cuts(unit: Unit, made: ast.Assign, name: str, back: int) -> Sequence[ast.expr]:
    """What is to be detached, which the run has seen to be tensors."""
    reads = reads_of(unit.node, name)
    before = [one for one in reads if made.lineno < one.lineno <= back]
    # With another pass in the function a read may be for that one's loss.
    passes = [call for call in calls_in(unit.node) if is_call(call, "backward", "grad")]
    if len(passes) > 1 and not _are_of_the_loss(unit, before, back):
        return ()
    # In a loop what stands above may run later.
    return [made.value] if len(before) == len(reads) else before


def _are_of_the_loss(unit: Unit, reads: list[ast.Name], back: int) -> bool:
    """Whether all reads stand in the statement that binds what the pass on line `back` begins from."""
    losses = {terminal(receiver(c)) for c in calls_in(unit.node) if is_call(c, "backward") and c.lineno == back}
    binding = [s for s in walk(unit.node) if isinstance(s, ast.Assign) and terminal(s.targets[0]) in losses]
    spans = [(s.lineno, s.end_lineno or s.lineno) for s in binding]
    return bool(reads) and all(any(first <= one.lineno <= last for first, last in spans) for one in reads)


def _assigned(unit: Unit, finding: Finding) -> tuple[ast.Assign, str] | None:
    """The statement on the finding's line that binds one name, and that name."""
    line = finding.location.line if finding.location is not None else None
    for node in walk(unit.node):
        if isinstance(node, ast.Assign) and node.lineno == line:
            first = node.targets[0]
            return (node, first.id) if len(node.targets) == 1 and isinstance(first, ast.Name) else None
    return None
