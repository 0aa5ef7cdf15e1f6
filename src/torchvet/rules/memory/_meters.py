"""Objects of other files that a training loop gives its numbers to, and once a tensor with its graph."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.memory._stores import Stored
from torchvet.rules.shared.training_loops import is_test
from torchvet.source import syntax
from torchvet.source.model import Event, given, receiver, terminal, value_bound

_TAKES = re.compile(r"(update|add|record|accumulate|push|track|append)(_|$)")
_CALLED = re.compile(r"\.(?:update|add|record|accumulate|push|track|append)\w*\(")
_NO_METER = re.compile(r"torch\.|Counter$|OrderedDict$|Queue$|Path$|Parser$|Namespace$|Writer$|Progress|Graph")


def given_with_graphs(file: SourceFile) -> Iterator[Stored]:
    """What a training loop gives such an object with its graph, where all else that it gives such ones are numbers."""
    if not file.steps or is_test(file):
        return
    calls = list(_calls(file))
    # The program itself says that these objects are for numbers.
    numbers = {made for made, event in calls if any(_is_number(one, event) for one in given(event.call))}
    for made, event in calls:
        if made in numbers and any(step.loop is not None and _within(event, step) for step in file.steps):
            for value in event.call.args:
                if _has_graph(file, value, event):
                    yield Stored(event, receiver(event.call), value)  # type: ignore[arg-type]
                    break


def _within(event: Event, step: object) -> bool:
    return event.unit is step.unit and event.inside(step.loop)  # type: ignore[attr-defined]


def _calls(file: SourceFile) -> Iterator[tuple[str, Event]]:
    """Calls of methods that take something in, each with the class of another file whose object it is called on."""
    lines = {file.line_of(match.start()) for match in _CALLED.finditer(file.text)}
    for unit in file.units_at(sorted(lines)):
        for event in unit.events:
            if event.line in lines and isinstance(event.node, ast.Call) and isinstance(event.parent, ast.Expr):
                made = _class_of(file, event) if _TAKES.match(terminal(event.node)) else ""
                if made:
                    yield made, event


def _class_of(file: SourceFile, event: Event) -> str:
    """The name of the class of another file that a variable is made of, before the loop around a call."""
    on = receiver(event.call)
    if not isinstance(on, ast.Name) or event.unit.home(on.id) is None or file.callee(event) is not None:
        return ""
    values = [value for value, _ in file.roles.values(on, event.unit)]
    names = {file.dotted(v.func) for v in values if isinstance(v, ast.Call)}
    dotted = names.pop() if len(names) == 1 and all(isinstance(v, ast.Call) for v in values) else ""
    last = dotted.rpartition(".")[2]
    known = last in file.classes or bool(file.roles.of(on, event.unit)) or _NO_METER.search(dotted) is not None
    return dotted if last[:1].isupper() and not known else ""


def _is_number(node: ast.expr, event: Event, depth: int = 0) -> bool:
    """Whether a value is a tensor's number, or a dict that holds one."""
    if isinstance(node, ast.Name) and depth < 2:
        bound = event.binding_of(node.id)
        value = value_bound(bound.node, node.id) if bound is not None else None
        return value is not None and bound is not None and _is_number(value, bound, depth + 1)
    if isinstance(node, ast.Dict):
        return any(_is_number(one, event, depth) for one in node.values)
    # `.item()` and `float(x)`, wherever in it; a constant says nothing.
    return isinstance(node, (ast.Call, ast.BinOp)) and syntax.is_number(node) and _reads_tensor(node)


def _reads_tensor(node: ast.expr) -> bool:
    return any(terminal(n) in ("item", "tolist", "float") for n in ast.walk(node) if isinstance(n, ast.Call))


def _has_graph(file: SourceFile, value: ast.expr, event: Event) -> bool:
    """Whether a value has a graph: surely; or by a function of another file that was given one, where the program takes
    its number elsewhere."""
    carries = file.gradients.carries(value, event)
    if carries != "unknown" or not isinstance(value, ast.Name):
        return carries == "yes"
    bound = event.binding_of(value.id)
    made = value_bound(bound.node, value.id) if bound is not None else None
    if bound is None or not isinstance(made, ast.Call) or file.gradients.enabled(bound) != "yes":
        return False
    items = (e for e in event.unit.calls.get("item", ()) if e.index > event.index)
    is_tensor = any(isinstance(on := receiver(e.call), ast.Name) and on.id == value.id for e in items)
    return is_tensor and any(_is_output(file, one, bound) for one in given(made))


def _is_output(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether a value is a module's output, or one of several: by name, with a graph."""
    bound = event.binding_of(node.id) if isinstance(node, ast.Name) else None
    run = bound.node.value if bound is not None and isinstance(bound.node, ast.Assign) else None
    if bound is None or not isinstance(run, ast.Call) or not file.gradients.forwards.runs_module(run, bound.unit):
        return False
    return file.gradients.carries(run, bound.unit.call_of(run) or bound) == "yes"
