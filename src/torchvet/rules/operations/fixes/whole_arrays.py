"""An edit for a batch that is made of lists of arrays, number by number: the arrays are put together first."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Event, edits, is_call, walk


def stacked_first(file: SourceFile, finding: Finding) -> Edits:
    """`torch.tensor(np.stack(rows))` for `torch.tensor(rows)` in the finding's statement, where `rows` is a list that
    the same function makes and NumPy has a name in the file."""
    unit, line = unit_of(file, finding), finding.location.line if finding.location is not None else None
    name = next((one for one in ("np", "numpy") if file.imports.names.get(one) == "numpy"), "")
    if unit is None or line is None or not name:
        return ()
    # The first line of a statement is that of its whole.
    there = (e for e in unit.calls.get("tensor", ()) if e.statement.lineno <= line <= (e.statement.end_lineno or 0))
    lists = [e.call.args[0] for e in there if file.dotted(e.call.func) == "torch.tensor" and _of_arrays(e)]
    return [edits.replace(file, rows, f"{name}.stack({file.segment(rows)})") for rows in lists]


def _of_arrays(event: Event) -> bool:
    """Whether what a call is given first is a list by its text, or a name that is bound to one alone, and its items are
    no lengths and numbers by theirs."""
    given = event.call.args[0] if event.call.args else None
    if isinstance(given, ast.Name):
        bound = event.unit.bindings.get(given.id, ())
        made = bound[0].node if len(bound) == 1 else None
        given = made.value if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    return isinstance(given, ast.ListComp) and not _is_number(given.elt)


def _is_number(item: ast.expr) -> bool:
    named = (one.attr for one in walk(item) if isinstance(one, ast.Attribute))
    return any(name in ("shape", "size") for name in named) or is_call(item, "len", "int", "float")
