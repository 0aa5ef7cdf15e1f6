"""DEV103: parameters are replaced after the optimizer was built on them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.recording.records.device import ReplacedParameters
from torchvet.recording.records.training import UnownedParameters, still_unowned
from torchvet.rules.device import _crashes
from torchvet.rules.device.fixes.optimizer_order import made_after
from torchvet.rules.kit import Finding, Iterator, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.shared.seen_suspicions import as_observed, suspected_at
from torchvet.source.model import Event, keyword, receiver, targets_of, terminal
from torchvet.source.model import torch_names as names
from torchvet.source.model.steps import text_of

if TYPE_CHECKING:
    from torchvet.recording.records.device import DeviceMismatch, Placed

_REPLACING = frozenset(("to_empty", "resize_token_embeddings", "reset_classifier"))
_CALLS = _REPLACING | {"load_state_dict", "to", "cuda"}
_OPTIM = ("optim", "Adam", "SGD")


class OptimizerBeforeMove(Rule):
    """Parameters are replaced after the optimizer was built on them."""

    code = "DEV103"
    name = "optimizer-before-move"
    summary = "Parameters are replaced after the optimizer was built on them"
    severity = "error"
    words = (".parameters()", "requires_grad")

    fix_changes_results = True
    # What is replaced in part is TRN105's, and what has no gradient yet shows nothing.
    silence_clears = False

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Optimizers all of whose parameters have been replaced, or some where source shows by what, and state that is
        not where its parameters are."""
        for rank in recording.ranks:
            by_source: set[str] = set()
            for unowned in (u for u in still_unowned(rank.all(UnownedParameters)) if u.orphans):
                for found in suspected_at(self, recording, unowned.place, role="built"):
                    by_source.add(unowned.module)
                    seen = f"{found.message} ({unowned.count} parameters of {unowned.module} are never stepped)"
                    yield as_observed(found, rank, seen, Measured(bytes=unowned.bytes, steps=unowned.steps))
            for record in rank.latest(ReplacedParameters, "module"):
                if record.module not in by_source:
                    yield self._replaced_all(rank, record)
        for rank, mismatch, stray in _crashes.mismatches(recording):
            if stray is not None and stray.role == "optimizer state":
                yield self._state_left(rank, mismatch, stray)

    def _replaced_all(self, rank: RankRecording, record: ReplacedParameters) -> Finding:
        return self.observed(
            rank, severity="error", place=record.place,
            message=f"{record.optimizer} updates {record.count} parameters that {record.module} does not have any "
            "more: nothing is trained",
            cause=f"all {record.count} parameters of {record.module} get gradients and no optimizer has them; those "
            "that the optimizer was built on, of the same shapes, get none",
            advice="build the optimizer after the last thing that replaces the model's parameters",
            measured=Measured(bytes=record.bytes, steps=record.steps),
        )  # fmt: skip

    def _state_left(self, rank: RankRecording, record: DeviceMismatch, stray: Placed) -> Finding:
        return self.observed(
            rank, severity="error", place=record.place,
            message=f"{stray.name} is on {stray.device} where the gradients are on {_crashes.there(record, stray)}",
            cause=f"{stray.owner} made its state while the parameters were on {stray.device}, and they were moved "
            "since: moving a model moves no optimizer's state",
            advice="move the model first, then build the optimizer, or load its state",
            related=_crashes.where(record),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """After `optimizer = O(model.parameters())`, in the same unit, what gives `model` other parameters."""
        found = [*file.units_with("parameters"), *file.units_with("requires_grad")] if file.mentions(*_OPTIM) else []
        units = {id(u): u for u in found}
        for made in (e for u in units.values() for n in sorted(names.OPTIMIZERS & u.calls.keys()) for e in u.calls[n]):
            if "optimizer" not in file.roles.of(made.node, made.unit):
                continue
            yield from self._moved_leaves(file, made)
            model = _model_of(made)
            if not model:
                continue
            for event in made.unit.events:
                later = event.index > made.index and not event.excludes(made)
                message = self._replaced(file, event, model, made) if later else ""
                if message and self._goes_on(file, made, event, model):
                    yield self._finding(file, event, made, model, message)
                    break

    def _moved_leaves(self, file: SourceFile, made: Event) -> Iterator[Finding]:
        """`Adam([x])`, then `x = x.to(device)`: the copy is what the program uses, the leaf what the optimizer has."""
        first = made.call.args[0] if made.call.args else None
        listed = first.elts if isinstance(first, (ast.List, ast.Tuple)) else []
        leaves = {text_of(e) for e in listed if isinstance(e, (ast.Name, ast.Attribute))}
        for event in made.unit.events if leaves else ():
            node = event.node
            if event.index < made.index or event.excludes(made) or not isinstance(node, ast.Assign):
                continue
            target, value = targets_of(node)[0], node.value
            if not isinstance(value, ast.Call) or text_of(target) not in leaves:
                continue
            moved = file.devices.move(value, event.unit)
            onto = moved is not None and moved[0] == "device" and text_of(receiver(value)) == text_of(target)
            if onto and self._goes_on(file, made, event, text_of(target)):
                message = f"{text_of(target)} becomes a copy on the device"
                yield self._finding(file, event, made, text_of(target), message)

    def _replaced(self, file: SourceFile, event: Event, model: str, made: Event) -> str:
        """What an event does to the model's parameters; empty where it keeps them."""
        node = event.node
        if isinstance(node, ast.Assign):
            return self._assigned(file, node, model, event)
        name = terminal(node)
        if name == "setattr" and isinstance(node, ast.Call) and len(node.args) == 3 and text_of(node.args[0]) == model:
            made_module = file.roles.of(node.args[2], event.unit)
            return f"{model} gets a new module" if "module" in made_module and "criterion" not in made_module else ""
        if not isinstance(node, ast.Call) or name not in _CALLS or text_of(receiver(node)) != model:
            return ""
        if name in _REPLACING or (name == "load_state_dict" and any(
            k.arg == "assign" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords
        )):  # fmt: skip
            return f"{model}.{name}(…) puts new parameters in place"
        moved = file.devices.move(node, event.unit)
        if moved is not None and moved[0] == "device" and terminal(made.node) == "Adagrad":
            return f"{model} moves after Adagrad has made its state on the old device"
        return ""

    @staticmethod
    def _assigned(file: SourceFile, node: ast.Assign, model: str, event: Event) -> str:
        value = node.value
        whole = terminal(value) in ("FullyShardedDataParallel", "FSDP", "deepcopy")
        if not isinstance(value, ast.Call) or (node.targets[0].__class__ is ast.Name and not whole):
            return ""
        for target in targets_of(node):
            written = text_of(target)
            if written != model and written.startswith((model + ".", model + "[")):
                made = file.roles.of(value, event.unit)
                return f"{written} is a new module" if "module" in made and "criterion" not in made else ""
            if written == model and terminal(value) in ("FullyShardedDataParallel", "FSDP"):
                kept = any(k.arg == "use_orig_params" for k in value.keywords)
                return "" if kept else f"{model} is sharded into new parameters"
            if written == model and file.dotted(value.func) == "copy.deepcopy":
                return f"{model} is a copy with parameters of its own"
        return ""

    @staticmethod
    def _goes_on(file: SourceFile, made: Event, event: Event, model: str) -> bool:
        """Whether that optimizer is used afterwards, unmended, on the model."""
        rest = [e for e in made.unit.events if e.index > event.index and isinstance(e.node, ast.Call)]
        if any(terminal(e.node) == "add_param_group" for e in rest):
            return False
        if any(model in text_of(a) and "optimizer" in file.roles.of(e.node, e.unit) for e in rest for a in e.call.args):
            return False
        holder = text_of(targets_of(made.statement)[0]) if targets_of(made.statement) else ""
        used = any(text_of(receiver(e.call)) == holder and terminal(e.node) == "step" for e in rest)
        handed = any(text_of(a) == holder for e in rest for a in e.call.args)
        given_back = any(
            isinstance(e.node, ast.Return) and holder in map(text_of, _parts(e.node.value))
            for e in made.unit.events
            if e.index > event.index
        )
        return bool(holder) and (used or handed or given_back or "." in holder)

    def _finding(self, file: SourceFile, event: Event, made: Event, model: str, message: str) -> Finding:
        optimizer = file.segment(targets_of(made.statement)[0])
        moved = "moves after" in message
        leaf = "becomes a copy" in message
        return self.suspect(
            file, event, f"{message}, and {optimizer} keeps the old {'state' if moved else 'one' if leaf else 'ones'}",
            cause=f"{optimizer} was built on {model}{'' if leaf else '.parameters()'} in line {made.line}, before this",
            advice=f"build {optimizer} after this line", severity="warning" if moved else None,
            related=[self.also(file, "built", made, file.segment(made.node))],
            edits=() if leaf else made_after(file, made, event, model),
        )  # fmt: skip


def _parts(node: ast.expr | None) -> list[ast.expr]:
    """What a function gives back: the elements of a tuple, list or dict, or the one value."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    return [node] if node is not None else []


def _model_of(made: Event) -> str:
    """What the optimizer's first argument takes its parameters from."""
    first = made.call.args[0] if made.call.args else keyword(made.call, "params")
    if isinstance(first, ast.Call) and terminal(first) == "parameters" and receiver(first) is not None:
        return text_of(receiver(first))
    return ""
