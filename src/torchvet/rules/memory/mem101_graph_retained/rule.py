"""MEM101: a tensor kept across steps still owns an autograd graph with its saved tensors."""

from __future__ import annotations

import ast
import re

from torchvet.analysis import growth_of
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.memory import _lasting, _stores
from torchvet.rules.memory._graphs import computes_loss, goes_backward, own_graph, passed_graphs
from torchvet.rules.memory._lineage import lineage
from torchvet.rules.memory._meters import given_with_graphs
from torchvet.rules.memory._updates import ADVICE, UPDATED, line_of_update, update_fix
from torchvet.rules.memory.fixes.fresh_defaults import made_in_each_call
from torchvet.rules.memory.fixes.stored_values import detached, stored_with
from torchvet.rules.shared import bounds, growth_rule, snapshot_rule
from torchvet.rules.shared.number_format import count, per_step, size
from torchvet.source.model import Event, destinations, edits, terminal, torch_names, value_bound


class GraphRetained(growth_rule.GrowthRule):
    """A tensor kept across steps still owns an autograd graph with its saved tensors."""

    severity = "error"
    words = (".backward(", ".eval()", "manual_backward")

    specificity = 1
    bounded_matters = True

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """A good part of what grows was saved by autograd graphs: detaching frees that part. Or a graph gets longer
        that saves next to nothing, as that of an average."""
        saved = growth.bytes_per_step > 0 and growth.graph_per_step >= _WORTH_CUTTING * growth.bytes_per_step
        # A node in every second step: what grows by fewer is a count's chance.
        longer = bool(growth.carrier_ops) and growth.nodes_per_step >= 0.5
        return saved or (longer and not (growth_rule.of_numbers(growth) and not self._is_updated(growth, recording)))

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Graphs that are kept to the end, and those that were kept for long before the store was emptied."""
        for growth in growth_of(rank).growths:
            if self.recognises(growth, recording) and not self._is_needed(growth, recording):
                yield self.finding(growth, rank, recording)
        for growth in growth_of(rank).dropped:
            # What is carried on is MEM103's; an evaluation's variables die at its end by themselves.
            store = None if growth.carrier_ops or growth.kind == "evaluation" else self.store(growth, recording)
            if store is None or not self.recognises(growth, recording):
                continue
            if goes_backward(store, recording) is False:
                yield self.finding(growth, rank, recording)

    def _is_needed(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """Whether the text shows a backward pass through what is kept, and the line that empties it in time: it is
        the same as what the run has seen dropped, where the last look came before that."""
        bound, store = bounds.bound_of(growth, recording), self.store(growth, recording)
        if store is None or bound is None or bound.bytes is None:
            return False
        return goes_backward(store, recording) is True

    def _is_updated(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        return line_of_update(growth, self.store(growth, recording)) is not None

    def location(self, growth: kit.Growth, store: kit.Store | None, recording: kit.Recording) -> kit.Location | None:
        """Of what is updated in place the line that does so."""
        line = line_of_update(growth, store)
        return growth_rule.location_of(line) if line is not None else super().location(growth, store, recording)

    def grade(self, growth: kit.Growth, recording: kit.Recording) -> kit.Severity:
        """By its nodes too, where they are what grows: all of them are the fault's."""
        # The forecast of tensors' bytes would take forever to end memory.
        end = growth_rule.exhausted_by_nodes(growth, recording) if growth_rule.nodes_outweigh(growth) else None
        if end is not None and bounds.bound_of(growth, recording) is None:
            return grading.of_growth(growth.last_step, end)
        return super().grade(growth, recording)

    def message(self, growth: kit.Growth, recording: kit.Recording) -> str:
        """Nodes, where there is next to nothing else."""
        if not growth_rule.nodes_outweigh(growth):
            return super().message(growth, recording)
        nodes, number = growth.nodes_per_step, count(growth.nodes_per_step)
        longer = f"autograd graphs of {number} nodes more"
        if growth.carrier_ops:
            longer = f"an autograd graph that gets {number} nodes longer"
        return (
            f"{growth_rule.keeping(growth)} {longer} every {per_step(growth.kind)}: about "
            f"{size(records.base.NODE_BYTES * nodes)} of host memory, and {size(growth.bytes_per_step)} of tensors"
        )

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Whether one value's graph gets longer or one more graph is kept each step."""
        name = growth.holding.name
        nodes = count(growth.nodes_per_step)
        # First: an update in place has no store to change.
        if line_of_update(growth, store) is not None:
            return (
                f"{name} is changed in place with gradients on, by what has a graph or requires gradients: its own "
                f"graph gets {nodes} nodes longer each step"
            )
        if growth.carrier_ops:
            return (
                f"{name} is computed from its own last value, so its autograd graph gets {nodes} nodes longer each step"
            )
        own = growth.direct_per_step
        rest = f"; {size(own)} are the stored tensors themselves" if own > growth.graph_per_step / 4 else ""
        return (
            f"what is stored in {name} still owns its autograd graph: {nodes} nodes each step, whose saved tensors no "
            f"backward pass has freed{rest}"
        )

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Detach at the store, or update without a graph."""
        if line_of_update(growth, store) is not None:
            return f"{ADVICE}: what it is updated with is then no part of a graph, and the values are the same"
        # `.detach()` of a tuple is no advice.
        if kind := growth_rule.no_tensor(growth, store):
            return (
                f"put numbers or detached tensors in: `.item()` or `.detach()` of what each {kind} holds, before it "
                f"goes into {growth.holding.name}"
            )
        name, container = growth.holding.name, growth.holding.container
        if store is None:
            return (
                f"no line of the program stores into {name}: give what fills it `.item()` or `.detach()` of what it is "
                "given now, or empty it between steps"
            )
        if store.kind in ("assign", "setattr") and container in ("tuple", "list", "dict") and growth.carrier_ops:
            return f"cut the graph between steps: `{name} = {growth_rule.detached_as(name, container)}`"
        value = growth_rule.closed(store.value) if store.value else "the value"
        return (
            f"store a number or a detached tensor: `{value}.item()` for a scalar, `{value}.detach()` for a tensor; or "
            "compute it under `torch.no_grad()` if it is only logged"
        )

    def about(self, growth: kit.Growth, store: kit.Store | None) -> kit.About:
        """Whether a line in place is what makes the graph longer: it has a fix of its own."""
        return UPDATED if line_of_update(growth, store) is not None else kit.NOTHING_MORE

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """Detach what is stored, or update it without a graph; a default made in each call."""
        return made_in_each_call(file, finding) or update_fix(file, finding) or stored_with(file, finding, "detach()")

    def fixes_seen(self, finding: kit.Finding, file: kit.SourceFile, recording: kit.Recording) -> kit.Edits:
        """Detach what is stored, as far as the run has seen what that is, or update it without a graph."""
        return made_in_each_call(file, finding) or update_fix(file, finding) or detached(file, finding, recording)

    def in_snapshot(self, snapshot: kit.SnapshotMemory) -> kit.Findings:
        """Several lines of a forward pass whose blocks stay, step after step: what a graph saved."""
        from torchvet.snapshots.growth import keeps_graph

        for memory in snapshot.devices:
            growth = memory.growth
            kept = [leak for leak in growth.leaks if keeps_graph(leak, growth.leaks)] if growth else []
            if growth and kept:
                yield snapshot_rule.leaking(
                    self,
                    memory,
                    kept,
                    growth,
                    cause=f"{len(kept)} lines of the forward pass each leave memory behind in every step: together "
                    "they are what an autograd graph saves, and a name keeps the graph",
                    advice="look for what takes in a loss or an output at every step (a list, a sum, an attribute) and "
                    "store `.item()` or `.detach()` of it; `torchvet run` names it",
                )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A value with a graph of its own goes into what outlives the pass, and into no backward."""
        for store in _lasting.stores(file):
            carries = file.gradients.carries(store.value, store.event)
            if carries == "yes":
                yield from self._stored(file, store)
            elif carries == "unknown":
                # It may be a parameter, whose callers are asked.
                yield from self._passed(file, store)

        for store in given_with_graphs(file):
            value, holder = file.segment(store.value), store.name
            # What goes backward leaves its nodes, and no more: MEM112's.
            if not _goes_backward(file, store):
                yield self._given(file, store, value, holder)

    def _stored(self, file: kit.SourceFile, store: _stores.Stored) -> kit.Findings:
        graph = own_graph(file, store.value, store.event)
        if graph is None or not _grows_with(graph, store) or _is_of_one_pass(file, store):
            return
        if not _lasting.surely_recording(file, store.event):
            return
        flow = _kept(file, store)
        # Of 17 kept losses that were read in real code none was a leak: most go into a backward later.
        if not (flow.backward or flow.escaped) and (not flow.loose or _evaluates(file, store.event)):
            # Safe only where each use of the holder is seen.
            yield self._suspected(file, store, graph, not flow.loose and _read_here(file, store))

    def _given(self, file: kit.SourceFile, store: _stores.Stored, value: str, holder: str) -> kit.Finding:
        closed_value = edits.operand(file, store.value)
        return self.suspect(
            file,
            store.event,
            f"{holder} is given {value} with its autograd graph, and elsewhere numbers",
            severity="info",
            cause=f"what {holder} keeps of {value}, or adds up, refers to the graph of each pass with all that it has "
            f"saved; {holder} is of a class of another file, which may take the number itself",
            advice=f"give it the number, `{closed_value}.item()`, as the others, or `{closed_value}.detach()`",
            edits=[edits.replace(file, store.value, f"{closed_value}.detach()")],
            about=kit.About(operands=(holder,)),
        )

    def _suspected(self, file: kit.SourceFile, store: _stores.Stored, graph: Event, sure: bool) -> kit.Finding:
        value, holder = file.segment(store.value), file.segment(store.root)
        inner = _tensor_in(file, store.value, store.event)
        closed_value = edits.operand(file, inner)
        until = "as long as the program runs" if store.lasting else f"until {holder} is freed"
        return self.suspect(
            file, store.event, f"{holder} keeps the autograd graph of every {value}: no backward goes through it",
            # An error only where nothing on the way is unknown.
            severity="error" if _is_proven(file, store) else "warning",
            cause=f"{value} is computed with gradients on and refers to its graph; the graph keeps its saved tensors "
            f"{until}, one more graph each pass",
            advice=f"keep `{closed_value}.item()` {'' if inner is store.value else 'in it '}if it is a scalar, "
            "`.detach()` if a tensor is wanted, or compute it under `torch.no_grad()`",
            edits=_detached(file, store), safe=sure, about=kit.About(operands=(holder,)),
            related=[self.also(file, "computed", graph, file.segment(graph.node))][: graph.line != store.event.line],
        )  # fmt: skip

    def _passed(self, file: kit.SourceFile, store: _stores.Stored) -> kit.Findings:
        """A caller that passes a value with its graph to what others pass numbers to."""
        found = passed_graphs(file, store.value, store.event)
        if not found:
            return
        flow = _kept(file, store)
        if flow.backward or flow.escaped or flow.loose:
            return
        for value, caller, graph in found:
            # A single call at the file's own level keeps one graph and no more.
            if _lasting.surely_recording(file, caller) and (caller.loop is not None or not caller.unit.is_module):
                yield self._suspected(
                    file, _stores.Stored(caller, store.holder, value, store.loop, store.lasting), graph, sure=False
                )


def _goes_backward(file: kit.SourceFile, store: _stores.Stored) -> bool:
    """Whether a backward of the file goes through a value that has a name."""
    flow = destinations.Destinations(file)
    for binding in _lasting.bindings_at(store.value.id, store.event) if isinstance(store.value, ast.Name) else ():
        flow.bound_by(binding)
    return flow.follow().backward


def _tensor_in(file: kit.SourceFile, value: ast.expr, event: Event) -> ast.expr:
    """What has the graph in a tuple or a list that is written down: they have no `.item()`."""
    found = next((e for e in getattr(value, "elts", ()) if file.gradients.carries(e, event) == "yes"), None)
    return value if found is None else _tensor_in(file, found, event)


def _grows_with(graph: Event, store: _stores.Stored) -> bool:
    """Whether each round of the loop in which the holder grows makes a graph anew."""
    if store.loop is None:
        return True
    if graph.unit is not store.event.unit:
        # A function that is given what its caller computed makes no graph itself, however often it goes round.
        return not any(caller.unit is graph.unit for caller in graph.unit.file.callers(store.event.unit))
    return graph.inside(store.loop)


def _is_of_one_pass(file: kit.SourceFile, store: _stores.Stored) -> bool:
    """Whether the holder is a function's own and its loop runs no model: parts of one pass, gone with the function."""
    unit, loop = store.event.unit, store.loop
    root = store.root
    if loop is None or unit.is_module or not isinstance(root, ast.Name) or unit.home(root.id) is not unit:
        return False
    inside = (e for e in unit.events if isinstance(e.node, ast.Call) and e.inside(loop))
    return not any(file.gradients.forwards.runs_module(e.call, unit) or file.callee(e) is not None for e in inside)


def _kept(file: kit.SourceFile, store: _stores.Stored) -> destinations.Destinations:
    """Where the holder, and a value that has a name, end up."""
    flow = destinations.Destinations(file)
    # A sum is bound anew at each store: its own value goes on from there.
    if store.adds:
        flow.bound_by(store.event)
    flow.held_by(store.holder, store.event)
    for node in [store.value] if isinstance(store.value, ast.Name) else []:
        for binding in _lasting.bindings_at(node.id, store.event):
            flow.bound_by(binding)
    return flow.follow()


def _is_proven(file: kit.SourceFile, store: _stores.Stored) -> bool:
    """Whether all that made the value is seen: what a module from elsewhere gives may be labels or numbers. What grows
    once an epoch grows slowly."""
    # Foreign: a library's module may give numbers.
    return not (_once_an_epoch(store) or lineage(file, store.value, store.event).foreign)


def _once_an_epoch(store: _stores.Stored) -> bool:
    """Whether the loop right around the store goes over epochs: it grows, and slowly."""
    loop = store.event.loop.node if store.event.loop is not None else None
    target = loop.target if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    return isinstance(target, ast.Name) and re.match(r"ep($|och)|e$", target.id) is not None


def _evaluates(file: kit.SourceFile, event: Event) -> bool:
    """Whether the function itself puts a model into evaluation mode: what it returns is a figure."""
    return any(e.unit is event.unit for e in file.calls("eval"))


def _read_here(file: kit.SourceFile, store: _stores.Stored) -> bool:
    """Whether a holder that other files can reach is used in this one, so that its use is seen."""
    root = store.root
    unit = store.event.unit
    if isinstance(root, ast.Name) and unit.home(root.id) is unit and not unit.is_module:
        return True
    # By text: a line that only starts it empty is no use.
    lines = file.lines_with(terminal(root))
    return any(line != store.event.line and not _FRESH.search(file.lines[line - 1]) for line in lines)


_FRESH = re.compile(r"=\s*(\[\]|\{\}|\[\], |0(\.0)?\s*$|None\s*$|[\w.]*(list|dict|deque)\()")
"""A line that starts something empty."""


def _detached(file: kit.SourceFile, store: _stores.Stored) -> list[kit.Edit]:
    """Detaching keeps it a tensor, so that whatever is done with it later still works; only where it surely is one."""
    value = store.value
    if terminal(store.event.node) == "extend" or value.lineno != value.end_lineno:
        return []
    if not _is_tensor(file, value, store.event):
        return []
    return [edits.called_on(file, value, "detach()")]


def _is_tensor(file: kit.SourceFile, node: ast.expr, event: Event, depth: int = 0) -> bool:
    """Whether an expression is one tensor, rather than a number, a list, or whatever a module returns."""
    if isinstance(node, ast.BinOp):
        # A tensor with a number gives a tensor.
        return any(_is_tensor(file, side, event, depth) for side in (node.left, node.right))
    if isinstance(node, ast.Name):
        found = [(value_bound(b.node, node.id), b) for b in _lasting.bindings_at(node.id, event)]
        return depth < 4 and bool(found) and all(v is not None and _is_tensor(file, v, b, depth + 1) for v, b in found)
    if not isinstance(node, ast.Call) or file.gradients.forwards.runs_module(node, event.unit):
        return False
    made = computes_loss(file, node, event.unit) or file.dotted(node.func).startswith("torch.nn.functional.")
    return made or _gives_tensor(node)


def _gives_tensor(call: ast.Call) -> bool:
    """Whether a call is of a method of tensors that gives one."""
    name = terminal(call)
    several = name in ("chunk", "split", "unbind") or (name in ("max", "min") and bool(call.args))
    return isinstance(call.func, ast.Attribute) and name in torch_names.TENSOR_METHODS and not several


_WORTH_CUTTING = 0.25
"""Share of the growth that only the graph holds, from which on the graph is the first thing to say."""
