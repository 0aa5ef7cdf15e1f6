"""Whether gradients are recorded at an event, and whether an expression carries an autograd graph."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from torchvet.source.model import torch_names as names
from torchvet.source.model.events import Event
from torchvet.source.model.expressions import is_name, value_bound
from torchvet.source.model.forwards import Forwards, takes_indices
from torchvet.source.model.units import Unit, keyword, receiver, targets_of, terminal
from torchvet.source.syntax import DISPLAYS, given, parts
from torchvet.source.text import name_set

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

Answer = Literal["yes", "no", "unknown"]

_OFF = name_set("""
    torch.no_grad torch.inference_mode torch.autograd.no_grad torch.autograd.inference_mode
    torch.autograd.grad_mode.no_grad torch.autograd.grad_mode.inference_mode
""")
_SET = {"torch.set_grad_enabled", "torch.autograd.set_grad_enabled", "torch.autograd.grad_mode.set_grad_enabled"}
_ON = {"torch.enable_grad", "torch.autograd.enable_grad", "torch.autograd.grad_mode.enable_grad"}
_OFF_BY_FRAMEWORK = name_set("""
    validation_step test_step predict_step validation_step_end test_step_end validation_epoch_end test_epoch_end
    on_validation_start on_validation_epoch_start on_validation_batch_start on_validation_batch_end
    on_validation_epoch_end on_validation_end on_test_start on_test_epoch_start on_test_batch_start on_test_batch_end
    on_test_epoch_end on_test_end on_predict_start on_predict_epoch_start on_predict_batch_start on_predict_batch_end
    on_predict_epoch_end on_predict_end
""")
_SUSPECT_WORDS = name_set("""
    no_grad nograd inference eval_mode eval_decorator disable_grad evaluating without_grad stop_grad
""")
"""A decorator or context manager of such a name may well switch gradients off."""
_HARMLESS = {"zero_", "fill_", "detach_", "normal_", "uniform_", "random_", "bernoulli_", "__len__", "share_memory_"}
"""Methods that write to a tensor what has no graph."""
_KEEPING = (*DISPLAYS, ast.UnaryOp, ast.BinOp, ast.NamedExpr, ast.Starred, ast.Subscript, ast.Await)
"""Expressions whose value has the graphs of all their parts."""
_DEEPEST = 18
"""Expressions within expressions. A deeper question is answered with *unknown*, which no rule reports."""


class Gradients:
    """Answers for one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._units: dict[int, Answer] = {}
        self._written: dict[int, set[str]] = {}
        self.forwards = Forwards(file)
        self._known: dict[tuple[int, int], tuple[Answer, int]] = {}

    def enabled(self, event: Event) -> Answer:
        """Whether autograd records at an event: `with` blocks, decorators, frameworks' hooks, callers."""
        # The innermost decides: `enable_grad` within `no_grad` records.
        for context in reversed(event.context.withs):
            found = self._of_context(context)
            if found is not None:
                return found
        # `torch.set_grad_enabled(...)` as a statement, here or at the module's level.
        for call in self._file.calls("set_grad_enabled"):
            if isinstance(call.parent, ast.Expr) and (call.unit is event.unit or call.unit.is_module):
                return "unknown"
        # `torch.no_grad().__enter__()`: nothing says when it ends.
        if any(self._file.dotted(on.func) in _OFF for on in self._entered()):
            return "unknown"
        return self._in_unit(event.unit)

    def _entered(self) -> Iterator[ast.Call]:
        found = (receiver(call.call) for call in self._file.calls("__enter__"))
        return (on for on in found if isinstance(on, ast.Call))

    def _of_context(self, node: ast.expr) -> Answer | None:
        """What a `with` expression says; None where it says nothing of gradients."""
        dotted = self._file.dotted(node.func if isinstance(node, ast.Call) else node)
        first = node.args[0] if isinstance(node, ast.Call) and node.args else None
        # `inference_mode(False)` switches nothing off.
        if dotted in _OFF:
            # As a decorator without brackets `inference_mode` gets the function.
            return "no" if first is None or getattr(first, "value", None) is True else "unknown"
        if dotted in _ON:
            return "yes"
        if dotted in _SET:
            return "unknown" if not isinstance(first, ast.Constant) else ("yes" if first.value else "no")
        return "unknown" if self._is_suspect(node) else None

    def _is_suspect(self, node: ast.expr) -> bool:
        """Whether a context manager may switch gradients off: by its name, or by the text of what makes it."""
        name = terminal(node)
        # `with (torch.no_grad() if frozen else nullcontext()):` may or may not.
        if not name or isinstance(node, ast.IfExp) or _sounds_suspect(name):
            return True
        if isinstance(node, ast.Name):
            bindings = (b for unit in self._file.units_with(node.id) for b in unit.bindings.get(node.id, ()))
            texts = map(ast.unparse, (b.node for b in bindings))
            if any(word in text for text in texts for word in ("no_grad", "inference_mode", "grad_enabled")):
                return True
        known = map(self._file.text_of, self._file.functions(name))
        return any("no_grad" in text or "inference_mode" in text for text in known)

    def _in_unit(self, unit: Unit) -> Answer:
        key = id(unit)
        if key not in self._units:
            # Set before it is found: a function that calls itself asks for itself.
            self._units[key] = "unknown"  # recursion ends here
            self._units[key] = self._find(unit)
        return self._units[key]

    def _find(self, unit: Unit) -> Answer:
        switching = (d for d in unit.decorators if d in _OFF | _SET or _sounds_suspect(d))
        decorator = next(switching, None)
        if decorator is not None:
            return "no" if decorator in _OFF else "unknown"
        # Methods only: Lightning calls these under `no_grad`, a function of that name anybody may call.
        if unit.owner is not None and unit.name in _OFF_BY_FRAMEWORK:
            return "no"
        # What switches gradients off around a nested function's definition may hold where it is called.
        # Of a method the unit around is the class's module, which is no place that it is called at.
        around = unit.parent if unit.owner is None else None
        outer = self._in_unit(around) if around is not None and not around.is_module else "yes"
        # Called from nowhere in this file, it is taken to run as torch begins: with gradients on.
        if outer != "yes" or not (callers := self._file.callers(unit)):
            return outer
        return _same({self.enabled(event) for event in callers})

    def carries(self, node: ast.AST | None, event: Event, depth: int = 0) -> Answer:
        """Whether the value of an expression, as it stands at an event, refers to an autograd graph.

        `depth` is that of the question that this one is asked for.
        """
        # No answer is a safe answer: rules report nothing on it.
        if node is None or depth > _DEEPEST:
            return "unknown"
        if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.Lambda)):
            return "no"
        if isinstance(node, (ast.Call, ast.Name)):
            return self._remembered(node, event, depth)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, event, depth)
        if isinstance(node, ast.Subscript) and takes_indices(node):
            return "no"
        if isinstance(node, ast.IfExp):
            return _same(self.carries(part, event, depth + 1) for part in parts(node))
        return self.any_of(parts(node), event, depth) if isinstance(node, _KEEPING) else "unknown"

    def any_of(self, nodes: Iterable[ast.expr], event: Event, depth: int) -> Answer:
        """Whether one of several expressions carries a graph."""
        return _any(self.carries(one, event, depth + 1) for one in nodes)

    def _remembered(self, node: ast.Call | ast.Name, event: Event, depth: int) -> Answer:
        """Calls and names lead to other expressions, and may lead back: each is asked once."""
        key = (id(node), id(event))
        found, asked = self._known.get(key, ("unknown", _DEEPEST + 1))
        # *Unknown* may only mean that the first question came too deep: a shallower one asks anew.
        if found == "unknown" and depth < asked:
            self._known[key] = ("unknown", depth)  # recursion ends here
            if isinstance(node, ast.Call):
                found = self._of_call(node, event, depth)
            else:
                found = self._of_name(node.id, event, depth)
            self._known[key] = (found, depth)
        return found

    def _of_call(self, node: ast.Call, event: Event, depth: int) -> Answer:
        roles, name, on = self._file.roles, terminal(node), receiver(node)
        dotted = self._file.dotted(node.func)
        by_name = _known_by_name(node, name, dotted)
        if by_name is not None:
            return by_name
        if dotted == "copy.deepcopy":
            return self.carries(node.args[0], event, depth + 1) if node.args else "unknown"
        called = roles.of(node.func, event.unit)
        if "criterion" in called or names.role_of_call(dotted) & {"loss", "tensor"} or dotted.startswith("torch."):
            return self.any_of(given(node), event, depth)
        if self.forwards.runs_module(node, event.unit):
            return self.forwards.answer(node, event, depth)
        if not called and roles.hinted("criterion", node.func):
            return self.any_of(given(node), event, depth)
        if on is not None and (name in names.TENSOR_METHODS or roles.of(on, event.unit) & {"tensor", "loss", "output"}):
            return self.carries(on, event, depth + 1)
        # A callee is found by the call's own event, which knows its loops and branches.
        own = event.unit.call_of(node)
        callee = self._file.callee(own) if own is not None else None
        return self.of_function(callee, depth) if callee is not None else "unknown"

    def of_call(self, call: ast.Call, event: Event, depth: int) -> Answer:
        """`carries` for a call of the event's unit, at the call's own event."""
        return self.carries(call, event.unit.call_of(call) or event, depth + 1)

    def of_function(self, unit: Unit, depth: int) -> Answer:
        """Whether what a function returns carries a graph."""
        # Whatever its callers do.
        if any(d in _OFF for d in unit.decorators):
            return "no"
        # Twice as deep: functions that call each other must come to an end soon.
        return _same(self.carries(value, e, depth + 2) for value, e in unit.returned if value is not None)

    def _of_name(self, name: str, event: Event, depth: int) -> Answer:
        unit = event.unit
        if unit.home(name) is not unit:
            return "unknown"
        before = event.bindings_before(name)
        if not before:
            passed = [(v, e) for e in self._file.callers(unit) for v in self._file.passed(e, unit, name)]
            # Of all callers that are seen.
            return _same(self.carries(v, e, depth + 1) for v, e in passed if name in unit.parameters)
        last = before[-1]
        # A binding within a branch that this event is not in may or may not have run. The three before it are asked, no
        # more: each may lead to further questions.
        others = [] if event.sure_after(last) else before[:-1][-3:]
        found = _same(self._of_binding(e, name, depth) for e in (last, *others))
        # Only a "no" can be wrong by it: a graph is not lost by a write in place.
        return "unknown" if found == "no" and self._changes(name, event, depth) else found

    def _changes(self, name: str, event: Event, depth: int) -> bool:
        """Whether a value without a graph may have got one: written to in place, or bound anew in a loop around."""
        unit = event.unit
        if id(unit) not in self._written:
            self._written[id(unit)] = {target for e in unit.events for target in _written_names(e.node)}
        if name in self._written[id(unit)]:
            return True
        later = (e for e in unit.bindings.get(name, ()) if e.index > event.index and e.loop is not None)
        again = (e for e in later if event.loop is not None and e.loop is not None and event.loop.within(e.loop))
        return any(self._of_binding(e, name, depth + 1) != "no" for e in again)

    def _of_binding(self, binding: Event, name: str, depth: int) -> Answer:
        node = binding.node
        if isinstance(node, ast.AugAssign):
            # What is added may bring a graph; that it brings none says nothing of what was there before.
            return "yes" if self.carries(node.value, binding, depth + 1) == "yes" else "unknown"
        value = value_bound(node, name)
        # An empty list carries what is appended to it.
        if isinstance(value, ast.List) and not value.elts:
            added = [e for e in binding.unit.calls.get("append", ()) if terminal(receiver(e.call)) == name]
            return _any(self.carries(e.call.args[0], e, depth + 1) for e in added if e.call.args)
        if value is not None:
            return self.carries(value, binding, depth + 1)
        # `output, hidden = model(x)`: what is taken apart came from one call.
        # By position, as `forward` returns them in this order.
        targets = targets_of(node)
        number = next((i for i, target in enumerate(targets) if is_name(target, name)), None)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and number is not None:
            return self.forwards.part(node.value, targets[number], number, len(targets), binding, depth + 1)
        return "unknown"

    def _of_attribute(self, node: ast.Attribute, event: Event, depth: int) -> Answer:
        if node.attr in ("data", "shape", "dtype", "device", "grad", "requires_grad", "ndim", "is_cuda"):
            return "no"
        # `output.logits`, `outputs.loss` of a model's output.
        if node.attr in ("T", "mT", "real", "imag", "logits", "loss", "last_hidden_state", "hidden_states"):
            return self.carries(node.value, event, depth + 1)
        return "no" if self._is_buffer(node, event.unit) else "unknown"

    @staticmethod
    def _is_buffer(node: ast.Attribute, unit: Unit) -> bool:
        """Whether an attribute of the module is registered as a buffer, and never bound to anything else."""
        owner = unit.method_class() if is_name(node.value, unit.self_name()) else None
        # An assignment somewhere may have put a parameter, or a result, in its place.
        if owner is None or node.attr in owner.attributes:
            return False
        made = (e for one in owner.lineage for m in one.methods.values() for e in m.calls.get("register_buffer", ()))
        names_given = (e.call.args[0] for e in made if e.call.args)
        return any(isinstance(name, ast.Constant) and name.value == node.attr for name in names_given)


def _known_by_name(node: ast.Call, name: str, dotted: str) -> Answer | None:
    """What the name of a call alone says; None where it says nothing."""
    # Leaves: they need gradients and carry no graph, which neither "yes" nor "no" says.
    if name == "requires_grad_" or dotted == "torch.nn.Parameter" or name in ("parameters", "named_parameters"):
        return "unknown"
    if name in names.DETACHING or dotted in ("float", "int", "len", "str", "bool", "round", "repr", "range"):
        return "no"
    if names.is_factory(dotted):
        return "no" if keyword(node, "requires_grad") is None else "unknown"
    return None


def _written_names(node: ast.AST) -> Iterator[str]:
    """Names whose values an event's node writes to: `x[i] = …`, `x.copy_(…)`, `x.requires_grad = True`."""
    if isinstance(node, ast.Call):
        on, name = receiver(node), terminal(node)
        if isinstance(on, ast.Name) and name.endswith("_") and name not in _HARMLESS:
            yield on.id
    for target in targets_of(node) if isinstance(node, (ast.Assign, ast.AugAssign)) else ():
        if isinstance(target, ast.Attribute) and target.attr not in ("requires_grad", "data"):
            continue
        while isinstance(target, (ast.Subscript, ast.Attribute)):
            target = target.value
            if isinstance(target, ast.Name):
                yield target.id


def _sounds_suspect(name: str) -> bool:
    return any(word in name.lower() for word in _SUSPECT_WORDS)


def _any(answers: Iterable[Answer]) -> Answer:
    found = set(answers)
    # One part with a graph gives it to the whole.
    return "yes" if "yes" in found else _same(found)


def _same(answers: Iterable[Answer]) -> Answer:
    """The answer that all agree on; unknown where they do not, and without any."""
    found = set(answers)
    return found.pop() if len(found) == 1 else "unknown"
