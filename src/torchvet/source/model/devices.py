"""Where tensors and modules live, as far as source shows: made on the host, moved to a device, or not known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from torchvet.source.lazily import lazy
from torchvet.source.model import torch_names as names
from torchvet.source.model.destinations import is_sure, last_bindings
from torchvet.source.model.events import Event
from torchvet.source.model.expressions import is_call, value_bound
from torchvet.source.model.units import Unit, keyword, receiver, terminal
from torchvet.source.model.units import passed as passed
from torchvet.source.syntax import argument, parts
from torchvet.source.text import name_set

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

Place = Literal["cpu", "device", ""]
"""`device` is whatever the program moves its work to; empty where nothing is known."""

ACCELERATORS = ("cuda", "mps", "xpu", "hpu", "npu", "xla", "mtia")
# What programs call their device: `device`, `dev`, `local_rank`, `gpu_id`.
_DEVICE_NAME = re.compile(r"(^|_)dev(ice)?s?(_|\d|$)|device$|(^|_)rank$|(^|_)gpu(_?id)?$|^cuda$|^DEVICE$")
_WRAPPERS = name_set("""
    DataParallel DistributedDataParallel DDP FullyShardedDataParallel FSDP prepare setup prepare_model initialize
""")
"""Wrappers that move inputs to the right device themselves."""
_HOST_DATASETS = ("torchvision.datasets.", "torchvision.datasets.folder.", "torchaudio.datasets.", "datasets.load_")
# Looked for in the text of a whole function: a hint of a move is enough to know nothing.
_CALLS_THAT_MOVE = (".to(", ".cuda(", "device=", "type_as(", "to_device", "move_to", ".pin_memory(")
_SIZED = name_set("zeros ones empty full rand randn randint randperm arange linspace eye logspace")
_SHAPING = names.TENSOR_METHODS - {"to", "cuda", "cpu", "type_as"} | name_set("""
    long int bool short requires_grad_ unsqueeze squeeze new_zeros new_ones new_full new_empty argmax argmin eq ne
    view_as expand_as triu tril pin_memory
""")
_DEEPEST = 7
"""Names and expressions that are followed; beyond, nothing is known."""


class Devices:
    """Answers for one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file

    @lazy
    def default_changed(self) -> bool:
        """Whether factories may make tensors elsewhere than on the host although no argument says so."""
        return self._file.mentions("set_default_device", "set_default_tensor_type", "with torch.device", "with device")

    # Devices ---------------------------------------------------------------------------------------------------------

    def named(self, node: ast.AST | None, unit: Unit, depth: int = 0) -> Place:
        """What an expression names: the host, a device, or neither. `"cuda" if … else "cpu"` is a device."""
        if node is None or depth > _DEEPEST:
            return ""
        if isinstance(node, ast.Constant):
            return _written(node.value)
        if isinstance(node, ast.JoinedStr):
            # `f"cuda:{rank}"`: its first part says it.
            return self.named(node.values[0], unit, depth + 1) if node.values else ""
        if isinstance(node, ast.IfExp):
            return _joined(self.named(part, unit, depth + 1) for part in parts(node))
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._of_device_variable(node, unit, depth)
        if not isinstance(node, ast.Call):
            return ""
        # `torch.device(name)` of an unknown name still is what the program moves its work to.
        if terminal(node) == "device" and node.args:
            return self.named(node.args[0], unit, depth + 1) or "device"
        # `get_device()`.
        return "device" if _DEVICE_NAME.search(terminal(node)) else ""

    def _of_device_variable(self, node: ast.Name | ast.Attribute, unit: Unit, depth: int) -> Place:
        found = {self.named(v, where, depth + 1) for v, where in self._file.roles.values(node, unit)}
        # Whatever it is called: every value that is seen says the host.
        if found == {"cpu"}:
            return "cpu"
        if "device" in found or _DEVICE_NAME.search(terminal(node)):
            return "device"
        return ""

    def may_be_host(self, node: ast.AST | None, unit: Unit) -> bool:
        """Whether a device is chosen at run time and can turn out to be the CPU."""
        for value, where in self._file.roles.values(node, unit):
            while is_call(value, "device") and value.args:
                value = value.args[0]
            if isinstance(value, ast.IfExp):
                places = {self.named(value.body, where), self.named(value.orelse, where)}
                if places == {"cpu", "device"}:
                    return True
        return False

    def move(self, call: ast.Call, unit: Unit) -> tuple[Place, ast.expr | None] | None:
        """Where `.to(…)`, `.cuda()` or `.cpu()` moves its receiver and the expression that says so; else None."""
        name = terminal(call)
        if name not in ("to", "cuda", "cpu") or not isinstance(call.func, ast.Attribute):
            return None
        if name == "cuda":
            # `.cuda()` without an argument goes to the current device.
            return "device", call.args[0] if call.args else None
        if name == "cpu":
            return "cpu", None
        given = argument(call, "device", 0)
        place = self.named(given, unit)
        # `.to(torch.float16)` moves nothing.
        return (place, given) if place else None

    # Tensors and modules ---------------------------------------------------------------------------------------------

    def of(self, node: ast.AST | None, event: Event, depth: int = 0) -> Place:
        """Where the value of an expression lives as it stands at an event."""
        if node is None or depth > _DEEPEST:
            return ""
        if isinstance(node, ast.Call):
            return self._of_call(node, event, depth)
        if isinstance(node, ast.Name):
            return self._of_name(node, event, depth)
        if isinstance(node, ast.Attribute):
            # Attributes that are tensors of the same device; of others it is not known that they are
            # tensors.
            same = node.attr in ("T", "mT", "data", "grad", "logits")
            return self.of(node.value, event, depth + 1) if same else ""
        computed = isinstance(node, (ast.Subscript, ast.UnaryOp, ast.BinOp, ast.Compare))
        return self._of_operation(parts(node), event, depth) if computed else ""

    def _of_call(self, node: ast.Call, event: Event, depth: int) -> Place:
        moved = self.move(node, event.unit)
        if moved is not None:
            return moved[0]
        made = self.made(node, event, depth)
        if made is not None:
            return made
        name, on = terminal(node), receiver(node)
        dotted = self._file.dotted(node.func)
        roles = self._file.roles
        if on is not None and (name in _SHAPING or name == "to") and not dotted.startswith("torch."):
            return self.of(on, event, depth + 1)
        if dotted.startswith("torch.") and node.args:
            return self._of_operation(operands(node), event, depth)
        # A criterion has no parameters as a rule: its result lives where its arguments do.
        if "module" in roles.of(node.func, event.unit) and "criterion" not in roles.of(node.func, event.unit):
            return "device" if self.module_moved(node.func, event, depth + 1) else ""
        return ""

    def _of_operation(self, operands: list[ast.expr], event: Event, depth: int) -> Place:
        return _joined(self.of(p, event, depth + 1) for p in operands if not isinstance(p, ast.Constant))

    def made(self, node: ast.Call, event: Event, depth: int = 0) -> Place | None:
        """Where a factory of torch makes its tensor; None for other calls. A scalar goes with every device: empty."""
        dotted = self._file.dotted(node.func)
        last = dotted.rpartition(".")[2]
        if not names.is_factory(dotted):
            return None
        device = keyword(node, "device")
        if device is not None:
            return self.named(device, event.unit)
        # `**options` may hold a device.
        if any(k.arg is None for k in node.keywords) or self.default_changed:
            return ""
        if last.endswith("_like") or last in ("tril", "triu", "bernoulli", "multinomial"):
            # These follow the tensor that they are given.
            return self.of(node.args[0], event, depth + 1) if node.args else ""
        if last in _SIZED:
            return "cpu" if node.args else ""
        # A scalar on the CPU goes with tensors of every device, so it is on none.
        listed = bool(node.args) and isinstance(node.args[0], (ast.List, ast.ListComp))
        return "cpu" if listed or last == "from_numpy" else ""

    def reaching(self, name: str, event: Event) -> list[Event]:
        """Bindings of a name in the event's unit that may be what it holds there; empty where others may be too."""
        # `x += y` leaves `x` where it was.
        bindings = [e for e in event.unit.bindings.get(name, ()) if not isinstance(e.node, ast.AugAssign)]
        found = last_bindings(bindings, event)
        return found if found and is_sure(found[-1], event) else []

    def _of_name(self, node: ast.Name, event: Event, depth: int) -> Place:
        if event.unit.home(node.id) is not event.unit:
            return ""
        reaching = self.reaching(node.id, event)
        # Asked of the text first, as most names are never subscripted.
        filled = self._file.mentions(f"{node.id}[")
        for before in event.unit.events[: event.index] if filled else ():
            targets = before.node.targets if isinstance(before.node, ast.Assign) else ()
            if any(isinstance(t, ast.Subscript) and terminal(t.value) == node.id for t in targets):
                return ""  # `blocks[i] = blocks[i].to(device)`
        found = {self._of_binding(b, node.id, depth) for b in reaching}
        # Several bindings must agree.
        return found.pop() if len(found) == 1 else ""

    def _of_binding(self, binding: Event, name: str, depth: int) -> Place:
        node = binding.node
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return "cpu" if self.yields_host(node.iter, binding.unit) else ""
        value = value_bound(node, name)
        if value is not None:
            return self.of(value, binding, depth + 1)
        # `x, y = batch`; `x, y = x.to(device), y` has its values above.
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Subscript)):
            return self.of(node.value, binding, depth + 1)
        return ""

    def module_moved(self, node: ast.AST, event: Event, depth: int = 0) -> bool:
        """Whether a module has surely been moved to a device, by the program itself, before an event."""
        if depth > _DEEPEST or not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        made = self._made_before(node, event)
        # `accelerator.prepare` moves by itself, and so does what it gives back: then inputs need no move.
        if self._bound_otherwise(node, event.unit) or any(self._wrapped(value, node) for value, _ in made):
            return False
        name = node.id if isinstance(node, ast.Name) else ""
        # `model = model.cpu()`: moved back.
        if any(terminal(getattr(b.node, "value", None)) == "cpu" for b in self.reaching(name, event)):
            return False
        if any(self._moved_by(value, where) for value, where in made):
            return True
        if name in event.unit.parameters:
            return self._given_moved(event.unit, name, depth)
        return any(self._moves(node, e, event) for e in self._file.calls("to", "cuda"))

    def _made_before(self, node: ast.Name | ast.Attribute, event: Event) -> list[tuple[ast.Call, Unit]]:
        """The calls that may have made what a name holds. What a local name is bound to after an event counts only
        where a loop around both comes back to it."""
        values = self._file.roles.values(node, event.unit)
        later = set[int]()
        if isinstance(node, ast.Name) and event.unit.home(node.id) is event.unit:
            after = (b for b in event.unit.bindings.get(node.id, ()) if b.index > event.index)
            once = (b for b in after if event.loop is None or not b.inside(event.loop))
            later = {id(value_bound(b.node, node.id)) for b in once}
        return [(v, where) for v, where in values if isinstance(v, ast.Call) and id(v) not in later]

    def _given_moved(self, unit: Unit, name: str, depth: int) -> bool:
        """Whether every call of a function gives a parameter a module that was moved."""
        given = [(passed(unit, name, e.call), e) for e in self._file.callers(unit)]
        return bool(given) and all(g is not None and self.module_moved(g, e, depth + 1) for g, e in given)

    def _bound_otherwise(self, node: ast.AST, unit: Unit) -> bool:
        """Whether a name also gets a part of something: `model, loader = accelerator.prepare(model, loader)`."""
        if isinstance(node, ast.Attribute):
            owner = unit.method_class() if terminal(node.value) == unit.self_name() else None
            return owner is not None and any(value is None for _, value in owner.attributes.get(node.attr, ()))
        home = unit.home(node.id) if isinstance(node, ast.Name) else None
        if home is None or not isinstance(node, ast.Name):
            return False
        # More bindings than values: some of them take something apart.
        return len(self._file.roles.values(node, unit)) < len(home.bindings.get(node.id, ()))

    def _wrapped(self, value: ast.Call, model: ast.AST) -> bool:
        inner: ast.AST | None = value
        while isinstance(inner, ast.Call):
            if terminal(inner) in _WRAPPERS or self._wraps_unseen(inner, model):
                return True
            inner = receiver(inner)
        return False

    def _wraps_unseen(self, call: ast.Call, model: ast.AST) -> bool:
        """`model = wrapper(model)` of a wrapper that is neither torch's nor in this file: it may move inputs, too."""
        given = any(ast.dump(one) == ast.dump(model) for one in call.args if not isinstance(one, ast.Starred))
        if not given or self._file.dotted(call.func).startswith("torch."):
            return False
        return not self._file.functions(terminal(call)) and terminal(call) not in self._file.classes

    def _moved_by(self, value: ast.Call, unit: Unit) -> bool:
        moved = self.move(value, unit)
        on = receiver(value)
        # `Net().to(device).eval()`: methods that give the module back.
        if moved is None and isinstance(on, ast.Call) and terminal(value) in ("train", "eval", "to", "float", "half"):
            return self._moved_by(on, unit)
        return moved is not None and moved[0] == "device"

    def _moves(self, node: ast.AST, call: Event, event: Event) -> bool:
        """Whether an unconditional `model.to(device)` stands before an event, or in another method of the class."""
        on = receiver(call.call)
        # By structure: `self.model` is written anew at each place.
        if on is None or ast.dump(on) != ast.dump(node):
            return False
        if call.unit is event.unit and not (call.index < event.index and event.sure_after(call)):
            return False
        if isinstance(node, ast.Name) and (
            call.unit is not event.unit.home(node.id) or _bound_between(node.id, call, event)
        ):
            return False  # what was moved is another object
        moved = self.move(call.call, call.unit)
        # Under a condition the move may not have happened.
        return moved is not None and moved[0] == "device" and not call.context.arms

    # What loaders yield ----------------------------------------------------------------------------------------------

    def loader_calls(self, node: ast.AST, unit: Unit, depth: int = 0) -> Iterator[tuple[ast.Call, Unit]]:
        """The `DataLoader(…)` calls that what is iterated over may come from: names, parameters, enumerate, tqdm."""
        # `enumerate(tqdm(loader))` within a parameter: two levels of each are common.
        if depth > 4:
            return
        followed: list[tuple[ast.expr, Unit]] = []
        if isinstance(node, ast.Call):
            if "loader" in names.role_of_call(self._file.dotted(node.func)):
                yield node, unit
            elif terminal(node) in ("enumerate", "tqdm", "trange", "track", "iter"):
                followed = [(one, unit) for one in node.args[:1]]
        elif not self._bound_otherwise(node, unit):
            is_parameter = isinstance(node, ast.Name) and node.id in unit.parameters
            passed_in = self._file.arguments(unit, terminal(node)) if is_parameter else ()
            followed = [*self._file.roles.values(node, unit), *passed_in]
        for value, where in followed:
            yield from self.loader_calls(value, where, depth + 1)

    def yields_host(self, node: ast.AST, unit: Unit) -> bool:
        """Whether what is iterated over surely yields tensors on the host."""
        found = list(self.loader_calls(node, unit))
        return bool(found) and all(self._on_host(call, where) for call, where in found)

    def _on_host(self, loader: ast.Call, unit: Unit) -> bool:
        given = {k.arg: k.value for k in loader.keywords}
        collate = given.get("collate_fn")
        collating = [self._file.text_of(u) for u in self._file.functions(terminal(collate))] if collate else [""]
        # A collate function that is not in this file, or that moves, may put the batch anywhere.
        # `None` is the key of `**options`, which may have a `collate_fn`.
        if None in given or not collating or any(map(_moves, collating)):
            return False
        dataset = loader.args[0] if loader.args else given.get("dataset")
        if dataset is None:
            return False
        values = [(dataset, unit)] if isinstance(dataset, ast.Call) else self._file.roles.values(dataset, unit)
        return bool(values) and all(isinstance(v, ast.Call) and self._host_dataset(v, w, 0) for v, w in values)

    def _host_dataset(self, value: ast.Call, unit: Unit, depth: int) -> bool:
        dotted = self._file.dotted(value.func)
        if dotted.startswith(_HOST_DATASETS):
            return True
        if dotted == "torch.utils.data.TensorDataset":
            return self._given_on_host(value, unit)
        known = self._file.classes.get(value.func.id) if isinstance(value.func, ast.Name) else None
        if known is not None:
            bases = {b.rpartition(".")[2] for b in known.ancestors}
            if _moves(self._file.text_of(known)) or not bases & {"Dataset", "IterableDataset"}:
                return False
            # Without a call in it, `__getitem__` gives out parts of what the dataset was made with, as they are.
            item = known.method("__getitem__")
            computes = item is None or any(isinstance(e.node, ast.Call) for e in item.events)
            return computes or self._given_on_host(value, unit)
        return depth < 2 and self._returns_host_dataset(value, unit, depth)

    def _given_on_host(self, value: ast.Call, unit: Unit) -> bool:
        """Whether all that a call is given is on the host."""
        # At the end of the unit: what a name holds there is what it held at the call, if it is bound once.
        at = unit.call_of(value)
        return at is not None and all(self.of(a, at) == "cpu" for a in value.args)

    def _returns_host_dataset(self, value: ast.Call, unit: Unit, depth: int) -> bool:
        """Whether a function of the file that makes the dataset returns nothing but one on the host."""
        at = unit.call_of(value)
        made = self._file.callee(at) if at is not None else None
        if made is None:
            return False
        given = [value for value, _ in made.returned]
        return bool(given) and all(isinstance(g, ast.Call) and self._host_dataset(g, made, depth + 1) for g in given)


def _moves(text: str) -> bool:
    return any(word in text for word in _CALLS_THAT_MOVE)


def _bound_between(name: str, moved: Event, event: Event) -> bool:
    """Whether a name gets another object after a move and before an event; in another function any time after it."""
    later = (b for b in moved.unit.bindings.get(name, ()) if b.index > moved.index)
    return any(moved.unit is not event.unit or b.index < event.index for b in later)


def _written(value: object) -> Place:
    """What a constant names: `"cuda:0"` and a number are devices."""
    head, number = str(value).partition(":")[0], isinstance(value, int) and not isinstance(value, bool)
    return "cpu" if head == "cpu" else "device" if number or head in ACCELERATORS else ""


def _joined(found: Iterable[Place]) -> Place:
    """Where a result lives: on the device where any part does, on the host where all do."""
    places = set(found)
    return "device" if "device" in places else "cpu" if places == {"cpu"} else ""


def operands(node: ast.Call) -> list[ast.expr]:
    """Positional arguments of a call, lists and tuples among them taken apart."""
    found: list[ast.expr] = []
    for one in node.args:
        found.extend(one.elts if isinstance(one, (ast.List, ast.Tuple)) else [one])
    return found
