"""DEV101: an operation is given tensors that live on different devices."""

from __future__ import annotations

import ast
import re

from torchvet.recording.records.device import DeviceMismatch as Mismatch
from torchvet.rules.device import _crashes
from torchvet.rules.device._host_arguments import taken_on_host, targets_may_stay
from torchvet.rules.device._made_beside import made_beside
from torchvet.rules.device.fixes.one_device import ON_CPU, brought_along
from torchvet.rules.kit import About, Edits, Finding, Findings, Iterable, RankRecording, SourceFile, records
from torchvet.source import model
from torchvet.source.model import edits, torch_names
from torchvet.source.model.devices import ACCELERATORS, operands

_MIXING = model.name_set("""
    torch.cat torch.stack torch.matmul torch.mm torch.bmm torch.where torch.dot torch.addmm torch.einsum torch.mv
""")
_STATEFUL = re.compile(r"(Linear|Conv\dd|ConvTranspose\dd|LSTM|GRU|Embedding|Norm\dd?|Parameter|Attention)\(")
_MADE = re.compile(r"torch\.(?:zeros|ones|empty|full|rand|randn|randint|arange|linspace|eye|tensor)\(")
_MOVES_NOTHING = ("parameters", "named_parameters", "train", "eval", "zero_grad", "state_dict", "load_state_dict")
_MOVES = (".to(", ".cuda(", "type_as(", "device=", "to_device")


class DeviceMismatch(_crashes.CrashRule):
    """An operation is given tensors that live on different devices."""

    severity = "error"
    words = (".to(", ".cuda(", ".dtype")
    runs_on = "cuda"
    bad_raises = "Expected all tensors to be on the same device"
    found_with = ("run", "--simulate-gpu", "24GiB")
    needs_at_work = "a device"  # elsewhere no two tensors lie on two devices

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The tensor that is out of place brought to the others' device."""
        return brought_along(file, finding)

    def crash(self, rank: RankRecording, record: Mismatch, stray: records.device.Placed) -> Finding:
        """Which names were where, and which of them nothing has moved."""
        if not stray.name:
            cause = "the tensors of this operation could not be identified by name"
            message, related = record.message, _crashes.where(record)
            return self.observed(rank, record.place, message, cause=cause, advice=self.remedy, related=related)
        here, there = _crashes.here(record, stray), _crashes.there(record, stray)
        module = f" in {record.module}" if record.module is not None else ""
        place, other = stray.made or record.place, _crashes.companion(record, stray)
        on_cpu = here == "cpu" and stray.name.isidentifier()
        return self.observed(
            rank,
            place,
            f"{stray.name} is on {here} where {other} is on {there}: {record.operation}{module} takes tensors of one "
            "device",
            cause=_why(record, stray),
            advice=_how(stray, there),
            related=_crashes.evidence(record) if place != record.place else _crashes.where(record),
            about=About(ON_CPU if on_cpu else "", (stray.name, other)),
        )

    def in_file(self, file: SourceFile) -> Findings:
        """A module that was moved, a loss or an operation of torch, given something that is surely on the CPU."""
        for event, other, joined in made_beside(file):
            yield self._left_beside(file, event, other, joined)
        if not file.mentions(".to(", ".cuda("):
            return
        for unit in file.functions("forward"):
            owner = unit.owner
            if owner is not None and "module" in file.roles.of_class(owner) and _owner_moves(file, owner):
                yield from self._made_in_forward(file, unit)
        for unit in self._units(file):
            yield from self._modules_left(file, unit)
            hosted = self._hosted(file, unit)
            for event in unit.events if hosted else ():
                if not event.context.deferred:
                    yield from self._at(file, event, hosted)

    def _left_beside(self, file: SourceFile, event: model.Event, other: str, joined: ast.expr) -> Finding:
        """A new tensor that takes another's dtype, and not its device."""
        subject = file.segment(event.node)
        return self.suspect(
            file,
            event,
            f"{subject} is on the CPU: if {other} is on a device, line {joined.lineno} cannot join them",
            cause=f"it takes the dtype of {other} and not its device: factories without device= make CPU tensors",
            advice=f"add `device={other}.device`",
            severity="info",
            edits=edits.with_argument(file, event.call, f"device={other}.device"),
        )

    def _at(self, file: SourceFile, event: model.Event, hosted: set[str]) -> Findings:
        """What an event of a unit does with what can be on the CPU, by the names that stand for such."""
        node = event.node
        if isinstance(node, (ast.Assign, ast.Return)) and _reads(node.value, hosted):
            yield from self._in_arithmetic(file, event, node.value)
        wrong = self._on_host(file, event) if isinstance(node, ast.Call) and _gives(node, hosted) else None
        if wrong is not None:
            yield self._finding(file, event, wrong, f"{model.terminal(node)}(…) has its other tensors")

    @staticmethod
    def _hosted(file: SourceFile, unit: model.Unit) -> set[str]:
        """Names in a unit, and factories called there, that can stand for something on the CPU."""
        called = torch_names.FACTORIES & unit.calls.keys()
        found = {n for n in called if any(file.devices.made(e.call, e) == "cpu" for e in unit.calls[n])}
        # What a loader yields is on the host, also with `pin_memory`.
        loaders = file.mentions("DataLoader(")
        for event in unit.events:
            node = event.node
            host = loaders and isinstance(node, ast.For) and file.devices.yields_host(node.iter, unit)
            if host or (found and isinstance(node, ast.Assign) and _reads(node.value, found)):
                found |= model.target_names(node)
        return found

    @staticmethod
    def _units(file: SourceFile) -> list[model.Unit]:
        """Units that train, evaluate or run a loop over a loader."""
        found = {id(s.unit): s.unit for s in file.steps}
        found.update((id(e.unit), e.unit) for e in file.calls("eval", "backward"))
        if file.mentions("no_grad"):
            found.update((id(u), u) for u in file.units_with("no_grad"))
        return list(found.values())

    def _on_host(self, file: SourceFile, event: model.Event) -> ast.expr | None:
        """The argument that is on the CPU where others are on the device."""
        call, roles = event.call, file.roles
        if not call.args or any(isinstance(a, ast.Starred) for a in call.args):
            return None
        if file.dotted(call.func) in _MIXING:
            return self._odd_one(file, operands(call), event)
        if "loss" in roles.of(call, event.unit) and len(call.args) >= 2:
            wrong = self._odd_one(file, call.args[:2], event)
            return None if wrong is call.args[1] and targets_may_stay(file, event) else wrong
        if not _runs_layer(event, by_name=True) or self._moves_inputs(file, event):
            return None
        wrong = _left(event, (a for a in call.args if file.devices.of(a, event) == "cpu"))
        return wrong if wrong is not None and file.devices.module_moved(call.func, event) else None

    def _modules_left(self, file: SourceFile, unit: model.Unit) -> Findings:
        """A module that is made here, never moved and never handed on, given what is on a device."""
        for name, bound in list(unit.bindings.items()):
            if len(bound) != 1 or not unit.calls.get(name) or not _stays(file, name, bound[0]):
                continue
            for event in unit.calls[name]:
                func, first = event.call.func, event.call.args[:1]
                if isinstance(func, ast.Name) and first and file.devices.of(first[0], event) == "device":
                    message = f"{name} is on the CPU where its input {file.segment(first[0])} is on a device"
                    cause = f"nothing moves {name} after line {bound[0].line} makes it"
                    yield self.suspect(file, event, message, cause=cause, advice=f"move it too: `{name}.to(device)`")
                    break

    def _made_in_forward(self, file: SourceFile, unit: model.Unit) -> Findings:
        """In the `forward` of a module that the file moves: a new CPU tensor given to a layer, or added to a batch."""
        hosted = self._hosted(file, unit)
        for event in unit.events if hosted else ():
            node = event.node
            if isinstance(node, ast.Call) and len(node.args) > 1 and _gives(node, hosted) and _runs_layer(event):
                wrong = _left(event, (a for a in operands(node) if _on_host_here(file, a, event)))
                if wrong is not None:
                    yield self._finding(file, event, wrong, f"{model.terminal(node)}(…) has its parameters")
            for value in _values(node):
                if isinstance(value, ast.BinOp) and _reads(value, hosted):
                    yield from self._added_to_batch(file, event, value)

    def _added_to_batch(self, file: SourceFile, event: model.Event, value: ast.BinOp) -> Findings:
        for one in (n for n in model.walk(value) if isinstance(n, ast.BinOp)):
            sides = [(one.left, one.right), (one.right, one.left)]
            odd = next((a for a, b in sides if _on_host_here(file, a, event) and _is_batch(b, event.unit)), None)
            if odd is not None:
                yield self._finding(file, event, odd, "the batch is")

    def _in_arithmetic(self, file: SourceFile, event: model.Event, value: ast.AST | None) -> Findings:
        """`output * weights` with one side on the CPU. A tensor without dimensions goes with every device."""
        for node in model.walk(value) if value is not None else ():
            if not isinstance(node, ast.BinOp):
                continue
            wrong = self._odd_one(file, [node.left, node.right], event)
            if wrong is not None and _has_dimensions(file, wrong, event):
                yield self._finding(file, event, wrong, "the other operand is")

    @staticmethod
    def _odd_one(file: SourceFile, operands: list[ast.expr], event: model.Event) -> ast.expr | None:
        places = [file.devices.of(a, event) for a in operands]
        return operands[places.index("cpu")] if "cpu" in places and "device" in places else None

    @staticmethod
    def _moves_inputs(file: SourceFile, event: model.Event) -> bool:
        """Whether a module may move its inputs itself."""
        known = file.roles.class_of(event.call.func, event.unit)
        return known is not None and any(word in file.text_of(known) for word in _MOVES)

    def _finding(self, file: SourceFile, event: model.Event, wrong: ast.expr, others: str) -> Finding:
        subject, func = file.segment(wrong), getattr(event.node, "func", None)
        # A model of another file could move its inputs itself.
        foreign = (
            func is not None and not file.roles.of(func, event.unit) and not file.dotted(func).startswith("torch.")
        )
        # Without a GPU's name in the file the device may be the CPU wherever this runs.
        sure = not foreign and file.mentions(*ACCELERATORS)
        message = f"{subject} is on the CPU where {others} on a device"
        cause = f"nothing moved {subject}: loaders and factories without device= make CPU tensors"
        advice = f"move it first: `{subject} = {subject}.to(device)`"
        return self.suspect(
            file, event, message, cause=cause, advice=advice, node=wrong, severity=None if sure else "warning"
        )


def _why(record: Mismatch, stray: records.device.Placed) -> str:
    """What is known of why it is where it is."""
    if stray.role in ("parameter", "buffer"):
        on, all_of = record.spread.get(stray.device, 0), sum(record.spread.values())
        if on == all_of:
            return f"none of the {all_of} parameters and buffers of {stray.owner} was moved"
        some = f"{on} of the {all_of} parameters and buffers of {stray.owner}"
        return f"{some} are on {stray.device}, {all_of - on} are not"
    if not stray.device:
        return f"all else in this operation is on {_crashes.there(record, stray)}, and this has no name that tells more"
    return f"nothing moved {stray.name}: loaders, and factories without device=, make CPU tensors"


def _how(stray: records.device.Placed, there: str) -> str:
    """What to move, and where."""
    if stray.role in ("parameter", "buffer"):
        return f'move it as a whole before it is used: `{stray.owner}.to("{there}")`'
    if stray.role == "expression":
        return f"make it on {there}: with `device=`, or by `.to(…)` before this line"
    if stray.device != "cpu":
        return f'bring both to one device: `{stray.name}.to("{there}")`'
    return f'move it first: `{stray.name} = {stray.name}.to("{there}")`'


def _runs_layer(event: model.Event, by_name: bool = False) -> bool:
    """Whether a call runs a module that is no criterion; `by_name` where nothing but its name says so."""
    roles = event.unit.file.roles
    called = roles.of(event.call.func, event.unit)
    if by_name and not called:
        return roles.hinted("module", event.call.func)
    return "module" in called and "criterion" not in called


def _values(node: ast.AST) -> list[ast.expr]:
    """The expressions that a statement binds or returns, or that a call is given in order."""
    if isinstance(node, (ast.Assign, ast.Return)):
        return [node.value] if node.value is not None else []
    return node.args if isinstance(node, ast.Call) else []


def _left(event: model.Event, hosted: Iterable[ast.expr]) -> ast.expr | None:
    """The first of the arguments on the CPU that the module called does not compute with there."""
    return next((a for a in hosted if not taken_on_host(event.unit.file, event, a)), None)


def _gives(call: ast.Call, hosted: set[str]) -> bool:
    return any(_reads(a, hosted) for a in call.args)


def _stays(file: SourceFile, name: str, bound: model.Event) -> bool:
    """Whether a name holds a module with parameters that is made there and that nothing could move."""
    value = model.value_bound(bound.node, name)
    if not isinstance(value, ast.Call) or not isinstance(value.func, (ast.Name, ast.Attribute)):
        return False
    # `torch.set_default_device` makes every module where the program wants it.
    if (
        file.devices.default_changed
        or model.keyword(value, "device") is not None
        or not _has_state(file, value, bound.unit)
    ):
        return False
    users = [u for u in file.units_with(name) if u.home(name) is bound.unit]
    return users == [bound.unit] and _only_called(name, bound.unit)


def _has_state(file: SourceFile, made: ast.Call, unit: model.Unit) -> bool:
    """Whether a call makes a module with parameters: torch's, or of a class of this file that moves nothing itself."""
    known, dotted = file.roles.class_named(made.func, unit), file.dotted(made.func)
    if known is None:
        return dotted.startswith("torch.nn.") and _STATEFUL.search(dotted + "(") is not None
    text = file.text_of(known)
    if len(known.lineage) > 1 or any(w in text for w in ("device", ".cuda(", ".to(")):
        return False
    return "module" in file.roles.of_class(known) and _STATEFUL.search(text) is not None


def _only_called(name: str, unit: model.Unit) -> bool:
    """Whether a module is called, and asked for what moves nothing, and otherwise never read."""
    nodes = model.walk(unit.node)
    plain: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            plain.add(id(node.func))
        elif isinstance(node, ast.Attribute) and node.attr in _MOVES_NOTHING:
            plain.add(id(node.value))
    return all(id(n) in plain or not isinstance(n.ctx, ast.Load) for n in nodes if model.is_name(n, name))


def _owner_moves(file: SourceFile, owner: model.ClassModel) -> bool:
    """Whether the file moves an instance of a class to a device as it makes it: `Net().to(device)`."""
    for made in file.calls(owner.name):
        move = made.parent
        calls = made.unit.calls.get(getattr(move, "attr", ""), ())
        call = next((e.call for e in calls if e.call.func is move), None)
        moved = file.devices.move(call, made.unit) if call is not None else None
        if moved is not None and moved[0] == "device":
            return True
    return False


def _on_host_here(file: SourceFile, node: ast.expr, event: model.Event) -> bool:
    return file.devices.of(node, event) == "cpu" and _has_dimensions(file, node, event)


def _is_batch(node: ast.expr, unit: model.Unit) -> bool:
    """Whether an operand is an input of the function, as it came."""
    return isinstance(node, ast.Name) and node.id in unit.parameters[1:] and node.id not in unit.bindings


def _has_dimensions(file: SourceFile, node: ast.expr, event: model.Event) -> bool:
    """Whether an operand is a factory's result, or a name for one, that is surely no scalar."""
    if isinstance(node, ast.Name):
        reaching = file.devices.reaching(node.id, event)
        values = [model.value_for(b.node, t) for b in reaching for t in model.targets_of(b.node)]
        pairs = zip(values, reaching, strict=False)
        return bool(values) and all(isinstance(v, ast.Call) and _has_dimensions(file, v, b) for v, b in pairs)
    if not isinstance(node, ast.Call) or not node.args or file.devices.made(node, event) != "cpu":
        return False
    given = node.args[0]
    if isinstance(given, (ast.List, ast.Tuple)):
        return bool(given.elts)
    return not model.terminal(node).endswith("_like")


def _reads(node: ast.AST | None, hosted: set[str]) -> bool:
    """Whether an expression reads one of the names or calls one of the factories."""
    within = model.walk(node) if node is not None else ()
    return any(isinstance(n, (ast.Name, ast.Attribute)) and model.terminal(n) in hosted for n in within)
