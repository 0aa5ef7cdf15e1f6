"""An edit for a batch that is made of lists of arrays, number by number: the arrays are put together first."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Event, edits


def stacked_first(file: SourceFile, finding: Finding) -> Edits:
    """`torch.tensor(np.array(rows))` for `torch.tensor(rows)` in the finding's statement, where `rows` is a list that
    the same function makes of NumPy's arrays. Of Python's numbers NumPy would make another type than torch."""
    unit, line = unit_of(file, finding), finding.location.line if finding.location is not None else None
    name = _numpy(file)
    if unit is None or line is None or not name:
        return ()
    # The first line of a statement is that of its whole.
    there = (e for e in unit.calls.get("tensor", ()) if e.statement.lineno <= line <= (e.statement.end_lineno or 0))
    calls = [e for e in there if file.dotted(e.call.func) == "torch.tensor"]
    lists = [e.call.args[0] for e in calls if e.call.args and _of_arrays(file, e)]
    return [edits.replace(file, rows, f"{name}.array({file.segment(rows)})") for rows in lists]


def _numpy(file: SourceFile) -> str:
    """What NumPy is called in the whole file."""
    found = (alias for s in file.tree.body if isinstance(s, ast.Import) for alias in s.names)
    return next((alias.asname or alias.name for alias in found if alias.name == "numpy"), "")


def _of_arrays(file: SourceFile, event: Event) -> bool:
    """Whether what a call is given first is a list by its text, or a name that is bound to one alone, and its items are
    what a function of NumPy returns."""
    given: ast.expr | None = event.call.args[0]
    if isinstance(given, ast.Name):
        bound = event.unit.bindings.get(given.id, ())
        made = bound[0].node if len(bound) == 1 else None
        given = made.value if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    item = given.elt if isinstance(given, ast.ListComp) else None
    return _of_numpy(file, item) or (isinstance(item, ast.Call) and _returns_arrays(file, event, item))


def _returns_arrays(file: SourceFile, event: Event, item: ast.Call) -> bool:
    """Whether a function of this file returns what NumPy does, and nothing else."""
    called = event.unit.call_of(item)
    callee = file.callee(called) if called is not None else None
    results = [e.node for e in callee.returns] if callee is not None else []
    return bool(results) and all(_of_numpy(file, r.value if isinstance(r, ast.Return) else r) for r in results)


def _of_numpy(file: SourceFile, node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and file.dotted(node.func).startswith("numpy.")
