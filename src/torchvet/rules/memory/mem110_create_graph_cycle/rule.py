"""MEM110: backward(create_graph=True) ties a tensor and its gradient into a cycle that no collector sees."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.memory.fixes.gradients import copys_gradients_freed, is_freed, leafs_gradient_freed
from torchvet.rules.shared import growth_rule, unreachable_storages
from torchvet.source.model import Event, is_call, is_name, is_set, keyword, receiver, targets_of, terminal, walk


class CreateGraphCycle(growth_rule.GrowthRule):
    """backward(create_graph=True) ties a tensor and its gradient into a cycle that no collector sees."""

    severity = "error"
    words = ("create_graph",)

    specificity = 5

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """The growing graph hangs on a `.grad`."""
        uses = [u for r in recording.ranks for u in r.all(records.training.BackwardUse) if u.flag == "create_graph"]
        if not uses or "grad" in growth.holding.via or growth.holding.name.endswith(".grad"):
            return bool(uses)
        # Where several parameters hang from one name, the graph is reported with that name and not with each gradient.
        own = [growth.holding.scope, *growth.holding.path]
        # The last look of each rank: which names carry a graph is known best at the end.
        below = [h for r in recording.ranks for c in r.all(records.base.Census)[-1:] for h in c.holdings if h.carried]
        return any("grad" in h.via and [h.scope, *h.path][: len(own)] == own for h in below)

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """parameter → grad → graph → parameter."""
        return (
            f"`.backward(create_graph=True)` gives {growth.holding.name} a graph that leads back to the parameter: a "
            "cycle through C++ that Python's collector cannot see"
        )

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """autograd.grad."""
        return _ADVICE

    def finding(self, growth: kit.Growth, rank: kit.RankRecording, recording: kit.Recording) -> kit.Finding:
        """An optimizer's state has the parameters for keys: it is their gradients that hold the graph."""
        found = super().finding(growth, rank, recording)
        name = growth.holding.name
        if not name.endswith("(as a key)") or found.holder is None:
            return found
        plain = "the parameters' .grad"
        return msgspec.structs.replace(
            found,
            message=found.message.replace(name, plain),
            cause=found.cause.replace(name, plain),
            holder=msgspec.structs.replace(found.holder, name=plain),
        )

    def location(self, growth: kit.Growth, store: kit.Store | None, recording: kit.Recording) -> kit.Location | None:
        """The backward call."""
        return _call(recording) or super().location(growth, store, recording)

    def in_recording(self, recording: kit.Recording) -> kit.Findings:
        """Growing `.grad`s, and graphs that nothing names where somebody called backward so."""
        yield from super().in_recording(recording)
        where = _call(recording)
        if where is None:
            return
        leaf = _leaf(recording, where)
        for finding in unreachable_storages.stranger_findings(self, recording, "native", _CYCLE, _ADVICE, where):
            yield finding if leaf is None or finding.holder is None else _named(finding, finding.holder, leaf)

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """`.backward(create_graph=True)` that fills the `.grad` of an input, or of parameters that nothing clears."""
        for event in file.calls("backward", "manual_backward"):
            repeated = event.loop is not None or not event.unit.is_module
            # Once at a file's own level it is one ring and no growth.
            if repeated and is_set(event.call, "create_graph") and not is_freed(event):
                yield self._judged(file, event)

    def _judged(self, file: kit.SourceFile, event: Event) -> kit.Finding:
        # A fresh leaf is dropped with its gradient in every pass, and nothing that clears parameters reaches that.
        leaf = _leaf_read(event)
        if leaf:
            ring = f"a ring that stays for ever when {leaf} is bound anew"
            what = f"{leaf}.grad gets a graph that leads back to {leaf}, {ring}"
            return self._suspected(file, event, "error", what, leafs_gradient_freed(file, event, leaf))
        made = copys_gradients_freed(file, event)
        if not _is_cleared(file):
            what = "the gradients of the parameters get graphs that lead back to them"
            return self._suspected(file, event, "error", f"{what}, and nothing here sets them to None", made)
        what = "the gradients get graphs that lead back to the parameters: only setting every one of them to None"
        # They are set to None in some place: whether in time, the text does not show.
        return self._suspected(file, event, "info", f"{what} frees them", made)

    def _suspected(
        self, file: kit.SourceFile, event: Event, severity: kit.Severity, what: str, edits: list[kit.Edit]
    ) -> kit.Finding:
        return self.suspect(
            file, event, f"backward(create_graph=True): {what}", severity=severity,
            cause="tensor, gradient and graph form a cycle through C++ that Python's collector cannot see",
            advice=_ADVICE, edits=edits, safe=True,
        )  # fmt: skip


_CYCLE = (
    "`.backward(create_graph=True)` left gradients whose graph leads back to their own leaf: a cycle through C++ that "
    "no name leads to and that Python's collector cannot see"
)
_ADVICE = (
    "use `torch.autograd.grad(loss, parameters, create_graph=True)`, which leaves `.grad` alone; or leave "
    "`create_graph=True` out, where nothing goes backward through these gradients; or set the gradients to None as "
    "soon as the second derivative is taken (`zero_grad(set_to_none=True)`)"
)


def _leaf(recording: kit.Recording, where: kit.Location) -> str | None:
    """What a backward that says its `inputs` makes gradients of: the first of them, as it is written there."""
    file = recording.model(where.path)
    for node in walk(file.tree) if file is not None else ():
        if isinstance(node, ast.Call) and node.lineno <= where.line <= (node.end_lineno or node.lineno):
            given = keyword(node, "inputs")
            first = given.elts[0] if isinstance(given, (ast.List, ast.Tuple)) and given.elts else given
            if isinstance(first, (ast.Name, ast.Attribute)):
                return ast.unparse(first)
    return None


def _named(finding: kit.Finding, holder: kit.Holder, leaf: str) -> kit.Finding:
    """The finding with the leaf's gradient as its holder: the variable itself is gone, its tensor is not."""
    name = f"{leaf}.grad"
    return msgspec.structs.replace(
        finding,
        # Once, as the name may be a part of what follows.
        message=finding.message.replace(holder.name, f"{name} of every step", 1),
        holder=kit.Holder(name=name, kind=holder.kind, path=[leaf, ".grad"]),
    )


def _call(recording: kit.Recording) -> kit.Location | None:
    """The line that called backward with `create_graph=True`."""
    uses = [u for r in recording.ranks for u in r.all(records.training.BackwardUse) if u.flag == "create_graph"]
    # The last one seen.
    return growth_rule.location_of(uses[-1].place) if uses else None


def _leaf_read(event: Event) -> str:
    """A name bound in the same function to a fresh leaf (`.requires_grad_()`) whose `.grad` is read after the call and
    never set to None; empty for none."""
    unit = event.unit
    if "requires_grad" not in unit.file.text:
        return ""
    read = {on for e in unit.events if e.index > event.index for on in _grads_read(e)}
    targets = (t for e in unit.events for t in targets_of(e.node) if isinstance(t, ast.Attribute) and t.attr == "grad")
    cleared = {ast.unparse(t.value) for t in targets}
    # Sorted, as sets have no order from run to run.
    for name in sorted(read - cleared):
        bound = [b for b in unit.bindings.get(name, ()) if b.index < event.index]
        if bound and _is_leaf(name, bound[-1], event):
            return name
    return ""


def _grads_read(event: Event) -> Iterator[str]:
    """Names whose `.grad` an event's own expression reads."""
    node = event.node
    parts = [node.value] if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return)) and node.value else []
    if isinstance(node, ast.Call):
        parts = [node.func, *node.args]
    for part in parts:
        while isinstance(part, (ast.Attribute, ast.Call, ast.Subscript)):
            if isinstance(part, ast.Attribute) and part.attr == "grad" and isinstance(part.value, ast.Name):
                yield part.value.id
            part = part.func if isinstance(part, ast.Call) else part.value


def _is_leaf(name: str, binding: Event, event: Event) -> bool:
    """Whether a binding makes a leaf that wants a gradient as often as an event comes: in its value, or by
    `name.requires_grad_()` after it."""
    # A leaf made before the loop is one, and its ring is replaced with each backward.
    if binding.loop is not event.loop:
        return False
    value = getattr(binding.node, "value", None)
    if is_call(value, "requires_grad_") or (isinstance(value, ast.Call) and is_set(value, "requires_grad")):
        return True
    return any(_asks_for_gradient(e, name) for e in event.unit.events if binding.index < e.index < event.index)


def _asks_for_gradient(event: Event, name: str) -> bool:
    """Whether an event is `name.requires_grad_()`, or sets `name.requires_grad`."""
    if is_call(event.node, "requires_grad_") and is_name(receiver(event.call), name):
        return True
    bound = (t for t in targets_of(event.node) if isinstance(t, ast.Attribute))
    return any(t.attr == "requires_grad" and terminal(t.value) == name for t in bound)


def _is_cleared(file: kit.SourceFile) -> bool:
    """Whether gradients are set to None somewhere in the file, or something unseen may do it."""
    if any(not is_set(e.call, "set_to_none", False) for e in file.calls("zero_grad")) or ".grad = None" in file.text:
        return True
    return any(file.imports.uses(one) for one in ("lightning", "pytorch_lightning", "accelerate", "deepspeed"))
