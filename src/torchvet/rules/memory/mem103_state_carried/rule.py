"""MEM103: recurrent state is carried to the next step together with its graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchvet.analysis import growth_of
from torchvet.formatting import count
from torchvet.rules import kit
from torchvet.rules.memory import _lasting
from torchvet.rules.memory._crashes import crashed
from torchvet.rules.memory._generation import Generation, generations, goes_on
from torchvet.rules.memory.fixes.detached_state import CONTAINERS, state_cut
from torchvet.rules.shared import growth_rule, step_code, training_loops
from torchvet.source.model import ClassModel, Event, destinations, given, is_set, name_set, targets_of, terminal
from torchvet.source.model.forwards import RECURRENT


class StateCarried(growth_rule.GrowthRule):
    """Recurrent state is carried to the next step together with its graph."""

    severity = "error"
    words = (".backward(", ".eval()", "init_hidden", "multinomial")

    specificity = 2
    bounded_matters = True

    fix_may_change_losses = True

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """Cut the state after the backward of its step, or where it is computed from its own last value."""
        return state_cut(file, finding)

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A state that a module returns goes into its next run, and nothing cuts its graph in between."""
        # Words that a recurrent program has: the search below is dear.
        if not file.mentions("LSTM", "GRU", "RNN", "hidden", "state,", "state)", "memory"):
            return
        yield from self._computed(file)
        lines = set(_carrying_lines(file))
        told: set[int] = set()
        for finding in self._carried(file, lines):
            told.add(finding.location.line if finding.location is not None else 0)
            yield finding
        for one in generations(
            file, (e for unit in file.units_at(sorted(lines)) for e in unit.events if e.line in lines)
        ):
            if one.event.line not in told and not training_loops.is_test(file):
                yield self._generated(file, one)

    def _generated(self, file: kit.SourceFile, one: Generation) -> kit.Finding:
        name, model = one.name, file.segment(one.run.call.func)
        return self.suspect(
            file,
            one.at,
            f"{name} goes from one turn of {model} into the next with its autograd graph, which gets longer each turn",
            severity="info",
            cause=f"what {model} gives beside {name} goes on without a graph, so that no backward needs it; "
            "gradients are on, unless a caller in another file switches them off",
            advice=f"run the loop under `torch.no_grad()`, or detach {name} in each turn",
            related=[self.also(file, role, e, file.segment(e.node)) for role, e in one.within],
            about=kit.About(operands=(name,)),
        )

    def _carried(self, file: kit.SourceFile, lines: set[int]) -> kit.Findings:
        for unit in file.units_at(sorted(lines)):
            for event in unit.events:
                call = event.node.value if isinstance(event.node, ast.Assign) else None
                if event.line not in lines or not isinstance(call, ast.Call):
                    continue
                if (name := _carried_name(file, event, call)) is not None:
                    yield from self._judged(file, event, name)
                elif (attribute := _carried_attribute(file, event, call)) is not None:
                    yield from self._judged_attribute(file, event, attribute)

    def _judged(self, file: kit.SourceFile, event: Event, name: str) -> kit.Findings:
        called = getattr(event.node, "value", None)
        run = event.unit.call_of(called)
        if run is None or not _lasting.surely_recording(file, run):
            return
        flow = destinations.Destinations(file)
        flow.made_by(run)
        flow.follow()
        # Both faults are one: with a backward it raises or grows, without it only grows.
        if flow.backward:
            backward = _backward_in(file, run)
            if backward is not None:
                # A module of another file may detach the state itself, where this file does not show it.
                known = _gives_graph_on(file, run.call, event)
                yield self._suspected(file, event, name, "error" if known else "warning", _RAISES, backward)
        elif (
            # No backward seen: only where the function surely has none, else silence.
            not flow.escaped
            and not _trains(file, run)
            and (not flow.loose or any(e.unit is run.unit for e in file.calls("eval")))
        ):
            yield self._suspected(
                file, event, name, "warning", "no backward uses the graph, and it gets one step longer each pass", None
            )

    def _judged_attribute(self, file: kit.SourceFile, event: Event, name: str) -> kit.Findings:
        """A module's own attribute: reported only where a loop of this file trains the module."""
        for step in file.steps:
            # Right in the step's loop: with each pass.
            backward = next((e for e in step.effects if e.kind == "backward" and e.at.loop is step.loop), None)
            # Under a condition a pass may go without one, and the state's graph be meant for a later one.
            if step.loop is None or backward is None or backward.event.context.arms:
                continue
            if _runs_method(file, event, step):
                yield self._suspected(file, event, name, "error", _RAISES, backward.event)
                return

    def _computed(self, file: kit.SourceFile) -> kit.Findings:
        """`self.memory = tanh(self.write(cat([self.memory, x])))` of a module that each training step runs."""
        if not file.steps:
            return
        for match in _OWN.finditer(file.text):
            unit = file.unit_at(file.line_of(match.start(1)))
            line = file.line_of(match.start(1))
            for event in unit.events if unit.name in _PASSES else ():
                name = _recomputed(file, event) if event.line == line else None
                if name is not None:
                    yield from self._judged_attribute(file, event, name)

    def _suspected(
        self, file: kit.SourceFile, event: Event, name: str, severity: kit.Severity, effect: str, backward: Event | None
    ) -> kit.Finding:
        function, owner = event.node.value.func, event.unit.method_class()  # type: ignore[attr-defined]
        plain = owner is not None and file.dotted(function).startswith("torch.")
        called = owner.name if plain and owner is not None else file.segment(function)
        cut = f"`{name} = {name}.detach()`, or `tuple(t.detach() for t in {name})` where it is a tuple"
        return self.suspect(
            file,
            event,
            f"{name} goes from one pass of {called} into the next with its autograd graph: {effect}",
            severity=severity,
            cause=f"{name} is bound before the loop and then only by {called} itself, with gradients on",
            advice=f"cut the graph between steps: {cut}"
            if backward is not None
            else f"run the loop under `torch.no_grad()`, or cut the graph between steps: {cut}",
            related=[self.also(file, "backward", e, file.segment(e.node)) for e in (backward,) if e is not None],
            about=kit.About(operands=(name,)),
        )

    def in_recording(self, recording: kit.Recording) -> kit.Findings:
        """State that grows to the end, and state that was carried on for long before it was released."""
        yield from super().in_recording(recording)
        yield from crashed(self, recording)
        for rank in recording.ranks:
            for growth in growth_of(rank).dropped:
                # An evaluation drops its state at its end by itself.
                if growth.kind != "evaluation" and self.recognises(growth, recording):
                    yield self.finding(growth, rank, recording)

    def could_be_measured(self, recording: kit.Recording) -> bool:
        """Also needed: no graph was seen to be carried on for long, at looks too few to judge by."""
        from torchvet.analysis.growth import usable_censuses
        from torchvet.analysis.growth_series import series_of
        from torchvet.analysis.sawtooth import carried_for_long

        carried = any(carried_for_long(series_of(usable_censuses(rank))) for rank in recording.ranks)
        return super().could_be_measured(recording) and not carried

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """A name carries its graph into the next step, through more than sums and averages, or on a module."""
        # Operators between a name's value and its last one: that is what carrying is.
        if growth.graph_per_step < 0.5 * growth.bytes_per_step or not growth.carrier_ops:
            return False
        sums = all(_plain(op) in _ACCUMULATING for op in growth.carrier_ops)
        # A counter of a module is no state that its forward pass goes on from: its graph saves next to nothing.
        return not sums or (growth.holding.on_module and not growth_rule.nodes_outweigh(growth))

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """State goes into the next forward pass with its history."""
        name = growth.holding.name
        ops = " → ".join(_plain(op) for op in growth.carrier_ops[:4])
        return (
            f"{name} goes into the next step's forward pass ({ops}) with the autograd graph of all steps before it: "
            f"{count(growth.nodes_per_step)} nodes more each step"
        )

    def about(self, growth: kit.Growth, store: kit.Store | None) -> kit.About:
        """What a state of several tensors is made of."""
        container = growth.holding.container
        return kit.About(container) if container in CONTAINERS else kit.NOTHING_MORE

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Cut the graph between steps; a tuple has no `.detach()`."""
        name = growth.holding.name
        plain = growth_rule.detached_as(name, growth.holding.container)
        cut = f"`{name} = {plain}`" if plain else f"detach every tensor that {name} holds"
        return f"cut the graph between steps: {cut} (and drop `retain_graph=True` if it was added for this)"


_ACCUMULATING = name_set(
    "Add Sub Mul Div Lerp Maximum Minimum Neg Cat Stack Where CopySlices Clone ToCopy Sum Mean Select Unbind Squeeze "
    "Unsqueeze View UnsafeView Slice Alias Addcmul Addcdiv Pow Expand Index AsStrided Detach"
)
"""Operators that sums, averages and concatenations are made of: a chain of these alone is MEM101's."""


def _plain(op: str) -> str:
    """`AddmmBackward0` → `Addmm`."""
    # C++ nodes of torch's own namespace have `torch::autograd::` before their name.
    return op.split("::")[-1].rstrip("0123456789").removesuffix("Backward")


"""A demonstration of a few passes: its graph stays as short."""
_CALLED = re.compile(r"=[ \t]*[\w.\[\]]+\(")
_WORDS = re.compile(r"[\w.]+")
_LONGEST = 400
"""Characters of a call's arguments on several lines that are looked through."""


def _trains(file: kit.SourceFile, run: Event) -> bool:
    """Whether the function around a run goes backward somewhere: what is not seen to go there may well do."""
    return not run.unit.is_module and any(e.kind == "backward" for e in file.effects(run.unit))


def _carrying_lines(file: kit.SourceFile) -> Iterator[int]:
    """Lines that bind a name to a call that is given it: a look at the text before anything is walked."""
    text = file.text
    for match in _CALLED.finditer(text):
        end = text.find("\n", match.end())
        # A call that goes on in the next line.
        while text[end - 1 : end] in ("(", ",") and end >= 0 and end - match.end() < _LONGEST:
            end = text.find("\n", end + 1)
        given = text[match.end() : end]
        # A state is given beside the input.
        if "," in given:
            bound = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if not set(_WORDS.findall(given)).isdisjoint(_WORDS.findall(bound)):
                yield file.line_of(match.start())


_RAISES = "the next step's backward goes through this step's graph too: it raises, or with retain_graph=True it grows"


def _carried_attribute(file: kit.SourceFile, event: Event, call: ast.Call) -> str | None:
    """`self.state` of `output, self.state = self.rnn(x, self.state)` in a module that never detaches or resets it."""
    owner = event.unit.method_class()
    target = _given_again(event, ast.Attribute, call.args[1:])
    if owner is None or target is None or not _gives_graph_on(file, call, event):
        return None
    others = [e for e, _ in owner.attributes[terminal(target)] if e is not event]
    # Bound elsewhere it may be cut or started afresh.
    once = others and all(e.unit.name == "__init__" for e in others)
    # By text, wherever in the class: a cut under another name is one as well.
    if not once or _cuts(file.text_of(owner), "detach", ".data") or _bound_outside(file, terminal(target)):
        return None
    return ast.unparse(target)


def _given_again(event: Event, kind: type[ast.expr], arguments: Sequence[ast.expr]) -> ast.expr | None:
    """What an assignment binds that its own value is given, the first of a kind."""
    texts = set(map(ast.unparse, arguments))
    return next((t for t in targets_of(event.node) if isinstance(t, kind) and ast.unparse(t) in texts), None)


def _bound_outside(file: kit.SourceFile, attribute: str) -> bool:
    """Whether an attribute is bound, or its value changed in place, by other code than its own object's."""
    # Whoever clears the state between passes cuts its graph too.
    bound = rf"(?<!self)\.{attribute}\b((\[[^\]\n]*\])?\s*=(?!=)|\.(detach_|zero_|fill_))"
    return re.search(bound, file.text) is not None


def _cuts(text: str, *words: str) -> bool:
    """Whether some code has a word of what cuts graphs or starts values afresh."""
    return any(word in text for word in words)


_OWN = re.compile(r"^[ \t]*(self\.(\w+))[ \t]*(?::[^\n=]+)?=(?!=)(?:[^\n]*[(,]\n)*[^\n]*\bself\.\2\b", re.MULTILINE)
"""A line that binds an attribute to something computed from itself."""


_PASSES = ("forward", "step", "update")


def _recomputed(file: kit.SourceFile, event: Event) -> str | None:
    """An attribute that a module computes from its own last value and what has a graph, and that nothing detaches; what
    starts it afresh is `__init__`, a `reset` that no training step calls, or the first pass."""
    node, owner = event.node, event.unit.method_class()
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return None
    target = node.targets[0]
    if owner is None or not isinstance(target, ast.Attribute) or "module" not in file.roles.of_class(owner):
        return None
    if _cuts(file.text_of(owner), "detach", "no_grad", ".data", "register_buffer", "item()"):
        return None
    others = [(e, value) for e, value in owner.attributes[target.attr] if e is not event]
    if file.gradients.carries(node.value, event) != "yes" or not all(_starts(e, v, target.attr) for e, v in others):
        return None
    return None if _started_afresh(file, owner, target.attr) else ast.unparse(target)


def _starts(event: Event, value: ast.expr | None, attribute: str) -> bool:
    """Whether a binding only starts an attribute: in `__init__`, below `if self.x is None`, or as None by a `reset`."""
    tests = (branch.test for branch, _ in event.context.arms if isinstance(branch, ast.If))
    if event.unit.name == "__init__" or any(f"{attribute} is None" in ast.unparse(test) for test in tests):
        return True
    return isinstance(value, ast.Constant) and value.value is None and event.unit.name not in _PASSES


def _runs_method(file: kit.SourceFile, event: Event, step: kit.Step) -> bool:
    """Whether a step's loop calls the method of an event with gradients on, or a module that has its class within."""
    called = any(e.unit is step.unit and e.inside(step.loop) for e in file.callers(event.unit))
    if called and file.gradients.enabled(event) != "no":
        return True
    owner = event.unit.method_class()
    return owner is not None and step_code.runs_module(file, step, owner)


def _started_afresh(file: kit.SourceFile, owner: ClassModel, attribute: str) -> bool:
    """Whether a training step may start the attribute afresh or cut it: by a method, or from outside."""
    # Whatever method binds it beside the pass starts it afresh.
    resets = {e.unit.name for e, _ in owner.attributes[attribute]} - {"__init__", *_PASSES}
    units = {id(step.unit) for step in file.steps}
    if any(id(e.unit) not in units and not e.unit.is_module for e in file.calls(*resets)):
        return True
    called = {terminal(e.node) for step in file.steps for e in training_loops.events_in(step.unit, step.loop)}
    return bool(called & resets) or _cuts(" ".join(called), "detach", "reset") or _bound_outside(file, attribute)


def _carried_name(file: kit.SourceFile, event: Event, call: ast.Call) -> str | None:
    """`hidden` of `output, hidden = model(x, hidden)` in a loop, where the model's code is known to give its graph on
    and nothing else in the loop binds, detaches or resets it."""
    name = terminal(_given_again(event, ast.Name, given(call)[bool(call.args) :]))
    if event.loop is None or not name or not goes_on(event, name):
        return None
    if not (_gives_graph_on(file, call, event) or _retained_in(event, call)):
        return None
    # "detach" in a comment is no cut.
    code = re.sub("#.*", "", training_loops.loop_text(file, event.loop))
    return None if _cuts(code, "detach", "repackage", "no_grad") else name


def _retained_in(event: Event, call: ast.Call) -> bool:
    """Whether a module runs in a loop with `backward(retain_graph=True)`: the answer to the error of carried state."""
    if not event.unit.file.gradients.forwards.runs_module(call, event.unit):
        return False
    calls = event.unit.calls.get("backward", ())
    # Who wrote that flag has met the error.
    return any(e.loop is event.loop and is_set(e.call, "retain_graph") for e in calls)


def _gives_graph_on(file: kit.SourceFile, call: ast.Call, event: Event) -> bool:
    """Whether a call runs a recurrent layer, or a module of this file that does not detach."""
    forwards = file.gradients.forwards
    if forwards.kind(call.func, event.unit) in RECURRENT:
        return True
    known = forwards.class_run(call, event.unit) if forwards.runs_module(call, event.unit) else None
    if known is None or known.method("forward") is None:
        return False
    return not _cuts(file.text_of(known), "detach", "no_grad", ".data")


def _backward_in(file: kit.SourceFile, run: Event) -> Event | None:
    """A backward that every pass of the loop around the run makes, right in that loop."""
    for effect in file.effects(run.unit):
        each_time = all(arm in run.context.arms for arm in effect.arms)
        if each_time and effect.kind == "backward" and effect.at.loop is run.loop:
            return effect.at
    return None
