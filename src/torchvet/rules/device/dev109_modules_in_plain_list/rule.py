"""DEV109: submodules stand in a Python list or dict, where their module does not see them."""

from __future__ import annotations

import ast
import re

from torchvet.recording.records.device import DeviceMismatch, HiddenModules, Placed
from torchvet.rules.device import _containers as containers
from torchvet.rules.device import _crashes
from torchvet.rules.kit import Edit, Edits, Finding, Findings, Measured, RankRecording, Recording, SourceFile, events_at
from torchvet.source.model import ClassModel, Event, Unit, edits, given, receiver, targets_of, terminal, value_for, walk
from torchvet.source.model.expressions import calls_in, is_call, is_name, name_set, names_in

_STATELESS = name_set(
    "ReLU Tanh Sigmoid GELU SiLU ELU Softmax Pool Pad Flatten Identity Upsample Loss Softplus Mish Hardswish Unfold "
    "Fold Shuffle LogSoftmax Threshold Unflatten Parameter Buffer List Dict"
)
"""Parts of names of torch's modules that hold no parameters, buffers or modes, or that register what they are given."""
_PASSED_OVER = "`.to()`, `parameters()` and `state_dict()` pass over what is in it"
_REGISTER = "make it an `nn.ModuleList` or an `nn.ModuleDict`"
_DEEPEST = 2
_MAKES = re.compile(r"([\w.]+)(?:: [^\n=]+)? ?= ?(?:[\[{]|list\(|dict\(|\([^\n)]*\(.*, )")
_REGISTERING = ("ModuleList", "ModuleDict", "Sequential", "add_module", "register_module", "setattr", "__setattr__")


class ModulesInPlainList(_crashes.CrashRule):
    """Submodules stand in a Python list or dict, where their module does not see them."""

    severity = "error"
    words = ("Module",)
    fix_changes_results = True
    silence_clears = False  # layers that nothing trains are left out of checkpoints all the same

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """What a function of the file returns in a plain list or dict, registered where an attribute is made of it."""
        for event in events_at(file, finding):
            value = getattr(event.node, "value", None) if isinstance(event.node, (ast.Assign, ast.AnnAssign)) else None
            targets = targets_of(event.node) if value is not None else []
            call = event.unit.call_of(value)
            made = file.callee(call) if call is not None else None
            if made is None or value is None or len(targets) != 1 or not isinstance(targets[0], ast.Attribute):
                continue
            kinds = {_kind_of(made, given_back) for given_back, _ in made.returned}
            if len(kinds) == 1 and kinds != {""}:
                return [_registered_as(file, kinds.pop(), value)]
        return ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Layers in a plain list that get gradients and that no optimizer has, if none was left behind on a device."""
        if not self.crashes(recording):
            for hidden in rank.latest(HiddenModules, "holder"):
                yield self._not_trained(rank, hidden)

    def crash(self, rank: RankRecording, record: DeviceMismatch, stray: Placed) -> Finding:
        """Layers that were left behind on a device."""
        holder, there = stray.owner.partition("[")[0], _crashes.there(record, stray)
        message = (
            f"the modules in {holder} are not registered: {stray.name} is on {stray.device} where the rest is on "
            f"{there}"
        )
        cause = f"{holder} is a plain container: {_PASSED_OVER}"
        related = _crashes.evidence(record)
        return self.observed(rank, stray.made or record.place, message, cause=cause, advice=_REGISTER, related=related)

    def _not_trained(self, rank: RankRecording, record: HiddenModules) -> Finding:
        message = (
            f"{record.modules} modules in {record.holder} are not registered: their {record.parameters} parameters get "
            "gradients and no optimizer has them"
        )
        cause = f"{record.holder} is a plain container of {', '.join(record.kinds)}: {_PASSED_OVER}"
        advice = f"{_REGISTER}, before the optimizer is built"
        measured = Measured(bytes=record.bytes, steps=record.steps)
        return self.observed(rank, record.made, message, cause=cause, advice=advice, measured=measured)

    def in_file(self, file: SourceFile) -> Findings:
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
        text = file.text_of(model.methods["__init__"]) + "\n"
        return any("." in m[1] or f" = {m[1]}\n" in text for m in _MAKES.finditer(text))

    def _in_class(self, file: SourceFile, model: ClassModel) -> Findings:
        init = model.methods["__init__"]
        for event in init.events:
            if not isinstance(event.node, (ast.Assign, ast.AnnAssign)):
                continue
            for target in targets_of(event.node):
                # No value for `self.a, self.b = [Layer(), Layer()]`: both are registered.
                value = value_for(event.node, target)
                mine = isinstance(target, ast.Attribute) and terminal(target.value) == init.self_name()
                if mine and value is not None:
                    yield from self._kept(file, model, event, target, value)

    def _kept(self, file: SourceFile, model: ClassModel, event: Event, target: ast.expr, value: ast.expr) -> Findings:
        """A container of layers that an attribute is bound to."""
        init, name = event.unit, terminal(target)
        local = value.id if isinstance(value, ast.Name) else ""
        container = containers.local_value(init, local) if local else value
        if container is None or not containers.is_container(container):
            return
        own = {name, local} - {""}
        layer = self._layer_in(file, container, own, init)
        if layer is not None and not (self._registered(file, model, name, local) or _passed_on(init, own)):
            yield self._finding(file, event, target, container, layer)

    def _layer_in(self, file: SourceFile, value: ast.expr, names: set[str], init: Unit) -> ast.Call | None:
        """The call in a plain container that makes a module with parameters."""
        inside = [*containers.members(value), *(m for name in sorted(names) for m in containers.added(init, name))]
        for one in inside:
            local = containers.local_value(init, one.id) if isinstance(one, ast.Name) else None
            if local is not None and _kept_otherwise(init, terminal(one)):
                continue
            call = local or one
            at = init.call_of(call)
            if isinstance(call, ast.Call) and at is not None and self._has_state(file, call, at):
                return call
        return None

    def _has_state(self, file: SourceFile, call: ast.expr | None, at: Event, depth: int = 0) -> bool:
        if not isinstance(call, ast.Call):
            return False
        dotted = file.dotted(call.func)
        if dotted.startswith("torch.nn."):
            return _is_stateful(dotted)
        known = file.roles.class_named(call.func, at.unit)
        if known is not None:
            return "module" in file.roles.of_class(known) and _may_hold_state(file, known)
        event = at.unit.call_of(call)
        made = file.callee(event) if event is not None and depth < _DEEPEST else None
        returned = made.returned if made is not None else []
        return bool(returned) and all(self._has_state(file, value, e, depth + 1) for value, e in returned)

    @staticmethod
    def _registered(file: SourceFile, model: ClassModel, name: str, local: str) -> bool:
        """Whether the class hands the container on to something that may register what it holds."""
        words, init = ("add_module", "register_module", "setattr"), model.methods["__init__"]
        if any(word in file.text_of(one) for one in model.lineage for word in words):
            return True
        known = [e for e, _ in model.attributes.get(name, []) if not isinstance(e.node, ast.AugAssign)]
        if len(known) > 1 or any(_gives_on(one, f".{name}", name, "") for one in model.lineage):
            return True
        return bool(local) and _gives_on(init, local, name, local)

    def _finding(self, file: SourceFile, event: Event, target: ast.expr, value: ast.expr, layer: ast.Call) -> Finding:
        subject, keyed = file.segment(target), containers.is_keyed(value)
        kind = "ModuleDict" if keyed else "ModuleList"
        made = file.dotted(layer.func).removeprefix("torch.")
        shown = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        whole = value is getattr(event.node, "value", None) and isinstance(value, shown)
        whole = whole and value.lineno == value.end_lineno and _may_be_names(value)
        message = (
            f"{subject} keeps {made} in a plain {'dict' if keyed else 'list'}: it is not trained, moved or saved with "
            "the module"
        )
        cause = f"nn.Module registers what is assigned to it, not what a Python container in {subject} holds"
        change = [_registered_as(file, kind, value)] if whole else []
        return self.suspect(
            file,
            event,
            message,
            cause=cause,
            advice=f"make {subject} an nn.{kind}",
            severity=None if _surely_has_state(file, layer, event.unit) else "warning",
            edits=change,
        )


def _gives_on(code: ClassModel | Unit, written: str, name: str, local: str) -> bool:
    """Whether a class or function takes parameters out of a container, which stands there as `written`, or calls
    something with it."""
    lines = code.file.text_of(code).split("\n")
    if any(written in line and "parameters()" in line for line in lines):
        return True
    return any(_hands_on(call, name, local) for call in calls_in(code.node))


def _registered_as(file: SourceFile, kind: str, value: ast.expr) -> Edit:
    """A container put into one that registers its modules."""
    prefix = next((n for n, d in file.imports.names.items() if d == "torch.nn"), "torch.nn")
    return edits.replace(file, value, f"{prefix}.{kind}({file.segment(value)})")


def _kind_of(unit: Unit, value: ast.expr | None) -> str:
    """What registers the modules in a container that a function returns; empty where it may be no plain one."""
    local = containers.local_value(unit, value.id) if isinstance(value, ast.Name) else None
    one = local or value
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


def _hands_on(call: ast.Call, name: str, local: str) -> bool:
    """Whether a call gives a container, by its attribute's name or its local one, to what registers modules. What is
    put into the container may itself be a Sequential."""
    within = [n for one in given(call) for n in walk(one)] if terminal(call) in _REGISTERING else []
    return any((isinstance(n, ast.Attribute) and n.attr == name) or (local and is_name(n, local)) for n in within)


def _kept_otherwise(init: Unit, name: str) -> bool:
    """Whether a layer with a local name is also assigned to an attribute, or given to something that registers it."""
    for event in init.events:
        node = event.node
        if isinstance(node, ast.Assign) and is_name(node.value, name):
            if isinstance(targets_of(node)[0], ast.Attribute):
                return True
        elif is_call(node, *_REGISTERING) and name in names_in(node):
            return True
    return False


def _passed_on(init: Unit, own: set[str]) -> bool:
    """Whether the constructor gives the members of a container, by a name of theirs, to anything else: a second list,
    which a Sequential may be made of, or a function that may register them."""
    members = {b for b, events in init.bindings.items() for e in events if own & _looped_over(e.node)}
    members |= {one.id for name in own for one in containers.added(init, name) if isinstance(one, ast.Name)}
    return any(_gives(event.node, members, own) for event in init.events) if members else False


def _gives(node: ast.AST, members: set[str], own: set[str]) -> bool:
    """Whether a call or a binding gives one of some variables, and no attribute of it, to what is not its container."""
    if isinstance(node, ast.Call):
        return terminal(receiver(node)) not in own and any(members & _bare(one) for one in given(node))
    if isinstance(node, ast.AugAssign):
        return terminal(node.target) not in own and bool(members & _bare(node.value))
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
        return False
    return terminal(node.targets[0].value) not in own and bool(members & _bare(node.value))


def _bare(node: ast.expr) -> set[str]:
    """Variables that an expression holds themselves, and not by an attribute."""
    return names_in(node) - {terminal(n.value) for n in walk(node) if isinstance(n, ast.Attribute)}


def _looped_over(node: ast.AST) -> set[str]:
    """The last parts of all names in what a loop or a comprehension goes over."""
    if not isinstance(node, (ast.For, ast.comprehension)):
        return set()
    return {terminal(n) for n in walk(node.iter) if isinstance(n, (ast.Name, ast.Attribute))}


def _surely_has_state(file: SourceFile, layer: ast.Call, unit: Unit) -> bool:
    """Whether a call makes a layer of `torch.nn` with parameters, or a class of the file that makes some."""
    known = file.roles.class_named(layer.func, unit)
    made = [layer, *(c for one in known.lineage for c in calls_in(one.node))] if known else calls_in(layer)
    return any(_is_layer(file.dotted(call.func)) for call in made)


def _is_layer(dotted: str) -> bool:
    """Whether a class of `torch.nn` has parameters of its own."""
    if dotted in ("torch.nn.Parameter", "torch.nn.Sequential"):
        return dotted == "torch.nn.Parameter"
    return dotted.startswith("torch.nn.") and _is_stateful(dotted)


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
        for call in calls_in(one.node):
            dotted = file.dotted(call.func)
            last = dotted.rpartition(".")[2]
            if last in file.classes:
                waiting += [file.classes[last]] if last not in seen else []
            elif _makes_state(dotted):
                return True
    return False


def _makes_state(dotted: str) -> bool:
    """Whether a call of no class of the file may make or register what holds parameters, buffers or a mode."""
    last = dotted.rpartition(".")[2]
    if dotted.startswith("torch.nn.") and "functional" not in dotted:
        return _is_stateful(dotted) or last == "Parameter"
    made = last[:1].isupper() and not last.endswith("Error")
    return made or "register_" in last or last in ("add_module", "setattr")
