"""Loops that generate: a model's state goes from turn to turn with its graph, while its outputs become tokens."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchvet.rules.kit import Iterable, Iterator, SourceFile
from torchvet.rules.shared.training_loops import loop_text
from torchvet.source import model
from torchvet.source.model import torch_names
from torchvet.source.model.forwards import INDICES, takes_indices

_CUTS = re.compile(r"detach|repackage|no_grad|inference_mode|\bdel\b")
_ENDING = torch_names.DETACHING | model.name_set("multinomial")
_NO_GRAPH = model.name_set("data shape dtype device ndim grad")
_KEEPING = model.name_set("append extend insert add put update setdefault backward write")
_FEW = re.compile(r"range\([0-9]\)")


@dataclass(frozen=True, eq=False)
class Generation:
    """The assignment that carries a state, the state's name, and the run of the model that gives it."""

    event: model.Event
    name: str
    run: model.Event

    @property
    def at(self) -> model.Event:
        """The line to change: where a function that the loop calls returns the state, else the loop's own."""
        returns = self.run.unit.returns if self.run.unit is not self.event.unit else []
        return returns[0] if len(returns) == 1 else self.event

    @property
    def within(self) -> list[tuple[str, model.Event]]:
        """The loop's line and the run, where a function that the loop calls runs the model."""
        return [("loop", self.event), ("run", self.run)] if self.run.unit is not self.event.unit else []


def generations(file: SourceFile, events: Iterable[model.Event]) -> Iterator[Generation]:
    """Of assignments in loops those that carry a model's state on with its graph, where nothing else of the model keeps
    one: its outputs become numbers, or indices."""
    # In early versions of torch it switched gradients off.
    for event in events if not file.mentions("volatile") else ():
        name = _carried(file, event)
        call = event.unit.call_of(getattr(event.node, "value", None)) if name else None
        if call is None:
            continue
        callee = file.callee(call)
        run = call if callee is None else _run_within(file, callee, call, event, name)
        if run is None or not _runs_model(file, run) or file.gradients.enabled(run) != "yes":
            continue
        bound = next(e.node for e in run.unit.events if getattr(e.node, "value", None) is run.node)
        if not _keeps_outputs(run.unit, bound):
            yield Generation(event, name, run)


def _carried(file: SourceFile, event: model.Event) -> str:
    """`state` of `out, state = model(x, state)` in a loop that binds it nowhere else and cuts nothing."""
    node, loop = event.node, event.loop
    if loop is None or loop.comprehension or not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return ""
    passed = {n for one in model.given(node.value)[bool(node.value.args) :] for n in _names_of(one)}
    targets = model.targets_of(node)
    name = next((t.id for t in targets if isinstance(t, ast.Name) and t.id in passed), "")
    # Of one that is bound alone no output is known.
    if len(targets) < 2 or not name or not goes_on(event, name):
        return ""
    code = re.sub("#.*", "", loop_text(file, loop))
    return "" if _CUTS.search(code) or f"{name}.data" in code else name


def goes_on(event: model.Event, name: str) -> bool:
    """Whether each turn of a loop gets a name from the turn before, and the first from before the loop."""
    unit, loop = event.unit, event.loop
    if unit.home(name) is not unit or loop is None:
        return False
    if _FEW.fullmatch(ast.unparse(getattr(loop.node, "iter", event.node))):
        return False
    others = [b for b in unit.bindings[name] if b is not event]
    before = name in unit.parameters or any(b.index < event.index for b in others)
    return before and not any(b.inside(loop) for b in others)


def _names_of(node: ast.expr) -> list[str]:
    """The variables that an argument is, alone or in a tuple."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [part.id for part in parts if isinstance(part, ast.Name)]


def _names_given(call: ast.AST) -> set[str]:
    return {name for one in model.given(call) for name in _names_of(one)}  # type: ignore[arg-type]


def _run_within(
    file: SourceFile, callee: model.Unit, call: model.Event, event: model.Event, name: str
) -> model.Event | None:
    """The run of a model that gives a function's state: it is given the function's parameter, and what it gives is
    returned as it is, in the place of the name."""
    place = [model.terminal(t) if isinstance(t, ast.Name) else "" for t in model.targets_of(event.node)].index(name)
    returned = {_element(value, place) for value, _ in callee.returned}
    state = returned.pop() if len(returned) == 1 else ""
    if not state or _CUTS.search(file.text_of(callee)):
        return None
    passed = {p for p in callee.given_parameters for one in file.passed(call, callee, p) if name in _names_of(one)}
    nodes = [b.node for b in callee.bindings.get(state, ()) if len(model.targets_of(b.node)) > 1]
    runs = filter(None, (callee.call_of(getattr(node, "value", None)) for node in nodes))
    return next((run for run in runs if passed & _names_given(run.call)), None)


def _element(value: ast.expr | None, place: int) -> str:
    """The variable in one place of what is returned; empty for anything else."""
    elements = value.elts if isinstance(value, ast.Tuple) else []
    element = elements[place] if place < len(elements) else None
    return element.id if isinstance(element, ast.Name) else ""


def _runs_model(file: SourceFile, run: model.Event) -> bool:
    """Whether a call runs a module, by its making or by what else is done to what has its name."""
    forwards, found = file.gradients.forwards, file.roles.of(run.call.func, run.unit)
    if found:
        return forwards.runs_module(run.call, run.unit) and file.gradients.carries(run.node, run) != "no"
    if file.callee(run) is not None:
        return False
    name = re.escape(model.terminal(run.call.func))
    begins = re.search(rf"\b{name}\.(init|zero|initial|begin)_?(hidden|state|cell)s?\(", file.text, re.IGNORECASE)
    return begins is not None or forwards.used_as_module(run.call.func)


def _keeps_outputs(unit: model.Unit, bound: ast.AST) -> bool:
    """Whether a unit keeps, returns or sends backward what a run gives beside the state, with its graph. The state is
    what the run is given too, or the last."""
    targets = model.targets_of(bound)
    if not all(isinstance(t, ast.Name) for t in targets):
        return True
    passed = _names_given(bound.value)  # type: ignore[attr-defined]
    state = next((t.id for t in targets if t.id in passed), model.terminal(targets[-1]))  # type: ignore[attr-defined]
    kept = {t.id for t in targets if isinstance(t, ast.Name)}
    # Nothing says that tokens are written; it may be the pass of a training.
    if not any(_ends(e.node, kept - {state}) for e in unit.events):
        return True
    before = 0
    # What is bound from an output is one, too.
    while len(kept) != before:
        before = len(kept)
        for node in (e.node for e in unit.events if e.node is not bound):
            if _leaves(node, kept, state):
                return True
            kept.update(_bound_from(node, kept))
    return False


def _ends(node: ast.AST, kept: set[str]) -> bool:
    """Whether an event makes numbers or indices of one of some values."""
    if isinstance(node, ast.Call) and (model.terminal(node) in _ENDING or model.terminal(node) in INDICES):
        return bool(model.names_in(node) & kept)
    reads = (n for n in model.walk(node) if model.is_attribute(n, "data"))
    return any(model.names_in(n) & kept for n in reads)


def _leaves(node: ast.AST, kept: set[str], state: str) -> bool:
    """Whether an event puts one of some values somewhere, with its graph; the state may be returned as it is."""
    if isinstance(node, ast.Call):
        on = model.receiver(node)
        values = [*model.given(node), *([on] if on is not None else [])]
        return model.terminal(node) in _KEEPING and any(_uncut(one, kept) for one in values)
    if isinstance(node, (ast.Return, ast.Yield)):
        elements = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return any(_uncut(one, kept) and not model.is_name(one, state) for one in elements)
    stored = isinstance(node, (ast.Assign, ast.AugAssign)) and any(
        not isinstance(t, ast.Name) for t in model.targets_of(node)
    )
    return stored and _uncut(node.value, kept)  # type: ignore[attr-defined]


def _bound_from(node: ast.AST, kept: set[str]) -> set[str]:
    """The variables that a binding gives one of some values, with its graph."""
    source = node.iter if isinstance(node, (ast.For, ast.comprehension)) else getattr(node, "value", None)
    if not isinstance(node, (ast.Assign, ast.AugAssign, ast.For, ast.comprehension)) or not _uncut(source, kept):
        return set()
    indices = model.terminal(source) in INDICES
    return {t.id for n, t in enumerate(model.targets_of(node)) if isinstance(t, ast.Name) and not (indices and n == 1)}


def _uncut(node: ast.AST | None, kept: set[str]) -> bool:
    """Whether an expression's value has the graph of one of some variables."""
    if node is None or isinstance(node, (ast.Constant, ast.Compare, ast.JoinedStr)):
        return False
    if isinstance(node, ast.Name):
        return node.id in kept
    if isinstance(node, ast.Attribute) and node.attr in _NO_GRAPH:
        return False
    if isinstance(node, ast.Call) and model.terminal(node) in _ENDING:
        return False
    if isinstance(node, ast.Subscript) and takes_indices(node):
        return False
    return any(_uncut(one, kept) for one in ast.iter_child_nodes(node))
