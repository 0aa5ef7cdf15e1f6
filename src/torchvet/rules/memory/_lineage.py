"""What a value was computed from: the bindings behind an expression that hold an autograd graph, in one function."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from torchvet.rules.kit import Iterable, SourceFile
from torchvet.rules.shared.training_loops import bound_before
from torchvet.source import model, syntax
from torchvet.source.model import torch_names

_NO_GRAPH = frozenset(("data", "shape", "dtype", "device", "grad", "ndim", "is_cuda", "requires_grad", "training"))
_PLAIN = frozenset(("float", "int", "len", "str", "bool", "range", "repr", "round", "next", "iter", "isinstance"))
_BUILTINS = frozenset(("sum", "min", "max", "list", "tuple", "zip", "enumerate"))
"""Functions whose result holds what they are given."""
_NO_TORCH = ("numpy.", "np.", "math.", "random.")
_PLAIN_ARGUMENTS = model.name_set("to cuda view reshape flatten size sum mean unsqueeze squeeze")
"""Methods whose arguments are sizes or devices, never tensors with a graph."""
_OF_CONTAINERS = model.name_set("values items get pop copy")
"""Methods of containers that hand out what was put in."""
_NOT_VALUES = model.name_set(
    "module criterion optimizer scheduler scaler loader number constant fresh accelerator engine parameter"
)
_AT_FIRST = frozenset(("fresh", "number", "constant"))
"""What an attribute may be before the first pass, and something else after it."""
_DEEPEST = 12
_MOST = 250
"""Expressions that are looked at for one answer; what needs more counts as not followed."""


@dataclass
class Lineage:
    """`graph` are the bindings whose values hold a graph that the expression was computed from; `loose` what could not
    be followed (parameters, attributes, names of an outer scope), `carried` names bound in the pass before."""

    graph: set[model.Event] = field(default_factory=set)
    loose: set[str] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)
    stateful: bool = False
    """Whether a module of this file on the way keeps something of a pass in its attributes."""
    foreign: bool = False
    """Whether a module or function on the way is not defined in this file."""

    def shares(self, other: Lineage) -> bool:
        """Whether the two may have a part of a graph in common."""
        return bool(self.graph & other.graph or self.carried & other.carried or self.loose & other.loose)


def lineage(file: SourceFile, node: ast.AST | None, event: model.Event) -> Lineage:
    """What an expression, as it stands at an event, was computed from. Bounded by the event's innermost loop."""
    tracer = _Tracer(file, event.loop)
    tracer.visit(node, event, 0)
    return tracer.found


class _Tracer:
    def __init__(self, file: SourceFile, loop: model.Loop | None, follows_callers: bool = False) -> None:
        self._file = file
        self._follows_callers = follows_callers
        # A comprehension is no pass.
        self._loop = loop.statement() if loop is not None else None
        self.found = Lineage()
        self._seen: dict[tuple[int, str], bool] = {}
        self._left = _MOST

    def visit(self, node: ast.AST | None, event: model.Event, depth: int) -> bool:
        """Follow an expression; whether its value may hold a graph made within the bounds."""
        if node is None or isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.Lambda)):
            return False
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            # Not followed: as something that two lines may share.
            self.found.loose.add("…")
            return True
        if isinstance(node, ast.Name):
            return self._name(node, event, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, event, depth)
        if isinstance(node, ast.Call):
            return self._call(node, event, depth)
        if isinstance(node, ast.Subscript):
            return self.visit(node.value, event, depth + 1)
        if isinstance(node, ast.IfExp):
            return self._any((node.body, node.orelse), event, depth)
        return self._any(ast.iter_child_nodes(node), event, depth)

    def _any(self, nodes: Iterable[ast.AST], event: model.Event, depth: int) -> bool:
        # A list and no generator: every part is to be noted, also behind the first that holds.
        answers = [self.visit(one, event, depth + 1) for one in nodes if not isinstance(one, ast.expr_context)]
        return any(answers)

    # Calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call, event: model.Event, depth: int) -> bool:
        dotted, name, on = self._file.dotted(node.func), model.terminal(node), model.receiver(node)
        if (
            dotted.startswith(_NO_TORCH)
            or dotted in _PLAIN
            or name in torch_names.DETACHING
            or torch_names.is_factory(dotted)
        ):
            return False
        hands_on = dotted.startswith("torch.") or dotted in _BUILTINS
        # Before the receiver, so that arguments are noted whatever the call is.
        given = (hands_on or name not in _PLAIN_ARGUMENTS) and self._any(syntax.given(node), event, depth)
        if hands_on:
            return given
        if on is not None and self._is_value(on, name, event):
            return self.visit(on, event, depth + 1) or given
        roles = self._file.roles.of(node.func, event.unit)
        # A criterion adds nothing of its own.
        if "criterion" in roles and "module" not in roles - {"criterion"}:
            return given
        self._made_by(node, event, depth)
        return True

    def _is_value(self, on: ast.expr, name: str, event: model.Event) -> bool:
        """Whether a method is called on a value of the pass, not on a module or other object that outlives it."""
        if not isinstance(on, (ast.Name, ast.Attribute)):
            # `super().forward(x)` is a call on the module itself.
            return not (model.is_call(on, "super"))
        roles = self._file.roles.of(on, event.unit)
        if roles & {"module", "criterion", "optimizer", "loader", "scaler"}:
            return False
        return (
            bool(roles & {"tensor", "loss", "output"}) or name in torch_names.TENSOR_METHODS or name in _OF_CONTAINERS
        )

    def _made_by(self, node: ast.Call, event: model.Event, depth: int) -> None:
        """Note what a module or function that is called may add of its own."""
        target = self._file.roles.class_of(node.func, event.unit)
        if target is not None:
            self.found.stateful |= keeps_state(target.methods)
            return
        own = event.unit.call_of(node)
        callee = self._file.callee(own) if own is not None else None
        if callee is None:
            roles = self._file.roles.of(node.func, event.unit)
            # A library's module may keep state from pass to pass.
            self.found.foreign |= not _made_of_torch(self._file, node.func, event.unit)
            if not roles and _is_foreign_method(node.func, event.unit):
                self.found.loose.add(ast.unparse(node.func))
            return
        if callee.parent is not None and not callee.parent.is_module:
            self.found.loose.add(callee.name)  # what it closes over is not seen
        if callee.owner is not None:
            self.found.stateful |= keeps_state({callee.name: callee})

    # Names -----------------------------------------------------------------------------------------------------------

    def _attribute(self, node: ast.Attribute, event: model.Event, depth: int) -> bool:
        if node.attr in _NO_GRAPH or self._file.dotted(node).startswith(("torch.", "numpy.", "math.")):
            return False
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        roles = self._file.roles.of(node, event.unit)
        if roles & _NOT_VALUES - _AT_FIRST:
            return False
        if isinstance(root, ast.Name) and root.id != event.unit.self_name() and self._is_changed(root.id, event):
            # Something in the loop writes to that object: what is read may be of the pass before.
            self.found.carried.add(ast.unparse(node))
            return True
        if roles & _AT_FIRST:
            return False
        if isinstance(root, ast.Name):
            home = event.unit.home(root.id)
            if root.id != event.unit.self_name() and home is event.unit and self._inside(root.id, event):
                return self.visit(root, event, depth + 1)
            # In this order: a value of this pass is followed, anything else of that kind is a setting.
            if root.id != event.unit.self_name():
                return False  # a setting: `args.weight`
            self.found.loose.add(ast.unparse(node))
            return True
        return self.visit(root, event, depth + 1)

    def _is_changed(self, name: str, event: model.Event) -> bool:
        """Whether the loop stores something in an object that outlives its passes: `memory.h = h`, or
        `memory.update(state)` for its own sake."""
        if self._loop is None or self._inside(name, event):
            return False
        return any(_stores_in(other, name) for other in event.unit.events if other.inside(self._loop))

    def _inside(self, name: str, event: model.Event) -> bool:
        """Whether a name of this unit is bound within the bounds."""
        return any(b.inside(self._loop) for b in event.unit.bindings.get(name, ()))

    def _name(self, node: ast.Name, event: model.Event, depth: int) -> bool:
        unit, name = event.unit, node.id
        home = unit.home(name)
        # Names in capitals are constants.
        if home is None or name == unit.self_name() or name.isupper():
            return False
        if home is not unit:
            return self._outer(node, event)
        reaching = _reaching(name, event)
        inside = [b for b in reaching if b.inside(self._loop)]
        # The earliest binding that reaches is one that every way takes.
        known = len(inside) == len(reaching) > 0 and event.sure_after(reaching[-1])
        if not known and self._from_before(node, event, inside):
            return True
        answers = [self._binding(b, name, depth) for b in inside]
        return any(answers)

    def _from_before(self, node: ast.Name, event: model.Event, inside: list[model.Event]) -> bool:
        """Whether a name may hold what it held before the bounds, and nothing within them is bound to it. What the pass
        before has bound is carried."""
        again = self._loop is not None and self._inside(node.id, event)
        if again and not any(_binds_anew(b, event) for b in inside):
            self.found.carried.add(node.id)
            return False
        return not inside and self._outer(node, event)

    def _outer(self, node: ast.Name, event: model.Event) -> bool:
        """A name from outside the bounds: models and settings are no values; others cannot be followed."""
        if self._file.roles.of(node, event.unit) & _NOT_VALUES:
            return False
        if self._file.gradients.carries(node, event) == "no" or self._is_class_or_function(node.id):
            return False
        # What programs call their settings.
        if node.id in ("device", "args", "config", "cfg", "opt", "hparams") or self._is_given_data(node.id, event.unit):
            return False
        # What comes from before the loop is gone through again in its next pass.
        (self.found.loose if self._loop is None else self.found.carried).add(node.id)
        return True

    def _is_given_data(self, name: str, unit: model.Unit) -> bool:
        """Whether every caller in this file gives a parameter something without a graph."""
        if self._follows_callers or name not in unit.parameters or name in unit.bindings:
            return False
        calls = self._file.callers(unit)
        given = {id(value) for value, _ in self._file.arguments(unit, name)}
        for call in calls:
            value = next((v for v in syntax.given(call.call) if id(v) in given), None)
            # One level: the tracer of a caller follows no callers of its own.
            tracer = _Tracer(self._file, call.loop, follows_callers=True)
            if value is None or tracer.visit(value, call, 0) or tracer.found.carried or tracer.found.loose:
                return False
        return bool(calls)

    def _is_class_or_function(self, name: str) -> bool:
        return name in self._file.classes or bool(self._file.functions(name))

    def _binding(self, binding: model.Event, name: str, depth: int) -> bool:
        key = (id(binding), name)
        if key in self._seen:
            return self._seen[key]
        # `h = f(h)` reads the binding that it is.
        self._seen[key] = False  # recursion ends here
        node = binding.node
        # What is bound under `no_grad` has no graph, whatever it is made of.
        if self._file.gradients.enabled(binding) == "no" or isinstance(node, (ast.With, ast.AsyncWith)):
            return False
        value = model.value_bound(node, name)
        if value is None:
            value = (
                node.iter
                if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension))
                else getattr(node, "value", None)
            )
        # A batch is data: no graph leads back through a loader.
        if self._is_loader(value, binding):
            return False
        holds = self.visit(value, binding, depth + 1)
        if holds:
            self.found.graph.add(binding)
        self._seen[key] = holds
        return holds

    def _is_loader(self, node: ast.AST | None, event: model.Event) -> bool:
        while (
            isinstance(node, ast.Call) and node.args and model.terminal(node) in ("enumerate", "tqdm", "iter", "next")
        ):
            node = node.args[0]
        if not isinstance(node, ast.expr):
            return False
        known = self._file.roles.of(node, event.unit)
        data = isinstance(event.node, (ast.For, ast.AsyncFor)) and _is_data(node)
        return "loader" in known or (not known and (self._file.roles.hinted("loader", node) or data))


def _binds_anew(binding: model.Event, event: model.Event) -> bool:
    """Whether every pass that comes to an event has been through a binding, which does not only add something."""
    return event.sure_after(binding) and not isinstance(binding.node, ast.AugAssign)


def _reaching(name: str, event: model.Event) -> list[model.Event]:
    """The bindings before an event that it may see, the latest first, back to one that binds the name anew."""
    found: list[model.Event] = []
    for binding in reversed(bound_before(name, event)):
        found.append(binding)
        if _binds_anew(binding, event):
            break
    return found


_DATA = re.compile(r"^((train|val|valid|test|eval|dev)_)?(batches|dataset|data|stream|samples|examples|ds)$")


def _is_data(node: ast.expr) -> bool:
    """A name, not an attribute, that people give to what a training loop goes over."""
    return isinstance(node, ast.Name) and _DATA.search(node.id) is not None


def keeps_state(methods: dict[str, model.Unit]) -> bool:
    """Whether methods other than `__init__` bind an attribute of their object to something computed."""
    for name, method in methods.items():
        # These set up, clear or switch.
        if name in ("__init__", "reset", "train", "eval") or isinstance(method.node, ast.Module):
            continue
        own = method.self_name()
        for event in method.events:
            for target in model.targets_of(event.node):
                value = model.value_for(event.node, target)
                on_self = isinstance(target, ast.Attribute) and model.terminal(target.value) == own
                # `self.training_done = True` holds no tensor.
                if on_self and not isinstance(value, ast.Constant):
                    return True
    return False


def _is_foreign_method(node: ast.expr, unit: model.Unit) -> bool:
    """Whether `self.name(…)` is a method from elsewhere, which may hand on what it keeps. An attribute that the class
    binds is a model that somebody gave."""
    owner = unit.method_class()
    if owner is None or not isinstance(node, ast.Attribute):
        return False
    return model.terminal(node.value) == unit.self_name() and node.attr not in owner.attributes


def _made_of_torch(file: SourceFile, node: ast.AST, unit: model.Unit) -> bool:
    """Whether what is called was made by a constructor of `torch.nn` here: such modules keep no state of a pass."""
    made = file.roles.values(node, unit)
    if not made and isinstance(node, ast.Name) and node.id in unit.parameters:
        made = [found for value, caller in file.arguments(unit, node.id) for found in file.roles.values(value, caller)]
    return bool(made) and all(_is_of_torch(file, value) for value, _ in made)


def _is_of_torch(file: SourceFile, value: ast.expr | None) -> bool:
    """Whether an expression makes a module of `torch.nn`, also where it is moved at once: `nn.Linear(4, 2).cuda()`."""
    while isinstance(value, ast.Call):
        if file.dotted(value.func).startswith(("torch.nn.", "torch.compile")):
            return True
        value = model.receiver(value)
    return False


def _stores_in(event: model.Event, name: str) -> bool:
    """Whether an event sets an attribute of an object, or calls its method for the call's own sake. One without
    arguments (`optimizer.step()`) takes nothing."""
    node = event.node
    if any(isinstance(t, ast.Attribute) and model.terminal(t.value) == name for t in model.targets_of(node)):
        return True
    if not isinstance(node, ast.Call) or not (node.args or node.keywords):
        return False
    return isinstance(event.parent, ast.Expr) and model.is_name(model.receiver(node), name)
