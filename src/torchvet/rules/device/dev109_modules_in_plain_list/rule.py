"""DEV109: submodules stand in a Python list or dict, where their module does not see them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.recording.records.device import HiddenModules
from torchvet.rules.device import _containers as containers
from torchvet.rules.device import _crashes
from torchvet.rules.kit import Edit, Finding, Measured, RankRecording, Recording, Rule, SourceFile, events_at
from torchvet.source.model import ClassModel, Event, Unit, edits, targets_of, terminal, value_for, walk

if TYPE_CHECKING:
    from torchvet.recording.records.device import DeviceMismatch, Placed

_STATELESS = ("ReLU", "Tanh", "Sigmoid", "GELU", "SiLU", "ELU", "Softmax", "Pool", "Pad", "Flatten", "Identity",
              "Upsample", "Loss", "Softplus", "Mish", "Hardswish", "Unfold", "Fold", "Shuffle", "LogSoftmax",
              "Threshold", "Unflatten", "Parameter", "Buffer", "List", "Dict")  # fmt: skip
"""Parts of names of torch's modules that hold no parameters, buffers or modes, or that register what they are given."""
_DEEPEST = 2
_MAKES = re.compile(r"([\w.]+)(?:: [^\n=]+)? ?= ?(?:[\[{]|list\(|dict\(|\([^\n)]*\(.*, )")
_REGISTERING = ("ModuleList", "ModuleDict", "Sequential", "add_module", "register_module", "setattr", "__setattr__")


class ModulesInPlainList(Rule):
    """Submodules stand in a Python list or dict, where their module does not see them."""

    code = "DEV109"
    name = "modules-in-plain-list"
    summary = "Submodules stand in a Python list or dict, where their module does not see them"
    severity = "error"
    words = ("Module",)

    fix_changes_results = True
    silence_clears = False  # layers that nothing trains are left out of checkpoints all the same

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """What a function of the file returns in a plain list or dict, registered where an attribute is made of it."""
        for event in events_at(file, finding):
            value = getattr(event.node, "value", None) if isinstance(event.node, (ast.Assign, ast.AnnAssign)) else None
            targets = targets_of(event.node) if value is not None else []
            call = next((e for e in event.unit.calls.get(terminal(value), ()) if e.node is value), None)
            made = file.callee(call) if call is not None else None
            if made is None or value is None or len(targets) != 1 or not isinstance(targets[0], ast.Attribute):
                continue
            kinds = {_kind_of(made, e.node.value) for e in made.events if isinstance(e.node, ast.Return)}
            if len(kinds) == 1 and kinds != {""}:
                prefix = next((n for n, d in file.imports.names.items() if d == "torch.nn"), "torch.nn")
                return [edits.replace(file, value, f"{prefix}.{kinds.pop()}({file.segment(value)})")]
        return ()

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Layers in a plain list that get gradients and that no optimizer has, or that were left behind on a device."""
        crashed = False
        for rank, record, stray in _crashes.mismatches(recording):
            if stray is not None and stray.role == "unregistered":
                crashed = True
                yield self._left_behind(rank, record, stray)
        for rank in recording.ranks if not crashed else ():
            for hidden in rank.latest(HiddenModules, "holder"):
                yield self._not_trained(rank, hidden)

    def _left_behind(self, rank: RankRecording, record: DeviceMismatch, stray: Placed) -> Finding:
        holder = stray.owner.partition("[")[0]
        return self.observed(
            rank, severity="error", place=_crashes.made(stray, record.place),
            message=f"the modules in {holder} are not registered: {stray.name} is on {stray.device} where the rest is "
            f"on {_crashes.there(record, stray)}",
            cause=f"{holder} is a plain container: `.to()`, `parameters()` and `state_dict()` pass over what is in it",
            advice="make it an `nn.ModuleList` or an `nn.ModuleDict`",
            related=[_crashes.raised(record), *_crashes.where(record)],
        )  # fmt: skip

    def _not_trained(self, rank: RankRecording, record: HiddenModules) -> Finding:
        return self.observed(
            rank, severity="error", place=record.made,
            message=f"{record.modules} modules in {record.holder} are not registered: their {record.parameters} "
            "parameters get gradients and no optimizer has them",
            cause=f"{record.holder} is a plain container of {', '.join(record.kinds)}: `parameters()`, `.to()` and "
            "`state_dict()` pass over what is in it",
            advice="make it an `nn.ModuleList` or an `nn.ModuleDict`, before the optimizer is built",
            measured=Measured(bytes=record.bytes, steps=record.steps),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`self.x = [Layer(…), …]`, or `self.x.append(Layer(…))`, in a module that registers `self.x` nowhere."""
        for model in list(file.classes.values()):
            if "module" not in file.roles.of_class(model) or "__init__" not in model.methods:
                continue
            if model.methods["__init__"].owner is not model or not self._may_hold(file, model):
                continue
            yield from self._in_class(file, model)

    @staticmethod
    def _may_hold(file: SourceFile, model: ClassModel) -> bool:
        """Whether the constructor's lines assign a plain container to an attribute, by way of a name or not."""
        init = model.methods["__init__"]
        text = "\n".join(file.lines[init.first - 1 : init.last]) + "\n"
        return any("." in m[1] or f" = {m[1]}\n" in text for m in _MAKES.finditer(text))

    def _in_class(self, file: SourceFile, model: ClassModel) -> Iterator[Finding]:
        init = model.methods["__init__"]
        for event in init.events:
            if not isinstance(event.node, (ast.Assign, ast.AnnAssign)):
                continue
            for target in targets_of(event.node):
                value = value_for(event.node, target)  # none for `self.a, self.b = [Layer(), Layer()]`: both registered
                if not (isinstance(target, ast.Attribute) and terminal(target.value) == init.self_name()):
                    continue
                if value is None:
                    continue
                local = value.id if isinstance(value, ast.Name) else ""
                known = containers.local_value(init, local) if local else (value, event)
                if known is None or not containers.is_container(known[0]):
                    continue
                layer = self._layer_in(file, known[0], {target.attr, local} - {""}, init)
                if layer is not None and not self._registered(file, model, target.attr, local):
                    yield self._finding(file, event, target, known[0], layer)

    def _layer_in(self, file: SourceFile, value: ast.expr, names: set[str], init: Unit) -> ast.Call | None:
        """The call in a plain container that makes a module with parameters."""
        inside = [*containers.members(value), *(m for name in sorted(names) for m in containers.added(init, name))]
        for one in inside:
            known = containers.local_value(init, one.id) if isinstance(one, ast.Name) else None
            if known is not None and isinstance(one, ast.Name) and _kept_otherwise(init, one.id):
                continue
            call = known[0] if known is not None else one
            at = next((e for e in init.calls.get(terminal(call), ()) if e.node is call), None)
            if isinstance(call, ast.Call) and at is not None and self._has_state(file, call, at):
                return call
        return None

    def _has_state(self, file: SourceFile, call: ast.Call, at: Event, depth: int = 0) -> bool:
        dotted = file.dotted(call.func)
        if dotted.startswith("torch.nn."):
            return _is_stateful(dotted)
        known = file.roles.class_named(call.func, at.unit)
        if known is not None:
            return "module" in file.roles.of_class(known) and _may_hold_state(file, known)
        event = next((e for e in at.unit.calls.get(terminal(call), ()) if e.node is call), None)
        made = file.callee(event) if event is not None and depth < _DEEPEST else None
        returned = [e for e in made.events if isinstance(e.node, ast.Return)] if made is not None else []
        return bool(returned) and all(
            isinstance(e.node.value, ast.Call) and self._has_state(file, e.node.value, e, depth + 1)  # type: ignore[attr-defined]
            for e in returned
        )

    @staticmethod
    def _registered(file: SourceFile, model: ClassModel, name: str, local: str) -> bool:
        """Whether the class hands the container on to something that may register what it holds."""
        lines = [
            line
            for one in model.lineage
            for line in file.lines[one.node.lineno - 1 : one.node.end_lineno]
            if f".{name}" in line or any(word in line for word in ("add_module", "register_module", "setattr"))
        ]
        if any(word in line for line in lines for word in ("add_module", "register_module", "setattr")):
            return True
        init = model.methods["__init__"]
        if local:
            lines += [line for line in file.lines[init.first - 1 : init.last] if local in line]
        known = [e for e, _ in model.attributes.get(name, []) if not isinstance(e.node, ast.AugAssign)]
        if len(known) > 1 or any("parameters()" in line for line in lines):
            return True
        classes: list[ast.AST] = [one.node for one in model.lineage]
        return any(_hands_on(call, name, "") for one in classes for call in walk(one)) or (
            bool(local) and any(_hands_on(call, name, local) for call in walk(init.node))
        )

    def _finding(
        self, file: SourceFile, event: Event, target: ast.Attribute, value: ast.expr, layer: ast.Call
    ) -> Finding:
        subject, keyed = file.segment(target), containers.is_keyed(value)
        kind = "ModuleDict" if keyed else "ModuleList"
        made = file.dotted(layer.func).removeprefix("torch.")
        prefix = next((n for n, d in file.imports.names.items() if d == "torch.nn"), "torch.nn")
        shown = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        whole = value is getattr(event.node, "value", None) and isinstance(value, shown)
        text = file.segment(value) if whole and value.lineno == value.end_lineno else ""
        change = [edits.replace(file, value, f"{prefix}.{kind}({text})")] if text and _may_be_names(value) else []
        return self.suspect(
            file, event, f"{subject} keeps {made} in a plain {'dict' if keyed else 'list'}: it is not trained, "
            "moved or saved with the module",
            cause=f"nn.Module registers what is assigned to it, not what a Python container in {subject} holds",
            advice=f"make {subject} an nn.{kind}", edits=change,
        )  # fmt: skip


def _kind_of(unit: Unit, value: ast.expr | None) -> str:
    """What registers the modules in a container that a function returns; empty where it may be no plain one."""
    known = containers.local_value(unit, value.id) if isinstance(value, ast.Name) else None
    one = known[0] if known is not None else value
    if one is None or not containers.is_container(one):
        return ""
    if containers.is_keyed(one):  # what a name is filled with later may have keys of any kind
        shown = isinstance(one, ast.DictComp) or (isinstance(one, ast.Dict) and bool(one.keys))
        return "ModuleDict" if shown and _may_be_names(one) else ""
    held = [one.elt] if isinstance(one, ast.ListComp) else getattr(one, "elts", [])
    return "" if any(containers.is_container(member) for member in held) else "ModuleList"


def _may_be_names(value: ast.expr) -> bool:
    """Whether the keys of a container, where it has any, may be what a ModuleDict takes: strings."""
    if isinstance(value, ast.DictComp):
        return isinstance(value.key, (ast.Name, ast.JoinedStr)) or terminal(value.key) == "str"
    keys = value.keys if isinstance(value, ast.Dict) else []
    return all(isinstance(k, ast.Constant) and isinstance(k.value, str) for k in keys)


def _hands_on(node: ast.AST, name: str, local: str) -> bool:
    """Whether a call gives a container, by its attribute's name or its local one, to what registers modules. What is
    put into the container may itself be a Sequential."""
    if not isinstance(node, ast.Call) or terminal(node) not in _REGISTERING:
        return False
    given = [n for a in (*node.args, *(k.value for k in node.keywords)) for n in walk(a)]
    return any(
        (isinstance(n, ast.Attribute) and n.attr == name) or (local and isinstance(n, ast.Name) and n.id == local)
        for n in given
    )


def _kept_otherwise(init: Unit, name: str) -> bool:
    """Whether a layer with a local name is also assigned to an attribute, or given to something that registers it."""
    for event in init.events:
        value = event.node.value if isinstance(event.node, ast.Assign) else None
        to_attribute = value is not None and isinstance(targets_of(event.node)[0], ast.Attribute)
        if to_attribute and isinstance(value, ast.Name) and value.id == name:
            return True
        registers = isinstance(event.node, ast.Call) and terminal(event.node) in _REGISTERING
        if registers and any(isinstance(n, ast.Name) and n.id == name for n in walk(event.node)):
            return True
    return False


def _is_stateful(dotted: str) -> bool:
    """Whether a class of `torch.nn` holds parameters, buffers or a mode."""
    last = dotted.rpartition(".")[2]
    return last[:1].isupper() and not any(word in last for word in _STATELESS)


def _may_hold_state(file: SourceFile, model: ClassModel) -> bool:
    """Whether a class of the file makes anything but activations, pooling and their like, itself or by its parts."""
    waiting, seen = [model], set()
    while waiting:
        one = waiting.pop()
        seen.add(one.name)
        if any(b != "torch.nn.Module" and b not in file.classes for b in one.bases):
            return True
        waiting += [c for c in one.lineage if c.name not in seen]
        for node in ast.walk(one.node):
            dotted = file.dotted(node.func) if isinstance(node, ast.Call) else ""
            last = dotted.rpartition(".")[2]
            if last in file.classes:
                waiting += [file.classes[last]] if last not in seen else []
            elif dotted.startswith("torch.nn.") and "functional" not in dotted:
                if _is_stateful(dotted) or last == "Parameter":
                    return True
            elif (
                (last[:1].isupper() and not last.endswith("Error"))
                or "register_" in last
                or last in ("add_module", "setattr")
            ):
                return True
    return False
