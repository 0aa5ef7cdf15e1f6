"""Values that are bound once and then changed in place with gradients on, as an average of weights is: their graph gets
longer with every change. The line to fix is the one that changes them."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import About, Edits, Finding, Growth, Place, Sequence, SourceFile, Store, about, events_at
from torchvet.source.model import blocks, receiver, terminal

_BINDING = ("assign", "augmented", "item", "setattr")
_METHOD = re.compile(r"\.\w+[a-z]_\(")
"""A method that works in place, and no `+=`: that is a store like any other, and what it adds can be detached."""
UPDATED = About("updated in place")
ADVICE = "put the update under `with torch.no_grad():`"


def line_of_update(growth: Growth, store: Store | None) -> Place | None:
    """The line that changes a growing name's tensors in place, where that is what makes its graph longer: nothing binds
    it anew from its own last value."""
    line = growth.holding.updated
    if line is None or not growth.carrier_ops:
        return None
    # Nothing binds the name but the update itself.
    if store is None or store.kind not in _BINDING or (store.kind == "augmented" and _METHOD.search(store.text)):
        return line
    named = growth.holding.name.partition("[")[0].rpartition(".")[2]
    # Bound anew: then that line carries the graph, and the update only adds to it.
    again = store.in_loop or re.search(rf"\b{re.escape(named)}\b", store.value) is not None
    return None if again or store.kind == "augmented" else line


def update_fix(file: SourceFile, finding: Finding) -> Edits:
    """The update, with those around it that are nothing but updates, under `with torch.no_grad():`."""
    # The edit writes `torch.no_grad()`, which needs the name.
    if about(finding) != UPDATED or file.dotted(ast.Name("torch")) != "torch":
        return ()
    event = next((e for e in events_at(file, finding) if _changed(e.statement)), None)
    if event is None:
        return ()
    what, statement = _changed(event.statement), event.statement
    # Outward as long as the updates are the whole body of a loop: one `with` around the loop is quicker than one
    # in each turn.
    for block in blocks.blocks_around(event.unit.node, statement):
        place = blocks.holding(block, statement)
        if place is None or block[place] is not statement:
            break
        alike = _neighbours(block, place, what)
        around = _loop_of(event.unit.node, block) if len(alike) == len(block) else None
        if around is None:
            return blocks.under_with(file, alike, "torch.no_grad()")
        statement = around
    return ()


def _neighbours(block: Sequence[ast.stmt], place: int, what: str) -> Sequence[ast.stmt]:
    """A statement with those right before and after it that change the same."""
    first, last = place, place
    while first > 0 and _changed(block[first - 1]) == what:
        first -= 1
    while last + 1 < len(block) and _changed(block[last + 1]) == what:
        last += 1
    return block[first : last + 1]


def _changed(statement: ast.stmt) -> str:
    """What a statement that does nothing else changes in place: `a` of `a.mul_(x).add_(y)` and of
    `torch._foreach_mul_(a, x)`; empty for any other. `+=` is none: what it adds to may be a loss."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    names = []
    while isinstance(call, ast.Call):
        names.append(terminal(call))
        # From the last method of the chain to what it begins with.
        on = receiver(call)
        call = call.args[0] if names[-1].startswith("_foreach_") and call.args else on
    in_place = names and all(n.endswith("_") and not n.endswith("__") and n != "requires_grad_" for n in names)
    return ast.unparse(call) if in_place and call is not None else ""


def _loop_of(code: ast.AST, block: Sequence[ast.stmt]) -> ast.For | None:
    """The loop whose whole body a block is."""
    loops = (n for n in ast.walk(code) if isinstance(n, ast.For) and not n.orelse)
    return next((n for n in loops if n.body and n.body[0] is block[0]), None)
