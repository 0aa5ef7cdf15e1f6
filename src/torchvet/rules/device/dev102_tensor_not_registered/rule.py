"""DEV102: a module keeps a tensor as a plain attribute, which `.to()` never moves."""

from __future__ import annotations

import ast
import re

from torchvet.rules.device import _crashes, _host_tensors, _modules, _uses
from torchvet.rules.kit import Edits, Finding, Findings, Iterator, RankRecording, SourceFile, events_at, records
from torchvet.source import model
from torchvet.source.model import edits, torch_names

_STAYING = torch_names.TENSOR_METHODS - {"to", "cuda", "cpu", "type_as", "numpy", "tolist", "item", "pin_memory"}
"""Methods of a tensor whose result is a tensor on the same device."""
_MATRIX = model.name_set(
    "zeros ones empty full rand randn arange linspace eye from_numpy tril triu logspace randint randperm"
)

_SHAPING = ("view", "reshape", "unsqueeze", "expand", "repeat")

_MADE = re.compile(r"\.(?:" + "|".join((*sorted(_MATRIX), "tensor", "Tensor", "FloatTensor")) + r")\(")


class TensorNotRegistered(_crashes.CrashRule):
    """A module keeps a tensor as a plain attribute, which `.to()` never moves."""

    severity = "warning"
    words = ("Module",)
    bad_raises = "to have the same dtype"
    silence_clears = False  # a program that never moves the module shows nothing

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The attribute as a buffer that is not saved, where a constructor binds it on the line."""
        for event in events_at(file, finding):
            node, own = event.node, event.unit.self_name()
            target = model.sole_target(node)
            mine = (
                isinstance(target, ast.Attribute)
                and model.terminal(target.value) == own
                and event.unit.name == "__init__"
            )
            if not mine or not isinstance(node, ast.Assign) or node.lineno != node.end_lineno:
                continue
            if not _is_ready(event):
                continue
            text = f'{own}.register_buffer("{model.terminal(target)}", {file.segment(node.value)}, persistent=False)'
            return [edits.replace(file, node, text)]
        return ()

    def crash(
        self, rank: RankRecording, record: records.device.DeviceMismatch, stray: records.device.Placed
    ) -> Finding:
        """The error that ended the program where such a tensor was left behind."""
        there, mine = _crashes.there(record, stray), f"is on {stray.device}"
        if record.dtypes_differ:
            there = min({t.dtype for t in record.tensors} - {stray.dtype}, default="another type")
            mine = f"is {stray.dtype}"
        attribute = stray.name.removeprefix(f"{stray.owner}.")
        message = f"{stray.name} is a plain tensor: it {mine} where {stray.owner} was moved to {there}"
        cause = f"{stray.name} is neither a parameter nor a registered buffer: `.to()` passes it over"
        advice = f'register it: `self.register_buffer("{attribute}", …, persistent=False)`'
        related = _crashes.evidence(record)
        return self.observed(
            rank, stray.made or record.place, message, cause=cause, advice=advice, severity="error", related=related
        )

    def in_file(self, file: SourceFile) -> Findings:
        """`self.x = torch.factory(…)` in a module's `__init__` that `forward` combines with other tensors as it is."""
        if not file.mentions("self."):
            return
        told: set[tuple[int, str]] = set()
        for made, event in self._kept(file):
            owner = event.unit.owner
            target = model.targets_of(event.statement)[0]
            if owner is None or not isinstance(target, ast.Attribute):
                continue
            if self._is_plain(file, owner, target.attr) and _uses.combined_in_forward(file, owner, target.attr):
                told.add((id(owner), target.attr))
                yield self._finding(file, event, made, target)
        for owner in list(file.classes.values()):
            known = _modules.evidence(file, owner)
            if known:
                yield from self._by_other_ways(file, owner, told, known == "sure")
            if known == "sure":
                yield from self._not_saved(file, owner, told)

    def _by_other_ways(
        self, file: SourceFile, owner: model.ClassModel, told: set[tuple[int, str]], surely: bool
    ) -> Findings:
        """Tensors that come by branches, names and functions, or that other methods than `forward` combine."""
        moves_itself = any(owner.method(m) is not None for m in ("_apply", "to", "cuda"))
        for event, target, kind in _host_tensors.kept(file, owner) if not moves_itself else ():
            user = _uses.combined_by(file, owner, target.attr) if (id(owner), target.attr) not in told else None
            if user is None or not (surely or (kind == "sure" and user.name == "forward")):
                continue
            subject = file.segment(target)
            what = f"moving or converting {'the module' if surely else f'{owner.name}, if it is a module,'}"
            condition = "" if kind == "sure" else ", if it has dimensions"
            message = f"{subject} is a plain tensor: {what} leaves it behind{condition}"
            cause = f"{subject} is neither a parameter nor a registered buffer, and {user.name} combines it as it is"
            yield self._plain(file, event, target, told, message, cause)

    def _not_saved(self, file: SourceFile, owner: model.ClassModel, told: set[tuple[int, str]]) -> Findings:
        """Tensors that a checkpoint lacks: drawn at random, or moved by the class itself."""
        for event, target in _host_tensors.drawn(file, owner):
            if (id(owner), target.attr) in told:
                continue
            subject = file.segment(target)
            message = f"{subject} is drawn at random and no buffer: what is loaded from a checkpoint has another one"
            cause = f"`state_dict()` has parameters and registered buffers, and {subject} is neither"
            yield self._plain(file, event, target, told, message, cause, saved=True)
        for event, target in _host_tensors.moved_by_hand(owner):
            subject = file.segment(target)
            message = f"{subject} is moved by `_apply` and no buffer: `state_dict()` and replicas go without it"
            cause = "DataParallel gives each replica parameters and buffers of its own device, and nothing else"
            yield self._plain(file, event, target, told, message, cause, saved=True)

    def _plain(
        self,
        file: SourceFile,
        event: model.Event,
        target: ast.Attribute,
        told: set[tuple[int, str]],
        message: str,
        cause: str,
        saved: bool = False,
    ) -> Finding:
        told.add((id(event.unit.owner), target.attr))
        options = "" if saved else ", persistent=False"
        advice = f'register it: `self.register_buffer("{target.attr}", …{options})`'
        return self.suspect(file, event, message, cause=cause, advice=advice, severity="info")

    @staticmethod
    def _kept(file: SourceFile) -> Iterator[tuple[model.Event, model.Event]]:
        """Calls in constructors that make a tensor on the host, each with the event that gives its value, with nothing
        that places it, to an attribute: the call itself, or an assignment of the name that holds it."""
        lines = {file.line_of(m.start()) for m in _MADE.finditer(file.text)}
        for init in file.units_at(sorted(lines)):
            if init.name == "__init__" and init.owner is not None and "module" in file.roles.of_class(init.owner):
                yield from _kept_by(file, init, lines)

    @staticmethod
    def _is_plain(file: SourceFile, owner: model.ClassModel, name: str) -> bool:
        """Whether the attribute is bound once, in a class that leaves moving to `nn.Module`."""
        # A class that moves itself may move its plain tensors as well.
        if any(owner.method(m) is not None for m in ("_apply", "to", "cuda")) or len(owner.attributes[name]) != 1:
            return False
        lines = (line for line in file.text_of(owner).split("\n") if name in line)
        return not any("setattr" in line or "register_" in line for line in lines)

    def _finding(self, file: SourceFile, event: model.Event, made: model.Event, target: ast.Attribute) -> Finding:
        assert isinstance(event.statement, ast.Assign)
        subject, value = file.segment(target), event.statement.value
        trained = any(k.arg == "requires_grad" for k in made.call.keywords)
        code = f'{file.segment(target.value)}.register_buffer("{target.attr}", {file.segment(value)}, persistent=False)'
        certain = (
            _is_ready(event) and not trained and value.lineno == value.end_lineno and len(event.statement.targets) == 1
        )
        message = f"{subject} is a plain tensor: moving or converting the module leaves it behind"
        cause = f"{subject} is neither a parameter nor a registered buffer, and forward combines it as it is"
        advice = "make it an nn.Parameter" if trained else f"register it: `{code}`"
        change = [edits.replace(file, event.statement, code)] if certain else ()
        return self.suspect(
            file, event, message, cause=cause, advice=advice, node=event.statement, edits=change, safe=certain
        )


def _is_ready(event: model.Event) -> bool:
    """Whether the constructor has called `super().__init__()`: before that a module takes no buffers."""
    return any(e.index < event.index for e in event.unit.calls.get("__init__", ()))


def _kept_by(file: SourceFile, init: model.Unit, lines: set[int]) -> Iterator[tuple[model.Event, model.Event]]:
    """What one constructor keeps; a name is followed from the call that made its tensor."""
    holding: dict[str, model.Event] = {}
    seen: set[int] = set()
    for event in init.events:
        statement = event.statement
        if not isinstance(statement, ast.Assign) or id(statement) in seen:
            continue
        if event.node is statement:
            made = holding.get(_root(statement.value)) if not event.context.arms else None
        elif isinstance(event.node, ast.Call) and event.line in lines and _is_value(file, event, statement.value):
            made = event
        else:
            continue
        target = model.targets_of(statement)[0]
        # The name stands for something else from here on.
        if isinstance(target, ast.Name):
            holding.pop(target.id, None)
        if made is None:
            continue
        seen.add(id(statement))
        if isinstance(target, ast.Name):
            holding[target.id] = made
        elif isinstance(target, ast.Attribute) and model.terminal(target.value) == init.self_name():
            yield made, event


def _root(value: ast.expr) -> str:
    """The name that a value is, by methods that place nothing."""
    root = model.under_methods(value, _STAYING)
    return root.id if isinstance(root, ast.Name) else ""


def _is_value(file: SourceFile, event: model.Event, value: ast.expr) -> bool:
    """Whether an assigned value comes from a factory call by methods and arithmetic alone, and stays on the host."""
    waiting: list[ast.expr] = [value]
    while waiting:
        node = waiting.pop()
        if node is event.node:
            return _has_dimensions(file, event, value)
        waiting += _origins(file, node)
    return False


def _origins(file: SourceFile, node: ast.expr) -> list[ast.expr]:
    """What an expression is computed from that lives where its result does."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if model.is_call(node, "tril", "triu", "exp", "log", "sqrt", "outer") and file.dotted(node.func).startswith(
        "torch."
    ):
        return node.args[:1]
    on = model.receiver(node) if isinstance(node, ast.Call) and model.terminal(node) in _STAYING else None
    return [on] if on is not None else []


def _has_dimensions(file: SourceFile, event: model.Event, value: ast.expr) -> bool:
    call, dotted = event.call, file.dotted(event.call.func)
    if not dotted.startswith("torch.") or dotted.count(".") != 1 or not call.args or file.devices.default_changed:
        return False
    if any(k.arg in ("device", None) for k in call.keywords):
        return False
    if dotted[6:] in ("tensor", "Tensor", "FloatTensor"):
        shaped = any(isinstance(n, ast.Call) and n.args and model.terminal(n) in _SHAPING for n in model.walk(value))
        return shaped or _is_listed(call.args[0], event)
    return dotted[6:] in _MATRIX


def _is_listed(node: ast.expr, event: model.Event) -> bool:
    """Whether an argument is a list, or a parameter whose default is one."""
    if isinstance(node, ast.Name) and not isinstance(event.unit.node, ast.Module):
        arguments = event.unit.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
        given = [
            *zip(positional, defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        return any(p.arg == node.id and isinstance(d, (ast.List, ast.Tuple)) for p, d in given)
    return isinstance(node, (ast.List, ast.ListComp))
