"""MEM112: losses kept after backward hold graph nodes in host memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from torchvet.rules.kit import About, Edits, Finding, Findings, Growth, Recording, Severity, SourceFile, Store, records
from torchvet.rules.memory._lasting import kept_in_steps
from torchvet.rules.memory._lineage import Lineage, lineage
from torchvet.rules.memory._meters import given_with_graphs
from torchvet.rules.memory._stores import Stored
from torchvet.rules.memory._updates import line_of_update
from torchvet.rules.memory.fixes.stored_values import detached, stored_with
from torchvet.rules.memory.mem109_graph_kept_needlessly.rule import root_of
from torchvet.rules.shared import bounds, growth_rule
from torchvet.rules.shared.number_format import count, per_step, size
from torchvet.source.model import Event, Unit, edits, is_name, receiver, targets_of, terminal, value_for


class GraphNodesAccumulate(growth_rule.GrowthRule):
    """Losses kept after backward hold graph nodes in host memory."""

    severity = "info"
    words = ("backward",)

    specificity = 1

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """Graph nodes pile up, and next to no tensor memory with them. A value that carries its graph on is a sum of
        losses only if it is a number: averages of weights go through no backward. What is updated in place is
        MEM101's."""
        if line_of_update(growth, self.store(growth, recording)) is not None:
            return False
        piles_up = growth.tensors_per_step > 0 or (bool(growth.carrier_ops) and growth_rule.of_numbers(growth))
        # Where tensors weigh more it is MEM101's.
        return piles_up and growth.nodes_per_step >= 0.5 and growth_rule.nodes_outweigh(growth)

    def grade(self, growth: Growth, recording: Recording) -> Severity:
        """By its tensors, as a rule; by its nodes where they are measured to be many."""
        end = growth_rule.exhausted_by_nodes(growth, recording)
        # What has a bound is graded by that.
        if bounds.bound_of(growth, recording) is None and end is not None and end - growth.last_step <= _SOON:
            return "warning"
        return super().grade(growth, recording)

    def message(self, growth: Growth, recording: Recording) -> str:
        """Nodes, and the memory that these take at the least."""
        nodes = growth.nodes_per_step
        return (
            f"{growth_rule.keeping(growth)} {count(nodes)} autograd nodes more alive every {per_step(growth.kind)}: "
            f"about {size(records.base.NODE_BYTES * nodes)} of host memory, and "
            f"{size(growth.bytes_per_step)} of tensors"
        )

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Backward freed the saved tensors, not the nodes."""
        if growth.carrier_ops:
            return (
                f"{growth.holding.name} is computed from its own last value: backward freed what the graphs of all "
                "steps saved, not their nodes, which stay in host memory and keep the parameters alive too"
            )
        return (
            f"what is stored in {growth.holding.name} has been through backward, which freed its saved tensors; the "
            "graph's nodes stay, in host memory, and keep the parameters alive too"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Store the number."""
        if kind := growth_rule.no_tensor(growth, store):
            return (
                f"put numbers or detached tensors in: `.item()` or `.detach()` of what each {kind} holds, before it "
                f"goes into {growth.holding.name}"
            )
        value = growth_rule.closed(store.value) if store is not None and store.value else "loss"
        if not growth_rule.of_numbers(growth):
            return f"store it without its graph: `{value}.detach()`"
        return f"store the number: `{value}.item()`"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Detach what is stored."""
        return stored_with(file, finding, "detach()")

    def fixes_seen(self, finding: Finding, file: SourceFile, recording: Recording) -> Edits:
        """Detach what is stored, as far as the run has seen what that is."""
        return detached(file, finding, recording)

    def in_file(self, file: SourceFile) -> Findings:
        """A loss that went through backward in this step is stored as it is, in something that outlives the step."""
        # With `retain_graph=True` the saved tensors stay as well: MEM101's.
        backwards = [e for e in file.calls("backward", "manual_backward") if not e.call.keywords]
        losses = _Losses(file)
        for kept in kept_in_steps(file):
            one = _spent(file, kept, backwards) if backwards and not _is_bounded(file, kept) else None
            # What is computed under `no_grad` has no graph; what is kept as it is has its own.
            computed = one is not None and (kept.adds or one.value is not kept.value)
            if one is not None and not (computed and file.gradients.enabled(kept.event) == "no"):
                yield self._suspected(file, one, losses.need(kept))

        for one in given_with_graphs(file):
            if _went_backward(file, one, backwards):
                yield self._given(file, one)

    def _given(self, file: SourceFile, one: Stored) -> Finding:
        value, holder = file.segment(one.value), one.name
        return self.suspect(
            file,
            one.event,
            f"{holder} is given {value} with its graph nodes, and elsewhere numbers",
            cause=f"backward freed what the graph of {value} saved, not its nodes: they stay, in host memory, with "
            f"what {holder} keeps of it or adds up; its class is in another file, and may take the number itself",
            advice=f"give it the number, `{value}.item()`, as the others",
            edits=[edits.replace(file, one.value, f"{value}.detach()")],
            about=About(operands=(holder,)),
        )

    def _suspected(self, file: SourceFile, kept: Stored, needed: bool) -> Finding:
        value = file.segment(kept.value)
        return self.suspect(
            file,
            kept.event,
            f"{kept.name} keeps the graph nodes of every {value}, in host memory",
            node=kept.event.statement,
            cause=f"backward freed what the graph of {value} saved, not its nodes: they stay as long as {value} does, "
            "and the parameters with them",
            advice=f"keep `{value}.item()`, or `{value}.detach()` where waiting for the device would cost time",
            # Not `.item()`, which waits for the device at every step, and a number has no methods of tensors.
            edits=() if needed else [edits.replace(file, kept.value, f"{value}.detach()")],
            safe=not needed,
            about=About(operands=(kept.name,)),
        )


_SOON = 100_000
"""Steps: a long training."""
_BACKWARDS = ("backward", "manual_backward", "grad")


def _is_bounded(file: SourceFile, kept: Stored) -> bool:
    """Whether something takes out of the list again, or it holds only so many."""
    name = kept.name
    return "maxlen" in file.text or file.mentions(f"del {name}[", f"{name}.pop", f"{name} = {name}[", f"{name}[:] =")


_GIVING_ON = frozenset(("cpu", "clone", "mean", "sum", "float", "double", "squeeze", "view", "reshape", "to"))
"""Methods whose result has the graph of what they are called on."""


def _named(kept: Stored) -> Iterator[Stored]:
    """A store for each variable, or result, whose graph the stored value has: `loss` of `loss * len(x)` and of
    `loss.cpu()`."""
    waiting = [kept.value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            yield replace(kept, value=node)
        elif isinstance(node, ast.BinOp):
            waiting += [node.right, node.left]
        elif isinstance(node, ast.UnaryOp):
            waiting.append(node.operand)
        elif isinstance(node, ast.Call):
            on = receiver(node)
            if terminal(node) in _GIVING_ON and on is not None:
                waiting.append(on)
            else:
                yield replace(kept, value=node)


def _returned(file: SourceFile, kept: Stored, backwards: list[Event]) -> bool:
    """Whether the value comes from a function of this file that has sent it backward before it returns it."""
    call, place, at = _origin(kept)
    own = at.unit.call_of(call) if call is not None else None
    callee = file.callee(own) if own is not None else None
    if callee is None or not at.inside(kept.event.loop):
        return False
    parts = [(_element(value, place), e) for value, e in callee.returned if value is not None]
    return bool(parts) and all(
        isinstance(part, ast.Name) and _went_backward(file, replace(kept, event=e, value=part), backwards)
        for part, e in parts
    )


def _origin(kept: Stored) -> tuple[ast.expr | None, int | None, Event]:
    """The expression that a stored value is, or that its name is bound to, with its place in what that gives and the
    event."""
    name = kept.value.id if isinstance(kept.value, ast.Name) else ""
    bound = _binding(name, kept.event) if name else None
    if bound is None or not isinstance(bound.node, ast.Assign):
        return None if name else kept.value, None, kept.event
    targets = targets_of(bound.node)
    place = [terminal(t) for t in targets].index(name)
    return bound.node.value, None if value_for(bound.node, targets[place]) is not None else place, bound


def _element(value: ast.expr, place: int | None) -> ast.expr | None:
    if place is None:
        return value
    elements = value.elts if isinstance(value, ast.Tuple) else []
    return elements[place] if place < len(elements) else None


def _spent(file: SourceFile, kept: Stored, backwards: list[Event]) -> Stored | None:
    """The first name in what is kept whose value has gone backward in its step."""
    # Only what has a name can be found in a backward.
    went = (x for x in _named(kept) if _went_backward(file, x, backwards) or _returned(file, x, backwards))
    return next(went, None)


def _went_backward(file: SourceFile, kept: Stored, backwards: list[Event]) -> bool:
    """Whether a backward without arguments that keep the graph went through the variable in the same pass."""
    if not isinstance(kept.value, ast.Name):
        return False
    same = [e for e in backwards if e.unit is kept.event.unit and e.loop is kept.event.loop]
    for event in same:
        if event.excludes(kept.event) or not kept.event.sure_after(event):
            continue
        root = root_of(event)
        bound = _binding(kept.value.id, kept.event)
        # The backward may come after the store, as long as the name is the same value's.
        if bound is None or (event.index > kept.event.index and _binding(kept.value.id, event) is not bound):
            continue
        if is_name(root, kept.value.id) and _binding(root.id, event) is bound:
            return True
        if _is_a_loss(file, kept, bound) and bound in lineage(file, root, event).graph:
            return True
    return False


def _is_a_loss(file: SourceFile, kept: Stored, bound: Event) -> bool:
    """Whether a part of the loss that went backward is one itself, and not a count that came with it."""
    assert isinstance(kept.value, ast.Name)
    targets = [t for t in targets_of(bound.node) if terminal(t) == kept.value.id]
    alone = isinstance(bound.node, ast.Assign) and all(value_for(bound.node, t) is not None for t in targets)
    roles = file.roles.of(kept.value, kept.event.unit)
    return alone and ("loss" in roles or (not roles and file.roles.hinted("loss", kept.value)))


def _binding(name: str, event: Event) -> Event | None:
    before = [b for b in event.unit.bindings.get(name, ()) if b.index < event.index and not b.excludes(event)]
    return before[-1] if before else None


class _Losses:
    """What goes through backward in a file: where it comes from is found once, however many stores ask."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._traced: dict[Event, Lineage] = {}

    def need(self, kept: Stored) -> bool:
        """Whether what keeps the losses may reach a backward, or is handed on to where nothing is seen."""
        name, unit = kept.name, kept.event.unit
        root = name.split(".")[-1].split("[")[0]
        for event in self._events(None if "." in name or unit.is_module else unit):
            found = self._of(event)
            unknown = found.loose | found.carried
            # By name: what could not be followed may be it.
            if {name, root} & unknown or any(one in one.unit.bindings.get(root, ()) for one in found.graph):
                return True
        return False

    def _events(self, unit: Unit | None) -> list[Event]:
        if unit is None:
            return list(self._file.calls(*_BACKWARDS))
        return [event for called in _BACKWARDS for event in unit.calls.get(called, ())]

    def _of(self, event: Event) -> Lineage:
        if event not in self._traced:
            self._traced[event] = lineage(self._file, root_of(event), event)
        return self._traced[event]
