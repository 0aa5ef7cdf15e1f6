"""MEM107: a custom autograd Function keeps tensors as attributes of ctx."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import partial

from torchvet.recording import records
from torchvet.rules.kit import Edits, Finding, Findings, Growth, Location, Recording, Severity, SourceFile, Store
from torchvet.rules.memory.fixes.saved_tensors import saved_for_backward
from torchvet.rules.shared import growth_rule, unreachable_storages
from torchvet.source.context import context_stores
from torchvet.source.model import Event, is_attribute, is_name, name_set, torch_names, value_bound
from torchvet.source.model.units import ClassModel, Unit, targets_of, value_for
from torchvet.source.syntax import receiver, terminal


class TensorOnCtx(growth_rule.GrowthRule):
    """A custom autograd Function keeps tensors as attributes of ctx."""

    severity = "warning"
    words = ("Function",)

    specificity = 3

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """Most of what grows are attributes of custom Functions' `ctx`."""
        return growth.bytes_per_step > 0 and growth.ctx_per_step >= 0.5 * growth.bytes_per_step

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Backward does not free attributes."""
        return (
            f"the custom Function's `ctx` keeps tensors as attributes; {growth.holding.name} keeps the graph's nodes, "
            "and backward frees what `save_for_backward` saved but no attribute"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """save_for_backward."""
        return (
            "pass inputs and outputs to `ctx.save_for_backward(...)` and read `ctx.saved_tensors` in backward; keep "
            f"only numbers of what goes into {growth.holding.name}"
        )

    def location(self, growth: Growth, store: Store | None, recording: Recording) -> Location | None:
        """The line that sets an attribute of `ctx`."""
        found = next(iter(ctx_stores(recording)), None)
        return found or super().location(growth, store, recording)

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Save what is set on `ctx` for backward, and read it from there."""
        return saved_for_backward(file, finding, partial(_is_tensor, file))

    def in_file(self, file: SourceFile) -> Findings:
        """Outputs, and tensors that came in, that `forward` sets as attributes of its `ctx`."""
        for model in file.classes.values():
            if "function" in file.roles.of_class(model):
                for unit in filter(None, (model.methods.get("forward"), model.methods.get("setup_context"))):
                    yield from self._of_method(file, model, unit)

    def _of_method(self, file: SourceFile, model: ClassModel, unit: Unit) -> Findings:
        # `forward` is static as a rule; of a class method `cls` comes before `ctx`.
        given = unit.parameters[1:] if "classmethod" in unit.decorators else unit.parameters
        context = given[0] if given else ""
        for event, attribute, value in _set_on(unit, context):
            # Backward drops it by hand, which is what `save_for_backward` would have done.
            if _is_released(model, attribute):
                continue
            if _is_output(unit, context, attribute, value):
                yield self._suspected(file, event, f"{context}.{attribute}", "output")
            elif isinstance(value, ast.Name) and _is_part(unit, value.id):
                # Of several outputs some may be no tensors.
                if _is_tensor(file, model, unit, value.id):
                    yield self._suspected(file, event, f"{context}.{attribute}", "output")
                elif _used_as_tensor(model, attribute):
                    yield self._suspected(file, event, f"{context}.{attribute}", "output", "info")
            # Only names: what is computed there is neither input nor output.
            elif isinstance(value, ast.Name) and (
                _is_tensor_input(unit, value.id) or _has_gradient(model, unit, given[1:], value.id)
            ):
                yield self._suspected(file, event, f"{context}.{attribute}", "input")

    def _suspected(
        self, file: SourceFile, event: Event, place: str, kind: str, severity: Severity | None = None
    ) -> Finding:
        output = kind == "output"
        effect = (
            "output and graph node keep each other alive, and only the cyclic collector frees them"
            if output
            else "backward does not free it: it lives as long as the node does"
        )
        context = place.partition(".")[0]
        return self.suspect(
            file,
            event,
            f"{place} keeps the Function's {kind}: {effect}",
            severity=severity or ("warning" if output else "info"),
            cause=f"an attribute of `{context}` belongs to the graph's node, not to autograd's saved tensors",
            advice=f"pass it to `{context}.save_for_backward(...)` and read `{context}.saved_tensors` in backward",
        )

    def in_recording(self, recording: Recording) -> Findings:
        """Growing names that keep such nodes, and nodes that keep themselves by a cycle through their output."""
        yield from super().in_recording(recording)
        yield from unreachable_storages.stranger_findings(
            self,
            recording,
            "ctx",
            # The attribute that a search saw closing the cycle, where it saw one.
            location=next(ctx_stores(recording, _closing(recording)), None),
            cause="the custom Function stores its own output on `ctx`: output → grad_fn → ctx → output is a cycle that "
            "backward does not break; only the cyclic collector frees it, whenever that runs",
            advice="pass it to `ctx.save_for_backward(...)`, which keeps an output without a cycle",
        )


def _set_on(unit: Unit, context: str) -> Iterator[tuple[Event, str, ast.expr]]:
    """Attributes of the context that a method sets: the event, the attribute and what it is set to."""
    for event in unit.events:
        for target in targets_of(event.node) if isinstance(event.node, ast.Assign) else ():
            value = value_for(event.node, target)
            if isinstance(target, ast.Attribute) and terminal(target.value) == context and value is not None:
                yield event, target.attr, value


def _has_gradient(model: ClassModel, unit: Unit, inputs: list[str], name: str) -> bool:
    """Whether `backward` returns a gradient in an input's place: only tensors have one."""
    backward = model.methods.get("backward")
    if backward is None or unit.name != "forward" or name not in inputs or unit.bindings.get(name):
        return False
    returned = [e.node.value for e in backward.events if isinstance(e.node, ast.Return)]
    parts = [value.elts if isinstance(value, ast.Tuple) else [value] for value in returned]
    place = inputs.index(name)
    # Every `return`: with one that gives no gradient it may be a setting.
    return bool(parts) and all(
        len(p) == len(inputs)
        and not any(isinstance(one, ast.Starred) for one in p)
        and not _is_none(p[place], backward)
        for p in parts
    )


def _is_none(node: ast.AST | None, unit: Unit) -> bool:
    """Whether a gradient is None, or a name that nothing else than None is bound to."""
    if isinstance(node, ast.Name):
        values = [value_bound(e.node, node.id) for e in unit.bindings.get(node.id, ())]
        return bool(values) and all(isinstance(v, ast.Constant) for v in values)
    return node is None or isinstance(node, ast.Constant)


def _closing(recording: Recording) -> set[str]:
    """Attributes of a `ctx` that a search found to lead back to it."""
    looks = (census for rank in recording.ranks for census in rank.all(records.base.Census))
    return {s.attribute for census in looks for s in census.strangers if s.kind == "ctx" and s.attribute}


def ctx_stores(recording: Recording, first: Collection[str] = ()) -> Iterator[Location]:
    """Lines of the user's Functions that set an attribute of their `ctx`, those that set one of the `first` before
    others."""
    found = ((path, store) for path, text in recording.sources.items() for store in context_stores(text))
    # Stable: the order within a file stays, literals last.
    for path, store in sorted(found, key=lambda pair: pair[1].attribute not in first):
        yield Location(path=path, line=store.line, column=store.column, function=store.function)


def _is_released(model: ClassModel, attribute: str) -> bool:
    """Whether `backward` deletes the attribute, or sets it to None."""
    backward = model.methods.get("backward")
    nodes = [e.node for e in backward.events if isinstance(e.node, (ast.Delete, ast.Assign))] if backward else []
    return any(is_attribute(t, attribute) for node in nodes for t in targets_of(node))


def _is_output(unit: Unit, context: str, attribute: str, value: ast.expr) -> bool:
    """Whether what is stored is what the Function returns, alone or first of several."""
    if unit.name == "setup_context":
        # `setup_context(ctx, inputs, output)`.
        return isinstance(value, ast.Name) and len(unit.parameters) > 2 and value.id == unit.parameters[2]
    for event in unit.events:
        if not isinstance(event.node, ast.Return):
            continue
        given = event.node.value
        # The first of several outputs is the tensor, by custom.
        given = given.elts[0] if isinstance(given, ast.Tuple) and given.elts else given
        if isinstance(given, ast.Attribute) and terminal(given.value) == context and given.attr == attribute:
            return not isinstance(value, ast.Constant)
        if isinstance(given, ast.Name) and isinstance(value, ast.Name) and given.id == value.id:
            # An input that is returned as it is, torch hands on as a view, or as marked dirty.
            return value.id not in unit.parameters and len(unit.bindings.get(value.id, ())) == 1
    return False


def _is_part(unit: Unit, name: str) -> bool:
    """Whether a name, bound once, is one of several outputs, or was unpacked from what is returned."""
    bound = unit.bindings.get(name, [])
    # What no gradient comes to has no node, and no cycle through it.
    apart = (a for e in unit.calls.get("mark_non_differentiable", ()) for a in e.call.args)
    if len(bound) != 1 or any(is_name(a, name) for a in apart):
        return False
    whole = _unpacked(bound[0].node, name)
    if unit.name == "setup_context":
        return bool(whole) and whole in unit.parameters[2:3]
    return any(_gives(unit, value, name, whole) for value, _ in unit.returned)


def _unpacked(node: ast.AST, name: str) -> str:
    """`both` of `at, y = both`; empty for what is bound otherwise."""
    value = node.value if isinstance(node, ast.Assign) and value_bound(node, name) is None else None
    return value.id if isinstance(value, ast.Name) else ""


def _gives(unit: Unit, value: ast.expr | None, name: str, whole: str) -> bool:
    """Whether what is returned has a name as one of its parts, or is what the name was unpacked from."""
    if isinstance(value, ast.Tuple):
        return any(is_name(one, name) for one in value.elts)
    return bool(whole) and is_name(value, whole) and len(unit.bindings.get(whole, ())) == 1


def _used_as_tensor(model: ClassModel, attribute: str) -> bool:
    """Whether `backward` calls a method on the attribute that only tensors have."""
    backward = model.methods.get("backward")
    if backward is None:
        return False
    names_of = {
        target.id
        for e in backward.events
        for target in targets_of(e.node)
        if isinstance(target, ast.Name) and is_attribute(value_for(e.node, target), attribute)
    }
    calls = (e.call for e in backward.calls_of(_OF_TENSORS))
    owners = (receiver(call) for call in calls)
    return any(is_attribute(on, attribute) or (isinstance(on, ast.Name) and on.id in names_of) for on in owners)


def _is_tensor(file: SourceFile, model: ClassModel, unit: Unit, name: str) -> bool:
    """Whether a name of `forward` surely is a tensor: one that came in, or what tensors are computed to."""
    if name in unit.parameters:
        return _is_tensor_input(unit, name) or _has_gradient(model, unit, unit.parameters[1:], name)
    values = [value_bound(e.node, name) for e in unit.bindings.get(name, ())]
    return bool(values) and all(value is not None and _makes_tensor(file, model, unit, value) for value in values)


def _makes_tensor(file: SourceFile, model: ClassModel, unit: Unit, value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp):
        return any(_makes_tensor(file, model, unit, one) for one in (value.left, value.right))
    if isinstance(value, ast.Name):
        return value.id in unit.parameters and _is_tensor(file, model, unit, value.id)
    if not isinstance(value, ast.Call):
        return False
    on = receiver(value)
    functional = file.dotted(value.func).removeprefix("torch.nn.functional.").removeprefix("torch.")
    if functional in _ONE_TENSOR:
        return True
    return on is not None and terminal(value) in _ONE_TENSOR and _makes_tensor(file, model, unit, on)


_ONE_TENSOR = frozenset(torch_names.TENSOR_METHODS) - name_set("backward chunk split unbind max min item tolist size")


_OF_TENSORS = name_set(
    "view reshape unsqueeze squeeze transpose permute contiguous mul expand flatten masked_fill sigmoid"
)
"""Methods of tensors that gradients are computed with, and that modules and numbers have not."""


def _is_tensor_input(unit: Unit, name: str) -> bool:
    """Whether a parameter is used as a tensor: a tensor's method, or an argument of torch's functions."""
    if name not in unit.parameters[1:] or unit.bindings.get(name):
        return False
    calls = [e.node for e in unit.events if isinstance(e.node, ast.Call)]
    if any(terminal(receiver(call)) == name and terminal(call) in torch_names.TENSOR_METHODS for call in calls):
        return True
    return any(terminal(a) == name for call in calls if terminal(call) == "save_for_backward" for a in call.args)
