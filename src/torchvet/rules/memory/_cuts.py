"""Edits that cut recurrent state from the graph of the steps before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.mending import events_at, held
from torchvet.source.model import edits
from torchvet.source.model.units import keyword, targets_of, terminal
from torchvet.source.model.walking import walk

if TYPE_CHECKING:
    from torchvet.finding import Edit, Finding
    from torchvet.source.model import Event, SourceFile

_SEVERAL = re.compile(r"`[^`]*= (tuple|list)\(")
"""What the advice on a state of several tensors has: `state = tuple(t.detach() for t in state)`."""


def state_cut(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """The edits for the line that binds the state anew from its own last value."""
    for event in events_at(file, finding):
        target = next((t for t in targets_of(event.node) if terminal(t) == held(finding)), None)
        if target is None or not isinstance(event.node, ast.Assign):
            continue
        value, name = event.node.value, file.segment(target)
        reads = list(_reads(value, target))
        if isinstance(value, ast.BinOp) and reads:
            return [edits.replace(file, one, f"{name}.detach()") for one in reads]
        cut = _cut(name, finding)
        if isinstance(target, ast.Attribute):
            return edits.after(file, event.statement, cut)
        return _after_backward(file, event, cut)
    return ()


def _reads(value: ast.expr, target: ast.expr) -> Iterator[ast.expr]:
    """Where an expression reads what it is bound to."""
    wanted = ast.unparse(target)
    for node in walk(value):
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == wanted:
            yield node


def _cut(name: str, finding: Finding) -> str:
    several = _SEVERAL.search(finding.remedy.summary)
    return f"{name} = {several[1]}(t.detach() for t in {name})" if several else f"{name} = {name}.detach()"


def _after_backward(file: SourceFile, run: Event, cut: str) -> list[Edit]:
    """The cut right after the one backward of the same loop, which keeps its graph no longer. Where the state is bound
    in one arm of a branch that the backward is not in, the cut comes before it is read, in the same arm."""
    backwards = [e for e in run.unit.calls.get("backward", ()) if e.loop is run.loop and e.index > run.index]
    if len(backwards) != 1:
        return []
    call = backwards[0].call
    if backwards[0].sure_after(run):
        put = edits.after(file, backwards[0].statement, cut)
    else:
        put = edits.before(file, run.statement, cut) if _is_state_before(run, cut.partition(" ")[0]) else []
    retained = edits.without_argument(file, call, "retain_graph") if keyword(call, "retain_graph") is not None else []
    return [*retained, *put] if put else []


def _is_state_before(run: Event, name: str) -> bool:
    """Whether what binds a name before in the function is a call, so that it is no None before the first step."""
    others = [b.node for b in run.unit.bindings.get(name, ()) if b is not run and b.index < run.index]
    return bool(others) and all(isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) for n in others)
