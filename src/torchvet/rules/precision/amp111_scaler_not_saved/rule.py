"""AMP111: a checkpoint holds the optimizer's state and not the scaler's."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Finding, Iterator, Recording, SourceFile
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import uses
from torchvet.rules.precision.fixes.checkpoints import kept_with_optimizer
from torchvet.rules.shared.order_rule import EventRule
from torchvet.source.model import Event, given, is_set, names_in, receiver, terminal, walk

_SAVING = re.compile(r"save|checkpoint|ckpt|snapshot|state|resume|load", re.IGNORECASE)
_KEY = re.compile(r"""["'](grad_|loss_|amp_)?scaler(_state)?(_dict)?["']""")


_DEEPEST = 3
"""Calls within one another through which a scaler's function may come to where a state is saved."""


class ScalerNotSaved(EventRule):
    """A checkpoint saves the optimizer's state and not the gradient scaler's."""

    severity = "warning"
    words = ("GradScaler",)
    fix_changes_results = True

    def cannot_apply(self, recording: Recording) -> bool:
        """Every scaler was off, and was asked to be: its state is empty."""
        used = [use for rank in recording.ranks for use in uses(rank)]
        return bool(used) and not any(use.enabled or use.asked for use in used)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A file that makes and uses a scaler, saves the optimizer's state and never asks for the scaler's."""
        if not file.mentions("state_dict") or not file.mentions("save") or _KEY.search(file.text):
            return
        # A scaler that is off has an empty state.
        made = [m for m in scaling.named_scalers(file) if not is_set(m.call, "enabled", False)]
        saved = [e for e in _calls(file, "optimizer", "state_dict") if not e.call.args]
        made = [m for m in made if any(_is_in_reach(file, m, e) for e in saved)]
        if made and saved and scaling.scale_calls(file) and not _reaches(file, scaling.bound_to(made[0])):
            yield self._finding(file, saved, made)

    def _finding(self, file: SourceFile, states: list[Event], scalers: list[Event]) -> Finding:
        saved, made, loaded = states[0], scalers[0], _calls(file, "optimizer", "load_state_dict")
        name, optimizer = scaling.bound_to(made), file.segment(receiver(saved.call) or saved.node)
        return self.suspect_at(
            saved,
            f"the checkpoint has the state of {optimizer} and not that of {name}",
            severity="warning" if loaded else "info",
            cause=f"a run that is resumed from it begins with a new loss scale, whatever {name} had learned",
            advice=f"save `{name}.state_dict()` too, and load it where {optimizer} is loaded",
            edits=kept_with_optimizer(file, made, states, loaded) if len(scalers) == 1 else (),
            related={"made": made, **({"loaded": loaded[0]} if loaded else {})},
        )


def _calls(file: SourceFile, role: str, *names: str) -> list[Event]:
    """Calls of methods on what plays a role."""
    return [e for e in file.calls(*names) if file.roles.is_a(role, receiver(e.call), e.unit)]


def _is_in_reach(file: SourceFile, made: Event, saved: Event, depth: int = 0) -> bool:
    """Whether a scaler exists where an optimizer's state is saved: a function's own one does in that function, in what
    it calls and in what is nested in it."""
    name, unit = scaling.bound_to(made), saved.unit
    returned = (e.node for e in made.unit.events if isinstance(e.node, ast.Return))
    if "." in name or made.unit.is_module or any(name in names_in(node) for node in returned):
        return True
    while unit.parent is not None and unit is not made.unit:
        unit = unit.parent
    if unit is made.unit:
        return True
    return depth < _DEEPEST and any(_is_in_reach(file, made, e, depth + 1) for e in file.callers(saved.unit))


def _reaches(file: SourceFile, name: str) -> bool:
    """Whether the scaler's state is asked for, or the scaler is handed to what may save it."""
    if _calls(file, "scaler", "state_dict", "load_state_dict"):
        return True
    last = name.rpartition(".")[2]
    calls = (e for unit in file.units_with(last) for e in unit.events if isinstance(e.node, ast.Call))
    return any(_SAVING.search(terminal(e.node)) and _is_handed(file, e, last) for e in calls)


def _is_handed(file: SourceFile, event: Event, last: str) -> bool:
    """Whether a call is given the scaler, and does not run a function of this file that never reads it."""
    if not any(_names(g, last) for g in given(event.call)):
        return False
    callee = file.callee(event)
    if callee is None or isinstance(callee.node, ast.Module):
        return True
    taking = [p for p in callee.parameters if any(_names(g, last) for g in file.passed(event, callee, p))]
    body = [n for statement in callee.node.body for n in walk(statement) if isinstance(n, ast.Name)]
    return not taking or any(n.id in taking or n.id in ("locals", "vars") for n in body)


def _names(node: ast.expr, last: str) -> bool:
    """Whether an expression holds a name or an attribute whose last identifier is that."""
    return any(terminal(n) == last for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute)))
