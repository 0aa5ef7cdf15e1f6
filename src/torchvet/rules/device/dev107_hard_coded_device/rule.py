"""DEV107: a device is written out in code that chooses its device elsewhere."""

from __future__ import annotations

import ast
import re

from torchvet.rules.device import _crashes
from torchvet.rules.kit import Edits, Finding, Findings, RankRecording, Recording, SourceFile, records
from torchvet.source.model import Event, Unit, edits, is_call, keyword, receiver, terminal, torch_names, walk

_GUARD = re.compile(r"cuda|gpu|device|distributed|is_available|ngpu|parallel|rank", re.IGNORECASE)
_MOVED_WITH_IT = "the module's device"
_CAUGHT = ("Exception", "BaseException", "RuntimeError", "AssertionError")
"""What torch raises where there is no such device, and what they are caught as."""
_LEFT = re.compile(r"\b(raise|exit|abort)\b")
_NAMES = ("cuda", "mps", "xpu")
_WRITTEN = tuple(f"{quote}{name}" for quote in "\"'" for name in _NAMES)


class HardCodedDevice(_crashes.CrashRule):
    """A device is written out in code that chooses its device elsewhere."""

    severity = "warning"
    words = (".cuda(", '"cuda', '"mps', '"xpu', "'cuda", "'mps", "'xpu")
    bad_raises = "torch/cuda/"
    silence_clears = False  # what goes well on this machine goes wrong on another

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Devices that the text names and that are not there."""
        for absent in rank.all(records.device.AbsentDevice):
            if absent.asked and not absent.checkpoint and (absent.variable or absent.devices):
                yield self._absent(rank, absent)

    def crash(
        self, rank: RankRecording, record: records.device.DeviceMismatch, stray: records.device.Placed
    ) -> Finding:
        """A crash for a device that the text names, where a variable in sight holds another."""
        written = record.written
        assert written is not None
        where = next((t.device for t in record.tensors if t.name == record.hard_coded), "another device")
        return self.observed(
            rank,
            written.place,
            f"{record.hard_coded} is on {where} because {written.text} is written out, where {written.variable} is "
            f"{written.device}: {record.operation} refuses it",
            cause=f"{written.variable} says which device to use, and this line does not ask it",
            advice=f"use {written.variable} in place of {written.text}",
            severity="error",
            related=_crashes.evidence(record),
        )

    def _absent(self, rank: RankRecording, record: records.device.AbsentDevice) -> Finding:
        there = "no GPU is" if not record.devices else f"{record.devices} GPU{'s are' if record.devices > 1 else ' is'}"
        chosen = f", where {record.variable} is {record.held}" if record.variable else ""
        message = f"{record.asked} is written out here and {there} there{chosen}"
        advice = f"use {record.variable}" if record.variable else self.remedy
        return self.observed(rank, record.place, message, cause=record.message, advice=advice, severity="error")

    def in_file(self, file: SourceFile) -> Findings:
        """`.cuda()`, `.to("cuda…")` or `device="cuda…"` where a variable for the device can be seen."""
        if not file.mentions("device"):
            return
        for event in file.calls(*_placing(file)):
            written = self._written_out(file, event)
            follows = written is event.node and file.mentions("set_device")
            if written is None or follows or self._is_meant(file, event):
                continue
            variable = self._variable(file, event)
            if variable and not self._asserted(file, event):
                yield self._finding(file, event, written, variable)

    @staticmethod
    def _written_out(file: SourceFile, event: Event) -> ast.expr | None:
        """The part of a call that names CUDA; the call itself for `.cuda()`."""
        call, on = event.call, receiver(event.call)
        if terminal(call) == "cuda":
            placed = call.args or keyword(call, "device") is not None
            named = not placed and on is not None and file.dotted(on) != "torch" and not _holds_nothing(file, on)
            return call if named else None
        moves = terminal(call) == "to"
        if not moves and not file.dotted(call.func).startswith("torch."):
            return None
        devices = (keyword(call, "device"), *(call.args[:1] if moves else ()))
        constants = [d for d in devices if isinstance(d, ast.Constant) and isinstance(d.value, str)]
        return next((d for d in constants if str(d.value).startswith(_NAMES)), None)

    def _is_meant(self, file: SourceFile, event: Event) -> bool:
        ways = (self._guarded, _is_for_cuda, _is_tried)
        return _is_moved_back(event) or any(way(file, event) for way in ways)

    @staticmethod
    def _guarded(file: SourceFile, event: Event) -> bool:
        tests = (getattr(branch, "test", None) for branch, _ in event.context.arms)
        return any(test is None or _GUARD.search(file.segment(test)) for test in tests)

    @staticmethod
    def _asserted(file: SourceFile, event: Event) -> bool:
        """Whether the function has asked for CUDA, and left where there is none, before the line."""
        lines = file.lines[event.unit.first - 1 : event.line - 1]
        asking = (line for line in lines[-200:] if "is_available" in line)
        return any("assert" in line or line.lstrip().startswith("if ") for line in asking)

    def _variable(self, file: SourceFile, event: Event) -> str:
        """What holds the device where the event stands, in torch's words, and can be the CPU."""
        name = self._in_sight(file, event)
        return "" if name and _is_own_word(file, name) else name

    def _in_sight(self, file: SourceFile, event: Event) -> str:
        unit: Unit | None = event.unit
        while unit is not None:
            if not unit.is_module and "device" in unit.parameters and not _is_cuda_by_default(unit):
                return "device"
            name = self._bound_in(file, unit, event)
            if name:
                return name
            unit = unit.parent
        own = event.unit.self_name()
        attribute = ast.Attribute(value=ast.Name(id=own), attr="device")
        chosen = file.mentions("is_available") and file.devices.may_be_host(attribute, event.unit)
        if own and (chosen or self._given(file, attribute, event.unit)):
            return f"{own}.device"
        return self._moved_to(file, event)

    def _bound_in(self, file: SourceFile, unit: Unit, event: Event) -> str:
        """A name for the device that a unit has bound before an event; empty if it has none."""
        for name in unit.bindings if file.mentions("is_available", ".device)") else ():
            if "dev" not in name.lower() or event.unit.home(name) is not unit:
                continue
            node, first = ast.Name(id=name), unit.bindings[name][0]
            chosen = file.devices.may_be_host(node, unit) or self._given(file, node, unit)
            if chosen and (unit is not event.unit or first.index < event.index):
                return name
        return ""

    @staticmethod
    def _moved_to(file: SourceFile, event: Event) -> str:
        """In a method of a module that this file moves to a device chosen elsewhere: where its parameters are."""
        owner, own = event.unit.method_class(), event.unit.self_name()
        if owner is None or not own or "module" not in file.roles.of_class(owner):
            return ""
        for move in file.calls("to"):
            on, given = receiver(move.call), move.call.args[0] if move.call.args else None
            if not isinstance(given, ast.Name) or "dev" not in given.id or on is None:
                continue
            made = file.roles.class_named(on.func, move.unit) if isinstance(on, ast.Call) else None
            if owner not in (made, file.roles.class_of(on, move.unit)):
                continue
            if given.id in move.unit.parameters or file.devices.may_be_host(given, move.unit):
                return _MOVED_WITH_IT
        return ""

    @staticmethod
    def _given(file: SourceFile, variable: ast.Name | ast.Attribute, asked: Unit) -> bool:
        """Whether a variable for the device comes from a constructor's parameter or an option."""
        values = file.roles.values(variable, asked)
        if len(values) != 1:
            return False
        value, unit = values[0]
        if is_call(value, "device") and value.args:
            value = value.args[0]
        if isinstance(value, ast.Attribute):
            return value.attr == "device" and isinstance(value.value, ast.Name)  # args.device, cfg.device
        name = value.id if isinstance(value, ast.Name) else ""
        return "device" in name and name in unit.parameters and name not in unit.bindings

    def _finding(self, file: SourceFile, event: Event, written: ast.expr, variable: str) -> Finding:
        said = ".cuda()" if written is event.call else file.segment(written)
        message = f"{said} is written out here where {variable} says which device to use"
        advice, change = f"use {variable}", self._edits(file, event, written, variable)
        if variable == _MOVED_WITH_IT:
            # No edit: in the constructor it is a buffer that is wanted, elsewhere the device of an input.
            change, variable = [], "that device"
            message = f"{said} is written out here in a module that this file moves to a device chosen elsewhere"
            advice = "register a buffer, or use the device of an input or of a parameter"
        cause = f"{variable} can be the CPU or another device, and this line always means CUDA"
        return self.suspect(file, event, message, cause=cause, advice=advice, edits=change)

    @staticmethod
    def _edits(file: SourceFile, event: Event, written: ast.expr, variable: str) -> Edits:
        call, on = event.call, receiver(event.call)
        if written is not call:
            return [edits.replace(file, written, variable)]
        if on is None or not on.end_lineno == call.end_lineno == call.lineno:
            return []
        rest = "".join(f", {file.segment(k)}" for k in call.keywords)
        return [edits.replace(file, call, f"{file.segment(on)}.to({variable}{rest})")]


def _is_own_word(file: SourceFile, variable: str) -> bool:
    """Whether a variable for the device holds the program's own word for CUDA, as `device == "gpu"` shows: torch knows
    no such device, and `to(device)` raises. An `if` that binds it to another name makes it a device of torch."""
    if not file.mentions("'gpu'", '"gpu"'):
        return False
    name, compared = variable.rpartition(".")[2], False
    for node in walk(file.tree):
        if isinstance(node, (ast.If, ast.Assign)):
            deciding, bound = (node.test, node.body) if isinstance(node, ast.If) else (node.value, node.targets)
            # `device = "gpu"` translates nothing.
            translates = not isinstance(deciding, ast.Constant) and _says_gpu(deciding)
            if translates and any(_stores(one, name) for one in bound):
                return False
        elif isinstance(node, ast.Compare) and terminal(node.left) == name:
            compared |= any(map(_says_gpu, node.comparators))
    return compared


def _says_gpu(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Constant) and n.value == "gpu" for n in walk(node))


def _stores(node: ast.AST, name: str) -> bool:
    return any(terminal(n) == name and isinstance(getattr(n, "ctx", None), ast.Store) for n in walk(node))


def _is_cuda_by_default(unit: Unit) -> bool:
    """Whether the parameter `device` is CUDA where no caller of this file gives another."""
    assert not isinstance(unit.node, ast.Module)
    a = unit.node.args
    named = zip([p.arg for p in (*a.posonlyargs, *a.args)][::-1], a.defaults[::-1], strict=False)
    default = dict([*named, *zip([p.arg for p in a.kwonlyargs], a.kw_defaults, strict=True)]).get("device")
    cuda = isinstance(default, ast.Constant) and str(default.value).startswith(_NAMES)
    return cuda and not any(unit.file.arguments(unit, "device"))


def _is_for_cuda(file: SourceFile, event: Event) -> bool:
    """Whether the code around is for CUDA alone: a region of autocast for it, or a test that is skipped without it."""
    if any(w in file.segment(context) for context in event.context.withs for w in _WRITTEN):
        return True
    owner = event.unit.method_class()
    around = [getattr(event.unit.node, "decorator_list", []), owner.node.decorator_list if owner is not None else []]
    decorators = [file.segment(one) for listed in around for one in listed]
    if any("skip" in d.lower() and _GUARD.search(d) for d in decorators):
        return True
    setup = owner.method("setUp") if owner is not None else None
    return setup is not None and "skip" in file.text_of(setup)


def _placing(file: SourceFile) -> list[str]:
    """The functions and methods that a file may give a device that it writes out."""
    words = ["to", "cuda"] if file.mentions(".cuda(", *(f".to({w}" for w in _WRITTEN)) else []
    if file.mentions(*(f"device={w}" for w in _WRITTEN)):
        words += [w for w in (*sorted(torch_names.FACTORIES), "to") if file.mentions(f".{w}(")]
    return words


def _is_moved_back(event: Event) -> bool:
    """Whether the same thing is moved to a variable's device later in the same branch: both moves are meant."""
    on = receiver(event.call)
    if not isinstance(event.parent, ast.Expr) or on is None:
        return False
    later = (e.call for e in event.unit.calls.get("to", ()) if e.index > event.index and e.sure_after(event))
    back = (receiver(call) for call in later if call.args and "dev" in terminal(call.args[0]))
    return any(one is not None and ast.dump(one) == ast.dump(on) for one in back)


def _is_tried(file: SourceFile, event: Event) -> bool:
    """Whether a failure is caught and survived: the program goes on where there is no such device."""
    for node in walk(event.unit.node) if file.mentions("try:") else ():
        if isinstance(node, ast.Try) and node.body[0].lineno <= event.line <= (node.body[-1].end_lineno or 0):
            caught = [h for h in node.handlers if h.type is None or terminal(h.type) in _CAUGHT]
            if any(not any(_LEFT.search(file.segment(one)) for one in handler.body) for handler in caught):
                return True
    return False


def _holds_nothing(file: SourceFile, node: ast.expr) -> bool:
    """`nn.BCELoss()`, `nn.Softmax(dim=1)`: a module without tensors can be "moved" on every machine."""
    if not isinstance(node, ast.Call) or node.args or any("weight" in (k.arg or "weight") for k in node.keywords):
        return False
    dotted = file.dotted(node.func)
    return dotted.startswith("torch.nn.") and dotted.endswith(("Loss", "Softmax", "Sigmoid", "ReLU", "Tanh"))
