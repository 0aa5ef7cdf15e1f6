"""Whether gradients are recorded at an event, and whether an expression carries an autograd graph."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal

from torchvet.source.model import torch_names as names
from torchvet.source.model.events import Event
from torchvet.source.model.forwards import Forwards, takes_indices
from torchvet.source.model.units import Unit, keyword, receiver, targets_of, terminal, value_for

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

Answer = Literal["yes", "no", "unknown"]

_OFF = {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode",
        "torch.autograd.grad_mode.no_grad", "torch.autograd.grad_mode.inference_mode"}  # fmt: skip
_SET = {"torch.set_grad_enabled", "torch.autograd.set_grad_enabled", "torch.autograd.grad_mode.set_grad_enabled"}
_ON = {"torch.enable_grad", "torch.autograd.enable_grad", "torch.autograd.grad_mode.enable_grad"}
_OFF_BY_FRAMEWORK = {"validation_step", "test_step", "predict_step", "on_validation_epoch_end", "validation_epoch_end",
                     "on_test_epoch_end", "test_epoch_end", "on_validation_batch_end"}  # fmt: skip
_SUSPECT_WORDS = ("no_grad", "nograd", "inference", "eval_mode", "eval_decorator", "disable_grad", "evaluating",
                  "without_grad", "stop_grad")  # fmt: skip
"""A decorator or context manager of such a name may well switch gradients off."""
_HARMLESS = {"zero_", "fill_", "detach_", "normal_", "uniform_", "random_", "bernoulli_", "__len__", "share_memory_"}
"""Methods that write to a tensor what has no graph."""
_DEEPEST = 18


class Gradients:
    """Answers for one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._units: dict[int, Answer] = {}
        self._written: dict[int, set[str]] = {}
        self.forwards = Forwards(file)
        self._known: dict[tuple[int, int], tuple[Answer, int]] = {}

    def enabled(self, event: Event) -> Answer:
        """Whether autograd records at an event: `with. blocks, decorators, frameworks' hooks, callers."""
        for context in reversed(event.context.withs):
            found = self._of_context(context)
            if found is not None:
                return found
        if self._switched_off_before(event):
            return "unknown"
        return self._in_unit(event.unit)

    def _of_context(self, node: ast.expr) -> Answer | None:
        call = node.func if isinstance(node, ast.Call) else node
        dotted = self._file.dotted(call)
        if dotted in _OFF:
            if isinstance(node, ast.Call) and node.args and not _is_true(node.args[0]):
                return "unknown"
            return "no"
        if dotted in _ON:
            return "yes"
        if dotted in _SET:
            given = node.args[0] if isinstance(node, ast.Call) and node.args else None
            return "unknown" if not isinstance(given, ast.Constant) else ("yes" if given.value else "no")
        if isinstance(node, ast.Name) and any(
            any(word in ast.unparse(binding.node) for word in ("no_grad", "inference_mode", "grad_enabled"))
            for unit in self._file.units_with(node.id)
            for binding in unit.bindings.get(node.id, ())
        ):
            return "unknown"
        last = terminal(node).lower()
        if any(word in last for word in _SUSPECT_WORDS) or isinstance(node, ast.IfExp) or not last:
            return "unknown"
        known = self._file.functions(terminal(node))
        if known and any("no_grad" in self._text(u) or "inference_mode" in self._text(u) for u in known):
            return "unknown"
        return None

    def _text(self, unit: Unit) -> str:
        return "\n".join(self._file.lines[unit.first - 1 : unit.last])

    def _switched_off_before(self, event: Event) -> bool:
        """`torch.set_grad_enabled(...)` as a statement, here or at the module's level."""
        if not self._file.mentions("set_grad_enabled"):
            return False
        found = [e for e in self._file.calls("set_grad_enabled") if isinstance(e.parent, ast.Expr)]
        return any(e.unit is event.unit or e.unit.is_module for e in found)

    def _in_unit(self, unit: Unit) -> Answer:
        key = id(unit)
        if key not in self._units:
            self._units[key] = "unknown"  # recursion ends here
            self._units[key] = self._find(unit)
        return self._units[key]

    def _find(self, unit: Unit) -> Answer:
        for decorator in unit.decorators:
            if decorator in _OFF:
                return "no"
            if any(word in decorator.lower() for word in _SUSPECT_WORDS) or decorator in _SET:
                return "unknown"
        if unit.owner is not None and unit.name in _OFF_BY_FRAMEWORK:
            return "no"
        if unit.parent is not None and not unit.parent.is_module and unit.owner is None:
            outer = self._in_unit(unit.parent)
            if outer != "yes":
                return outer
        callers = self._file.callers(unit)
        if not callers:
            return "yes"
        answers = {self.enabled(event) for event in callers}
        return answers.pop() if len(answers) == 1 else "unknown"

    def carries(self, node: ast.AST | None, event: Event) -> Answer:
        """Whether the value of an expression, as it stands at an event, refers to an autograd graph."""
        return self._carries(node, event, 0)

    def _carries(self, node: ast.AST | None, event: Event, depth: int) -> Answer:
        if node is None or depth > _DEEPEST:
            return "unknown"
        if isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr, ast.Lambda)):
            return "no"
        if isinstance(node, (ast.Call, ast.Name)):
            return self._remembered(node, event, depth)
        if isinstance(node, ast.Attribute):
            return self._of_attribute(node, event, depth)
        if isinstance(node, ast.BinOp):
            return _either(self._carries(node.left, event, depth + 1), self._carries(node.right, event, depth + 1))
        if isinstance(node, ast.Subscript) and takes_indices(node):
            return "no"
        if isinstance(node, (ast.UnaryOp, ast.NamedExpr, ast.Starred, ast.Subscript, ast.Await)):
            inner = node.operand if isinstance(node, ast.UnaryOp) else node.value
            return self._carries(inner, event, depth + 1)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return _any(self._carries(one, event, depth + 1) for one in node.elts)
        if isinstance(node, ast.Dict):
            return _any(self._carries(one, event, depth + 1) for one in node.values)
        if isinstance(node, ast.IfExp):
            return _same(self._carries(node.body, event, depth + 1), self._carries(node.orelse, event, depth + 1))
        return "unknown"

    def _remembered(self, node: ast.Call | ast.Name, event: Event, depth: int) -> Answer:
        """Calls and names lead to other expressions, and may lead back: each is asked once."""
        key = (id(node), id(event))
        found, asked = self._known.get(key, ("unknown", _DEEPEST + 1))
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
        if name == "requires_grad_" or dotted == "torch.nn.Parameter" or name in ("parameters", "named_parameters"):
            return "unknown"
        if name in names.DETACHING or dotted in ("float", "int", "len", "str", "bool", "round", "repr", "range"):
            return "no"
        if dotted.startswith("torch.") and dotted.count(".") == 1 and name in names.FACTORIES:
            wants = keyword(node, "requires_grad")
            return "no" if wants is None else "unknown"
        if dotted == "copy.deepcopy":
            return self._carries(node.args[0], event, depth + 1) if node.args else "unknown"
        called = roles.of(node.func, event.unit)
        if "criterion" in called or names.role_of_call(dotted) & {"loss", "tensor"} or dotted.startswith("torch."):
            given = [*node.args, *(k.value for k in node.keywords)]
            return _any(self._carries(one, event, depth + 1) for one in given)
        if self.forwards.runs_module(node, event.unit):
            return self.forwards.answer(node, event, depth)
        if not called and roles.hinted("criterion", node.func):
            return self.any_of([*node.args, *(k.value for k in node.keywords)], event, depth)
        if on is not None and (name in names.TENSOR_METHODS or roles.of(on, event.unit) & {"tensor", "loss", "output"}):
            return self._carries(on, event, depth + 1)
        own = event if node is event.node else next((e for e in event.unit.calls[name] if e.node is node), None)
        known = self._file.callee(own) if own is not None else None
        if known is not None:
            return self._of_function(known, depth)
        return "unknown"

    def any_of(self, nodes: list[ast.expr], event: Event, depth: int) -> Answer:
        """Whether one of several expressions carries a graph."""
        return _any(self._carries(one, event, depth + 1) for one in nodes)

    def any_in(self, pairs: list[tuple[ast.expr, Event]], depth: int) -> Answer:
        """Whether one of several expressions, each at its own event, carries a graph."""
        return _any(self._carries(node, event, depth + 1) for node, event in pairs)

    def carries_at(self, node: ast.expr, event: Event, depth: int) -> Answer:
        """`carries`, asked within a question that is `depth` deep already."""
        return self._carries(node, event, depth)

    def of_call(self, node: ast.Call, event: Event, depth: int) -> Answer:
        """`carries` for a call whose own event is looked for."""
        return self._carries_inside(node, event, depth)

    def of_function(self, unit: Unit, depth: int) -> Answer:
        """Whether what a function returns carries a graph."""
        return self._of_function(unit, depth)

    def _of_function(self, unit: Unit, depth: int) -> Answer:
        if any(d in _OFF for d in unit.decorators):
            return "no"
        returned = [e for e in unit.events if isinstance(e.node, ast.Return) and e.node.value is not None]
        if not returned:
            return "unknown"
        return _same(*(self._carries(e.node.value, e, depth + 2) for e in returned))  # type: ignore[attr-defined]

    def _of_name(self, name: str, event: Event, depth: int) -> Answer:
        unit = event.unit
        home = unit.home(name)
        if home is not unit:
            return "unknown"
        before = [e for e in unit.bindings.get(name, ()) if e.index < event.index and not e.excludes(event)]
        if not before:
            return self._of_parameter(name, unit, depth)
        last = before[-1]
        answer = self._of_binding(last, name, depth)
        # A binding within a branch that this event is not in may or may not have run.
        others = [] if event.sure_after(last) else before[:-1][-3:]
        found = _same(answer, *(self._of_binding(e, name, depth) for e in others))
        return "unknown" if found == "no" and self._changes(name, event, depth) else found

    def _changes(self, name: str, event: Event, depth: int) -> bool:
        """Whether a value without a graph may have got one: written to in place, or bound anew in a loop around."""
        unit = event.unit
        if id(unit) not in self._written:
            self._written[id(unit)] = _written_names(unit)
        if name in self._written[id(unit)]:
            return True
        later = [e for e in unit.bindings.get(name, ()) if e.index > event.index and e.loop is not None]
        return any(
            event.loop is not None and e.loop is not None and event.loop.within(e.loop)
            and self._of_binding(e, name, depth + 1) != "no"
            for e in later
        )  # fmt: skip

    def _of_parameter(self, name: str, unit: Unit, depth: int) -> Answer:
        """What all callers of this file pass."""
        if name not in unit.parameters:
            return "unknown"
        calls = [(value, event) for event in self._file.callers(unit) for value in self._file.passed(event, unit, name)]
        return _same(*(self._carries(value, event, depth + 1) for value, event in calls)) if calls else "unknown"

    def _of_binding(self, binding: Event, name: str, depth: int) -> Answer:
        node = binding.node
        if isinstance(node, ast.AugAssign):
            return _either(self._carries(node.value, binding, depth + 1), "unknown")
        target = next((t for t in targets_of(node) if isinstance(t, ast.Name) and t.id == name), None)
        value = value_for(node, target) if target is not None else None
        if isinstance(value, ast.List) and not value.elts:
            added = [e for e in binding.unit.calls.get("append", ()) if terminal(receiver(e.call)) == name]
            return self.any_in([(e.call.args[0], e) for e in added if e.call.args], depth)
        if value is not None:
            return self._carries(value, binding, depth + 1)
        # `output, hidden = model(x)`: what is taken apart came from one call.
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and target is not None:
            parts = targets_of(node)
            return self.forwards.part(node.value, target, parts.index(target), len(parts), binding, depth + 1)
        return "unknown"

    def _carries_inside(self, call: ast.Call, binding: Event, depth: int) -> Answer:
        event = next((e for e in binding.unit.calls.get(terminal(call), ()) if e.node is call), binding)
        return self._carries(call, event, depth + 1)

    def _of_attribute(self, node: ast.Attribute, event: Event, depth: int) -> Answer:
        if node.attr in ("data", "shape", "dtype", "device", "grad", "requires_grad", "ndim", "is_cuda"):
            return "no"
        # `output.logits`, `outputs.loss` of a model's output.
        if node.attr in ("T", "mT", "real", "imag", "logits", "loss", "last_hidden_state", "hidden_states"):
            return self._carries(node.value, event, depth + 1)
        return "unknown"


def _written_names(unit: Unit) -> set[str]:
    """Names whose values are written to: `x[i] = …`, `x.copy_(…)`, `x.requires_grad = True`."""
    found = set()
    for event in unit.events:
        node = event.node
        if isinstance(node, ast.Call):
            on, name = receiver(node), terminal(node)
            if isinstance(on, ast.Name) and name.endswith("_") and name not in _HARMLESS:
                found.add(on.id)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in targets_of(node):
                if isinstance(target, ast.Attribute) and target.attr not in ("requires_grad", "data"):
                    continue
                while isinstance(target, (ast.Subscript, ast.Attribute)):
                    target = target.value
                    if isinstance(target, ast.Name):
                        found.add(target.id)
    return found


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _any(answers: object) -> Answer:
    found: list[Answer] = list(answers)  # type: ignore[call-overload]
    if "yes" in found:
        return "yes"
    return "no" if found and all(a == "no" for a in found) else "unknown"


def _either(left: Answer, right: Answer) -> Answer:
    return _any((left, right))


def _same(*answers: Answer) -> Answer:
    return answers[0] if len(set(answers)) == 1 else "unknown"
