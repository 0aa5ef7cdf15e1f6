"""DEV109: submodules stand in a Python list or dict, where their module does not see them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.recording import records
from torchvet.rules.device import _containers as containers
from torchvet.rules.device import _crashes, _members, _modules
from torchvet.rules.kit import Edit, Edits, Finding, Findings, Measured, RankRecording, Recording, SourceFile, events_at
from torchvet.source.model import Event, calls_in, edits, is_attribute, is_call, is_literal, is_name, name_set, names_in
from torchvet.source.model.units import ClassModel, Unit, targets_of, value_for
from torchvet.source.syntax import given, receiver, terminal
from torchvet.source.walking import walk

_STATELESS = name_set(
    "ReLU Tanh Sigmoid GELU SiLU ELU Softmax Pool Pad Flatten Identity Upsample Loss Softplus Mish Hardswish Unfold "
    "Fold Shuffle LogSoftmax Threshold Unflatten Parameter Buffer List Dict"
)
"""Parts of names of torch's modules that hold no parameters, buffers or modes, or that register what they are given."""
_PASSED_OVER = "`.to()`, `parameters()` and `state_dict()` pass over what is in it"
_REGISTER = "make it an `nn.ModuleList` or an `nn.ModuleDict`"
_DEEPEST = 2
_MAKES = re.compile(r"(?:^|;)[ \t]*([\w.]+)(?:: [^\n=]+)? ?= ?(?:[\[{]|list\(|dict\(|\([^\n)]*\(.*, )", re.MULTILINE)
_MAKES_OWN = re.compile(r"self\.\w+(?:: [^\n=]+)? = (?:[\[{]|list\(|dict\()")
_ASKS = re.compile(r"self\.\w+ = (?:(tuple\()?(\w+)\)?\n|(?:self\.)?(\w+)\()")
_REGISTERING = ("ModuleList", "ModuleDict", "Sequential", "add_module", "register_module", "setattr", "__setattr__")


class ModulesInPlainList(_crashes.CrashRule):
    """Submodules stand in a Python list or dict, where their module does not see them."""

    severity = "error"
    words = ("Module", "def forward(", "parameters()")
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
            for hidden in rank.latest(records.device.HiddenModules, "holder"):
                yield self._not_trained(rank, hidden)

    def crash(
        self, rank: RankRecording, record: records.device.DeviceMismatch, stray: records.device.Placed
    ) -> Finding:
        """Layers that were left behind on a device."""
        holder, there = stray.owner.partition("[")[0], _crashes.there(record, stray)
        message = (
            f"the modules in {holder} are not registered: {stray.name} is on {stray.device} where the rest is on "
            f"{there}"
        )
        cause = f"{holder} is a plain container: {_PASSED_OVER}"
        related = _crashes.evidence(record)
        return self.observed(rank, stray.made or record.place, message, cause=cause, advice=_REGISTER, related=related)

    def _not_trained(self, rank: RankRecording, record: records.device.HiddenModules) -> Finding:
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
            if not _modules.may_be(file, model):
                continue
            units = [unit for unit in model.methods.values() if unit.owner is model and self._may_hold(file, unit)]
            known = _modules.evidence(file, model) if units else ""
            told: set[str] = set()
            for event, target, value in (one for unit in units for one in _stored(unit)) if known else ():
                finding = self._kept(file, model, event, target, value) if terminal(target) not in told else None
                if finding is not None:
                    told.add(terminal(target))
                    yield finding

    @staticmethod
    def _may_hold(file: SourceFile, unit: Unit) -> bool:
        """Whether a method's lines assign a plain container to an attribute, by way of a name or a call or not."""
        text = file.text_of(unit) + "\n"
        if unit.name != "__init__":
            return _MAKES_OWN.search(text) is not None
        if any("." in m[1] or f" = {m[1]}\n" in text for m in _MAKES.finditer(text)):
            return True
        return any(
            file.functions(m[3]) if m[3] else m[1] or _members.kind_given(unit, m[2]) for m in _ASKS.finditer(text)
        )

    def _kept(
        self, file: SourceFile, model: ClassModel, event: Event, target: ast.expr, value: ast.expr
    ) -> Finding | None:
        """A container of layers that an attribute is bound to."""
        unit, name = event.unit, terminal(target)
        given, kind = _members.parameter_held(unit, value) if unit.name == "__init__" else ("", "")
        if given and kind:
            return self._given(file, model, event, target, given, kind)
        where, local, container = containers.bound(file, unit, value)
        if container is None or not containers.is_container(container):
            return None
        inside = _inside(model, where, container, (name, local))
        layer, surely = self._layer_among(file, inside), _modules.is_module(file, model)
        shown = layer is not None and surely
        made = layer if shown else _perhaps(file, model, name, inside, layer)
        if made is None or self._registered(file, model, name, local, where) or _passed_on(where, name, local):
            return None
        if shown:
            return self._finding(file, event, target, container, made, where)
        kind = "dict" if containers.is_keyed(container) else "list"
        return self._unsure(file, model, event, target, terminal(made), kind, layer is not None)

    def _layer_among(self, file: SourceFile, inside: list[tuple[ast.expr, Unit]]) -> ast.Call | None:
        """The first call among a container's members that makes a module with parameters."""
        return next((call for call, event in _calls(inside) if self._has_state(file, call, event)), None)

    def _has_state(self, file: SourceFile, call: ast.expr | None, at: Event, depth: int = 0) -> bool:
        if not isinstance(call, ast.Call):
            return False
        dotted = file.dotted(call.func)
        if dotted.startswith("torch.nn."):
            return _is_stateful(dotted)
        known = file.roles.class_named(call.func, at.unit)
        if known is not None:
            return _modules.is_module(file, known) and _may_hold_state(file, known)
        given = _members.classes_given(file, call, at.unit)
        if given:
            return all(_is_stateful_class(file, one) for one in given)
        event = at.unit.call_of(call)
        made = file.callee(event) if event is not None and depth < _DEEPEST else None
        returned = made.returned if made is not None else []
        return bool(returned) and all(self._has_state(file, value, e, depth + 1) for value, e in returned)

    @staticmethod
    def _registered(file: SourceFile, model: ClassModel, name: str, local: str, where: Unit) -> bool:
        """Whether the class hands the container on to something that may register what it holds."""
        words = ("add_module", "register_module", "setattr")
        texts = [file.text_of(where), *(file.text_of(one) for one in model.lineage)]
        if any(word in text for text in texts for word in words):
            return True
        known = [(e, v) for e, v in model.attributes.get(name, []) if not isinstance(e.node, ast.AugAssign)]
        if len(known) > 1 and not all(_is_plain(value) for _, value in known):
            return True
        if any(_gives_on(one, f".{name}", name, "") for one in model.lineage):
            return True
        return bool(local) and _gives_on(where, local, name, local)

    def _given(
        self, file: SourceFile, model: ClassModel, event: Event, target: ast.expr, parameter: str, kind: str
    ) -> Finding | None:
        """What the constructor is given one by one, or in a list, and other methods call."""
        name = terminal(target)
        if _modules.is_container(model):
            return None
        used = _members.are_called(model, name, _modules.is_module(file, model)) or (
            model.method("forward") is not None and _members.are_of_its_base(event.unit, model, parameter)
        )
        if not used or self._registered(file, model, name, parameter, event.unit):
            return None
        surely = _members.callers_give_modules(file, event.unit, parameter)
        return self._unsure(file, model, event, target, f"what {parameter} gives it", kind, surely)

    def _unsure(
        self, file: SourceFile, model: ClassModel, event: Event, target: ast.expr, held: str, kind: str, layers: bool
    ) -> Finding:
        """Members that may be modules, as they are used like such, of what is or may be a module."""
        subject, mine = file.segment(target), _modules.is_module(file, model)
        doubts = [*([] if layers else ["these"]), *([] if mine else [model.name])]
        kinds = "is a module" if doubts == [model.name] else "are modules"
        condition = f"if {' and '.join(doubts)} {kinds}, they are" if doubts else "they are"
        return self.suspect(
            file,
            event,
            f"{subject} keeps {held} in a plain {kind}: {condition} not trained, moved or saved with the module",
            cause=f"{model.name} uses them as modules are used, and nn.Module registers what is assigned to it, not "
            f"what a Python container in {subject} holds",
            advice=f"make {subject} an nn.Module{kind.capitalize()}",
            severity="info" if doubts else "warning",
        )

    def _finding(
        self, file: SourceFile, event: Event, target: ast.expr, value: ast.expr, layer: ast.Call, where: Unit
    ) -> Finding:
        subject, keyed = file.segment(target), containers.is_keyed(value)
        kind = "ModuleDict" if keyed else "ModuleList"
        made = file.dotted(layer.func).removeprefix("torch.")
        shown = (ast.List, ast.Dict, ast.ListComp, ast.DictComp)
        whole = value is getattr(event.node, "value", None) and isinstance(value, shown)
        whole = whole and value.lineno == value.end_lineno and _may_be_names(value) and _may_be_modules(value)
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
            severity=None if _surely_has_state(file, layer, where) else "warning",
            edits=change,
        )


def _stored(unit: Unit) -> Iterator[tuple[Event, ast.expr, ast.expr]]:
    """What a method binds its object's attributes to."""
    for event in unit.events:
        for target in targets_of(event.node) if isinstance(event.node, (ast.Assign, ast.AnnAssign)) else ():
            # No value for `self.a, self.b = [Layer(), Layer()]`: both are registered.
            value = value_for(event.node, target)
            if isinstance(target, ast.Attribute) and terminal(target.value) == unit.self_name() and value is not None:
                yield event, target, value


def _perhaps(
    file: SourceFile, model: ClassModel, name: str, inside: list[tuple[ast.expr, Unit]], layer: ast.Call | None
) -> ast.Call | None:
    """What makes a member that may be a layer, of what may be a module, if it is used as modules are."""
    made = (call for call, _ in _calls(inside) if _members.made_elsewhere(file, model, call))
    found = layer or next(made, None)
    used = found is not None and _members.are_used(model, name, _modules.is_module(file, model))
    return found if used else None


def _inside(model: ClassModel, where: Unit, container: ast.expr, names: tuple[str, str]) -> list[tuple[ast.expr, Unit]]:
    """What a container holds that stands under an attribute's name and a local one, each with the unit that says so."""
    inside = [(one, where) for one in containers.members(container)]
    inside += [(one, where) for word in sorted({*names} - {""}) for one in containers.added(where, word)]
    others = _filling(model, names[0], where)
    return inside + [(one, other) for other in others for one in containers.added(other, names[0])]


def _calls(inside: list[tuple[ast.expr, Unit]]) -> Iterator[tuple[ast.Call, Event]]:
    """The calls that make members of a container, those left out that an attribute of their own also holds."""
    for one, unit in inside:
        local = None
        if isinstance(one, ast.Name):
            local = containers.local_value(unit, one.id) or _members.value_of(unit, one.id)
        if local is not None and _kept_otherwise(unit, terminal(one)):
            continue
        call = local or one
        event = unit.call_of(call)
        if isinstance(call, ast.Call) and event is not None:
            yield call, event


def _filling(model: ClassModel, name: str, where: Unit) -> list[Unit]:
    """Other methods of a class that may put something into an attribute's container."""
    signs = (f".{name}.append(", f".{name}.extend(", f".{name}.insert(", f".{name}[", f".{name} +=")
    units = (unit for unit in model.methods.values() if unit is not where and unit.owner is model)
    return [unit for unit in units if any(sign in model.file.text_of(unit) for sign in signs)]


def _is_plain(value: ast.expr | None) -> bool:
    """Whether an attribute is bound to a plain container, or to None until there is one."""
    return value is not None and (containers.is_container(value) or is_literal(value, None))


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
    names = [k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
    return len(names) == len(keys) and all(name and "." not in name for name in names)


def _may_be_modules(value: ast.expr) -> bool:
    """Whether no member of a container is shown to be something else, which a ModuleList or ModuleDict refuses."""
    if isinstance(value, (ast.ListComp, ast.DictComp)):
        held = [value.elt if isinstance(value, ast.ListComp) else value.value]
    else:
        held = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [])
    plain = (ast.Tuple, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.Constant, ast.Lambda)
    return not any(isinstance(one, plain) for one in held)


def _hands_on(call: ast.Call, name: str, local: str) -> bool:
    """Whether a call gives a container, by its attribute's name or its local one, to what registers modules. What is
    put into the container may itself be a Sequential."""
    within = [n for one in given(call) for n in walk(one)] if terminal(call) in _REGISTERING else []
    return any(is_attribute(n, name) or (local and is_name(n, local)) for n in within)


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


def _passed_on(init: Unit, name: str, local: str) -> bool:
    """Whether the constructor gives the members of a container, by a name of theirs, to anything else: a second list,
    which a Sequential may be made of, or a function that may register them."""
    own = {name, local} - {""}
    members = {b for b, events in init.bindings.items() for e in events if _loops_over(e.node, name, local)}
    members |= {one.id for word in own for one in containers.added(init, word) if isinstance(one, ast.Name)}
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


def _loops_over(node: ast.AST, name: str, local: str) -> bool:
    """Whether a loop or a comprehension goes over an attribute, or a local name."""
    if not isinstance(node, (ast.For, ast.comprehension)):
        return False
    found = walk(node.iter)
    return any(is_attribute(n, name) or (local and is_name(n, local)) for n in found)


def _is_stateful_class(file: SourceFile, node: ast.expr) -> bool:
    """Whether what is given for a class is one whose instances hold parameters, buffers or modes."""
    known, dotted = file.roles.class_named(node), file.dotted(node)
    if known is not None:
        return _modules.is_module(file, known) and _may_hold_state(file, known)
    return dotted.startswith("torch.nn.") and _is_stateful(dotted)


def _surely_has_state(file: SourceFile, layer: ast.Call, unit: Unit) -> bool:
    """Whether a call makes a layer of `torch.nn` with parameters, or a class of the file that makes some."""
    given = _members.classes_given(file, layer, unit)
    known = file.roles.class_named(given[0] if given else layer.func, unit)
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
