"""DEV103: parameters are replaced after the optimizer was built on them."""

from __future__ import annotations

import ast
from typing import Literal, NamedTuple

from torchvet.rules.device import _crashes
from torchvet.rules.device.fixes.optimizer_order import made_after
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Related, SourceFile, records
from torchvet.rules.shared.seen_suspicions import confirmed
from torchvet.source.model import Event, is_call, is_set, steps, targets_of, torch_names
from torchvet.source.model.devices import ACCELERATORS
from torchvet.source.syntax import argument, keyword, receiver, terminal

_REPLACING = frozenset(("to_empty", "resize_token_embeddings", "reset_classifier"))
_CALLS = _REPLACING | {"load_state_dict", "to", "cuda"}
_SHARDED = ("FullyShardedDataParallel", "FSDP")
_OPTIM = ("optim", "Adam", "SGD")


class OptimizerBeforeMove(_crashes.CrashRule):
    """Parameters are replaced after the optimizer was built on them."""

    severity = "error"
    words = (".parameters()", "requires_grad")
    fix_changes_results = True
    # What is replaced in part is TRN105's, and what has no gradient yet shows nothing.
    silence_clears = False

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Optimizers all of whose parameters have been replaced, or some where source shows by what."""
        by_source: set[str] = set()
        for unowned in (
            u for u in records.optimizers.still_unowned(rank.all(records.optimizers.UnownedParameters)) if u.orphans
        ):
            seen = f" ({unowned.count} parameters of {unowned.module} are never stepped)"
            measured = Measured(bytes=unowned.bytes, steps=unowned.steps)
            for found in confirmed(self, recording, rank, unowned.place, seen=seen, measured=measured, role="built"):
                by_source.add(unowned.module)
                yield found
        for record in rank.latest(records.device.ReplacedParameters, "module"):
            if record.module not in by_source:
                yield self._replaced_all(rank, record)

    def _replaced_all(self, rank: RankRecording, record: records.device.ReplacedParameters) -> Finding:
        return self.observed(
            rank,
            record.place,
            f"{record.optimizer} updates {record.count} parameters that {record.module} does not have any more: "
            "nothing is trained",
            cause=f"all {record.count} parameters of {record.module} get gradients and no optimizer has them; those "
            "that the optimizer was built on, of the same shapes, get none",
            advice="build the optimizer after the last thing that replaces the model's parameters",
            measured=Measured(bytes=record.bytes, steps=record.steps),
        )

    def crash(
        self, rank: RankRecording, record: records.device.DeviceMismatch, stray: records.device.Placed
    ) -> Finding:
        """State that is not where its parameters are."""
        message = f"{stray.name} is on {stray.device} where the gradients are on {_crashes.there(record, stray)}"
        cause, advice = _unmoved(stray)
        related = _crashes.where(record)
        if stray.loaded is not None:
            related.append(Related(role="loaded", message="loaded", path=stray.loaded.path, line=stray.loaded.line))
        return self.observed(rank, record.place, message, cause=cause, advice=advice, related=related)

    def in_file(self, file: SourceFile) -> Findings:
        """After `optimizer = O(model.parameters())`, in the same unit, what gives `model` other parameters."""
        found = [*file.units_with("parameters"), *file.units_with("requires_grad")] if file.mentions(*_OPTIM) else []
        units = {id(u): u for u in found}
        for made in (e for u in units.values() for e in u.calls_of(torch_names.OPTIMIZERS)):
            if "optimizer" in file.roles.of(made.node, made.unit):
                yield from self._moved_leaves(file, made)
                yield from self._changed_model(file, made, _model_of(made))

    def _changed_model(self, file: SourceFile, made: Event, model: str) -> Findings:
        for event in made.unit.events if model else ():
            later = event.index > made.index and not event.excludes(made)
            change = self._replaced(file, event, model, made) if later else None
            if change is not None and self._goes_on(file, made, event, model):
                yield self._finding(file, event, made, model, change)
                return

    def _moved_leaves(self, file: SourceFile, made: Event) -> Findings:
        """`Adam([x])`, then `x = x.to(device)`: the copy is what the program uses, the leaf what the optimizer has."""
        first = made.call.args[0] if made.call.args else None
        listed = first.elts if isinstance(first, (ast.List, ast.Tuple)) else []
        leaves = {steps.text_of(e) for e in listed if isinstance(e, (ast.Name, ast.Attribute))}
        for event in made.unit.events if leaves else ():
            node = event.node
            if event.index < made.index or event.excludes(made) or not isinstance(node, ast.Assign):
                continue
            leaf, value = steps.text_of(targets_of(node)[0]), node.value
            # `Module.to` keeps its parameters, `Tensor.to` gives a copy: so only tensors are asked about here.
            if leaf not in leaves or not isinstance(value, ast.Call) or steps.text_of(receiver(value)) != leaf:
                continue
            if _moves(file, value, event) and self._goes_on(file, made, event, leaf):
                # On the CPU `.to("cpu")` copies nothing: only a GPU that the file names proves it.
                change = _Change(f"{leaf} becomes a copy on the device", "one", sure=file.mentions(*ACCELERATORS))
                yield self._finding(file, event, made, leaf, change)

    def _replaced(self, file: SourceFile, event: Event, model: str, made: Event) -> _Change | None:
        """What an event does to the model's parameters; None where it keeps them."""
        node = event.node
        if isinstance(node, ast.Assign):
            return self._assigned(file, node, model, event)
        name = terminal(node)
        if is_call(node, "setattr") and len(node.args) == 3 and steps.text_of(node.args[0]) == model:
            return _Change(f"{model} gets a new module") if _is_module(file, node.args[2], event) else None
        if not is_call(node, *_CALLS) or steps.text_of(receiver(node)) != model:
            return None
        if name in _REPLACING or (name == "load_state_dict" and is_set(node, "assign")):
            # Others may keep what has the right device and size already.
            return _Change(f"{model}.{name}(…) puts new parameters in place", sure=name == "load_state_dict")
        # Adagrad makes its state in its constructor, the others make theirs in the first step, after the move.
        if terminal(made.node) == "Adagrad" and _moves(file, node, event):
            return _Change(f"{model} moves after Adagrad has made its state on the old device", "state", sure=False)
        return None

    @staticmethod
    def _assigned(file: SourceFile, node: ast.Assign, model: str, event: Event) -> _Change | None:
        value = node.value
        whole = is_call(value, *_SHARDED, "deepcopy")
        if not isinstance(value, ast.Call) or (isinstance(node.targets[0], ast.Name) and not whole):
            return None
        for written in map(steps.text_of, targets_of(node)):
            if written.startswith((model + ".", model + "[")):
                return _Change(f"{written} is a new module") if _is_module(file, value, event) else None
            # Other packages have classes of that name, which keep the parameters.
            if written == model and file.dotted(value.func).startswith("torch.distributed."):
                kept = keyword(value, "use_orig_params") is not None
                return None if kept else _Change(f"{model} is sharded into new parameters")
            if written == model and file.dotted(value.func) == "copy.deepcopy":
                return _Change(f"{model} is a copy with parameters of its own")
        return None

    @staticmethod
    def _goes_on(file: SourceFile, made: Event, event: Event, model: str) -> bool:
        """Whether that optimizer is used afterwards on the model, and is not given the new parameters."""
        calls = [e for e in made.unit.calls_inside(None) if e.index > event.index]
        holder = steps.text_of(next(iter(targets_of(made.statement)), None))
        if not holder or any(_takes(file, e, model) for e in calls):
            return False
        used = any(steps.text_of(receiver(e.call)) == holder and terminal(e.node) == "step" for e in calls)
        handed = [e.call.args for e in calls]
        handed += [_parts(value) for value, e in made.unit.returned if e.index > event.index]
        return used or "." in holder or any(holder in map(steps.text_of, values) for values in handed)

    def _finding(self, file: SourceFile, event: Event, made: Event, model: str, change: _Change) -> Finding:
        optimizer, leaf = file.segment(targets_of(made.statement)[0]), change.kept == "one"
        return self.suspect(
            file,
            event,
            f"{change.message}, and {optimizer} keeps the old {change.kept}",
            cause=f"{optimizer} was built on {model}{'' if leaf else '.parameters()'} in line {made.line}, before this",
            advice=f"build {optimizer} after this line",
            severity=None if change.sure else "warning",
            edits=() if leaf else made_after(file, made, event, model),
            related=[self.also(file, "built", made)],
        )


def _unmoved(stray: records.device.Placed) -> tuple[str, str]:
    """Why an optimizer's state is not where its parameters are, as far as the run saw it, and what to do."""
    if stray.loaded is not None:
        cause = (
            f"line {stray.loaded.line} loaded this state from a file to {stray.device}, and nothing has moved it "
            "since: moving a model moves no optimizer's state"
        )
        advice = (
            "call `optimizer.load_state_dict` once the model is on its device: it moves the state there; what is put "
            "into `optimizer.state` by hand has to be moved by hand"
        )
    elif stray.built_on == stray.device:
        cause = (
            f"{stray.owner} was built while its parameters were on {stray.device}, and they were moved since: moving a "
            "model moves no optimizer's state"
        )
        advice = "move the model first, then build the optimizer, or load its state"
    else:
        cause = (
            f"what put it there was not seen; {stray.owner} makes state where the parameter is, and moving a model "
            "moves no optimizer's state"
        )
        advice = "move each tensor of `optimizer.state` to the device of its parameter"
    return cause, advice


class _Change(NamedTuple):
    """What happens to the parameters, and what the optimizer keeps of the old."""

    message: str
    kept: Literal["ones", "one", "state"] = "ones"
    sure: bool = True


def _moves(file: SourceFile, call: ast.Call, event: Event) -> bool:
    """Whether a call moves something to a device."""
    moved = file.devices.move(call, event.unit)
    return moved is not None and moved[0] == "device"


def _is_module(file: SourceFile, value: ast.expr, event: Event) -> bool:
    """Whether a value is a module that may have parameters."""
    roles = file.roles.of(value, event.unit)
    return "module" in roles and "criterion" not in roles


def _takes(file: SourceFile, event: Event, model: str) -> bool:
    """Whether a call gives parameters of the model to an optimizer: this one, or another."""
    if terminal(event.node) == "add_param_group":
        return True
    return any(model in steps.text_of(a) for a in event.call.args) and "optimizer" in file.roles.of(
        event.node, event.unit
    )


def _parts(node: ast.expr | None) -> list[ast.expr]:
    """What a function gives back: the elements of a tuple, list or dict, or the one value."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    return [node] if node is not None else []


def _model_of(made: Event) -> str:
    """What the optimizer's first argument takes its parameters from."""
    first = argument(made.call, "params", 0)
    return steps.text_of(receiver(first)) if is_call(first, "parameters") else ""
