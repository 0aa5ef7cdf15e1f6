"""AMP111: a checkpoint holds the optimizer's state and not the scaler's."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Finding, Iterator, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.checkpoints import kept_with_optimizer
from torchvet.source.model import Event, keyword, receiver, terminal, walk

_SAVING = re.compile(r"save|checkpoint|ckpt|snapshot|state|resume|load", re.IGNORECASE)
_KEY = re.compile(r"""["'](grad_|loss_|amp_)?scaler(_state)?(_dict)?["']""")


class ScalerNotSaved(Rule):
    """A checkpoint holds the optimizer's state and not the scaler's."""

    code = "AMP111"
    name = "scaler-not-saved"
    summary = "A checkpoint saves the optimizer's state and not the gradient scaler's"
    severity = "warning"
    words = ("GradScaler",)

    fix_changes_results = True

    def cannot_apply(self, recording: Recording) -> bool:
        """Every scaler was off, and was asked to be: its state is empty."""
        used = [use for rank in recording.ranks for use in runs.uses(rank)]
        return bool(used) and not any(use.enabled or use.asked for use in used)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A file that makes and uses a scaler, saves the optimizer's state and never asks for the scaler's."""
        if not file.mentions("state_dict") or _KEY.search(file.text):
            return
        made = [m for m in scaling.made_by(file) if scaling.bound_to(m) and not self._off(m)]
        saved = [e for e in file.calls("state_dict") if self._of("optimizer", e) and not e.call.args]
        if not made or not saved or not self._trains(file) or not file.mentions("save"):
            return
        if self._reaches(file, scaling.bound_to(made[0])):
            return
        loaded = [e for e in file.calls("load_state_dict") if self._of("optimizer", e)]
        yield self._finding(file, saved, made, loaded)

    @staticmethod
    def _off(made: Event) -> bool:
        return scaling.is_constant(keyword(made.call, "enabled"), False)

    @staticmethod
    def _of(role: str, event: Event) -> bool:
        return event.unit.file.roles.is_a(role, receiver(event.call), event.unit)

    @staticmethod
    def _trains(file: SourceFile) -> bool:
        return any(scaling.is_scale_call(e.node, e.unit) for e in file.calls("scale"))

    def _reaches(self, file: SourceFile, name: str) -> bool:
        """Whether the scaler's state is asked for, or the scaler is handed to what may save it."""
        if any(self._of("scaler", e) for e in file.calls("state_dict", "load_state_dict")):
            return True
        last = name.rpartition(".")[2]
        for unit in file.units_with(last):
            for event in unit.events:
                if not isinstance(event.node, ast.Call) or not _SAVING.search(terminal(event.node)):
                    continue
                given = [*event.node.args, *(k.value for k in event.node.keywords)]
                if any(_names(g, last) for g in given) and not self._left_unread(file, event, last):
                    return True
        return False

    @staticmethod
    def _left_unread(file: SourceFile, event: Event, last: str) -> bool:
        """Whether the call runs a function of this file that never looks at the parameter that takes the scaler."""
        callee = file.callee(event)
        if callee is None or isinstance(callee.node, ast.Module):
            return False
        taking = [p for p in callee.parameters if any(_names(g, last) for g in file.passed(event, callee, p))]
        body = [n for statement in callee.node.body for n in walk(statement) if isinstance(n, ast.Name)]
        return bool(taking) and not any(n.id in taking or n.id in ("locals", "vars") for n in body)

    def _finding(self, file: SourceFile, states: list[Event], scalers: list[Event], loaded: list[Event]) -> Finding:
        saved, made = states[0], scalers[0]
        name, optimizer = scaling.bound_to(made), file.segment(receiver(saved.call) or saved.node)
        related = [self.also(file, "made", made, file.segment(made.node))]
        related += [self.also(file, "loaded", e, file.segment(e.node)) for e in loaded[:1]]
        return self.suspect(
            file, saved, f"the checkpoint has the state of {optimizer} and not that of {name}",
            severity="warning" if loaded else "info",
            cause=f"a run that is resumed from it begins with a new loss scale, whatever {name} had learned",
            advice=f"save `{name}.state_dict()` too, and load it where {optimizer} is loaded",
            edits=kept_with_optimizer(file, made, states, loaded) if len(scalers) == 1 else (),
            related=related,
        )  # fmt: skip


def _names(node: ast.expr, last: str) -> bool:
    """Whether an expression holds a name or an attribute whose last identifier is that."""
    return any(terminal(n) == last for n in walk(node) if isinstance(n, (ast.Name, ast.Attribute)))
