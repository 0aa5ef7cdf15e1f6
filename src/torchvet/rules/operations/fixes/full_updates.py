"""An edit for a metric of torchmetrics that computes each batch twice."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import ClassModel, Unit, is_call, parents_in, receiver, walk
from torchvet.source.model.class_edits import with_attribute

_OPTION = "full_state_update"
_JOINED = {"sum", "cat", "min", "max"}
"""Reductions by which a state is the same whether it goes on or is joined of two."""


def updated_once(file: SourceFile, finding: Finding) -> Edits:
    """`full_state_update = False` in the metric whose method the finding's line is in: without it, each call updates
    the metric twice. Nothing where the state before may matter to an update."""
    line = finding.location.line if finding.location is not None else None
    owner = file.unit_at(line).method_class() if line is not None else None
    update = owner.methods.get("update") if owner is not None else None
    if owner is None or update is None or file.mentions(_OPTION):
        return ()
    plain = all(base in ("torchmetrics.Metric", "torchmetrics.metric.Metric") for base in owner.ancestors)
    states = _states(owner)
    if not plain or not owner.ancestors or not states or not all(_only_adds(update, name) for name in states):
        return ()
    return with_attribute(file, owner, f"{_OPTION} = False")


def _states(owner: ClassModel) -> list[str]:
    """The names of a metric's states; empty where one is not known, or is not joined in a plain way."""
    made = [n for unit in owner.methods.values() for n in walk(unit.node) if is_call(n, "add_state")]
    names = []
    for call in made:
        given = {k.arg: k.value for k in call.keywords} if isinstance(call, ast.Call) else {}
        name = call.args[0] if isinstance(call, ast.Call) and call.args else given.get("name")
        how = given.get("dist_reduce_fx")
        if not isinstance(name, ast.Constant) or not isinstance(how, ast.Constant) or how.value not in _JOINED:
            return []
        names.append(str(name.value))
    return names


def _only_adds(update: Unit, state: str) -> bool:
    """Whether a method does nothing with a state but to add to it."""
    parents = parents_in(update.node)
    for node in walk(update.node):
        if isinstance(node, ast.Attribute) and node.attr == state:
            around = parents[id(node)]
            adds = isinstance(around, ast.AugAssign) and around.target is node and isinstance(around.op, ast.Add)
            call = parents[id(around)] if isinstance(around, ast.Attribute) else None
            if not adds and not (isinstance(call, ast.Call) and is_call(call, "append") and receiver(call) is node):
                return False
    return True
