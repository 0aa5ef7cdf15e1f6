"""An edit for one-hot rows that a linear layer multiplies its weight with: the rows of the weight are looked up."""

from __future__ import annotations

import ast
from typing import NamedTuple

from torchvet.rules.kit import Edits, Finding, SourceFile, events_at
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import Event, Unit, edits, is_call, is_name, reads_of, terminal, under_methods, walk

_SAME = {"float", "to", "type", "double", "half"}


class _Rows(NamedTuple):
    """`x = F.one_hot(items, n).float()`."""

    event: Event
    name: str
    call: ast.Call


def looked_up(file: SourceFile, finding: Finding) -> Edits:
    """`F.embedding(items, layer.weight.t())` for `x = F.one_hot(items, n).float()` and `layer(x)`, where nothing else
    reads `x` and `layer` is a Linear of the same class."""
    found = [rows for event in events_at(file, finding) if (rows := _one_hot(event))]
    if len(found) != 1:
        return ()
    rows = found[0]
    use = _only_use(rows)
    bias = _bias_of(file, rows.event.unit, use) if use is not None else None
    home = file.segment(rows.call.func.value) if isinstance(rows.call.func, ast.Attribute) else ""
    removed = without_statement(file, rows.event.statement)
    if use is None or bias is None or file.dotted(rows.call.func) != "torch.nn.functional.one_hot" or not home:
        return ()
    layer = file.segment(use.func)
    text = f"{home}.embedding({file.segment(rows.call.args[0])}, {layer}.weight.t())"
    text = f"({text} + {layer}.bias)" if bias else text
    return [*removed, edits.replace(file, use, text)] if removed else ()


def _one_hot(event: Event) -> _Rows | None:
    node = event.node
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return None
    call = under_methods(node.value, _SAME)
    items = call.args[0] if isinstance(call, ast.Call) and is_call(call, "one_hot") and call.args else None
    unit, name = event.unit, node.targets[0].id
    # An index that is bound again in between would be another.
    once = isinstance(items, ast.Name) and items.id in unit.parameters and items.id not in unit.bindings
    once = once and len(unit.bindings.get(name, ())) == 1
    return _Rows(event, name, call) if once and isinstance(call, ast.Call) else None


def _only_use(rows: _Rows) -> ast.Call | None:
    """The one call that is given the rows, and nothing else."""
    whole = rows.event.unit.node
    reads = reads_of(whole, rows.name)
    calls = [n for n in walk(whole) if isinstance(n, ast.Call) and len(n.args) == 1 and is_name(n.args[0], rows.name)]
    plain = len(reads) == len(calls) == 1 and not calls[0].keywords and isinstance(calls[0].func, ast.Attribute)
    return calls[0] if plain and edits.on_one_line(calls[0]) else None


def _bias_of(file: SourceFile, unit: Unit, use: ast.Call) -> bool | None:
    """Whether the called layer has a bias; None where it is no Linear that the class makes once."""
    owner = unit.method_class()
    made = owner.attributes.get(terminal(use), ()) if owner is not None else ()
    layer = made[0][1] if len(made) == 1 else None
    if not isinstance(layer, ast.Call) or file.dotted(layer.func) != "torch.nn.Linear" or len(layer.args) != 2:
        return None
    given = {k.arg: k.value for k in layer.keywords}
    if not given.keys() <= {"bias"}:
        return None
    bias = given.get("bias")
    if bias is not None and not isinstance(bias, ast.Constant):
        return None
    return bias is None or bool(bias.value)
