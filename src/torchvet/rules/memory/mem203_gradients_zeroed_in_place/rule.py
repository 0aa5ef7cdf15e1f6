"""MEM203: gradients are zeroed in place and stay allocated through the forward pass."""

from __future__ import annotations

import ast

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile, grading, size
from torchvet.rules.shared.training_loops import is_test
from torchvet.source.model import Event, edits, is_attribute, is_literal, name_set, receiver, targets_of, terminal

_NOTEWORTHY = 128 << 10
"""Bytes below which no share of a peak is anybody's trouble: CUDA's allocator takes 2 MiB at least."""


class GradientsZeroedInPlace(Rule):
    """Gradients are zeroed in place and stay allocated through the forward pass."""

    severity = "warning"
    words = ("set_to_none", "zero_grad(False", "grad.zero_(", "grad.data.zero_(")

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Gradients that were set to zero and kept, graded by what dropping them would have taken off the peak."""
        for record in rank.latest(records.training.ZeroedInPlace):
            yield self._finding(rank, record)

    def _finding(self, rank: RankRecording, record: records.training.ZeroedInPlace) -> Finding:
        share = record.saving / record.peak if record.peak else 0.0
        effect = f"would lower the peak by {size(record.saving)} ({share:.0%})" if record.saving else "is simpler"
        return self.observed(
            rank,
            severity=grading.of_share(share) if record.saving >= _NOTEWORTHY else "info",
            place=record.place,
            message=f"{size(record.bytes)} of gradients are zeroed in place and stay allocated through the forward "
            f"pass; dropping them {effect}",
            cause="gradients set to zero keep their storages while the forward pass fills memory with activations",
            advice="`zero_grad()` (its default, `set_to_none=True`, drops them), before the forward pass",
            measured=Measured(bytes=record.bytes, peak_bytes=record.peak, share=share),
        )

    def in_file(self, file: SourceFile) -> Findings:
        """`zero_grad(set_to_none=False)`, and a loop over parameters that writes zeros into their gradients."""
        # A captured graph, or a hand that adds to `.grad`, needs the gradients where they are.
        if file.mentions("set_to_none", "zero_grad(False") and not _needs_them(file):
            for event in file.calls("zero_grad"):
                # A function `zero_grad(False)` of the program's own is another.
                if _is_false(event.call) and receiver(event.call) is not None:
                    yield self._by_flag(file, event)
        if file.mentions("grad.zero_(", "grad.data.zero_("):
            for event in file.calls("zero_"):
                parameter = _parameter_of(event)
                if parameter is not None and not _drops_a_step(file, event):
                    yield self._by_hand(file, event, parameter)

    def _by_flag(self, file: SourceFile, event: Event) -> Finding:
        on = file.segment(event.call.func.value)  # type: ignore[attr-defined]
        positional = bool(event.call.args)
        return self.suspect(
            file,
            event,
            f"{on}.zero_grad(set_to_none=False) keeps every gradient allocated through the forward pass",
            severity="info" if is_test(file) else None,
            cause="gradients set to zero keep their storages while the forward pass fills memory with activations",
            advice=f"`{on}.zero_grad()`: its default, `set_to_none=True`, drops them",
            edits=[edits.replace(file, event.call, f"{on}.zero_grad()")]
            if positional
            else edits.without_argument(file, event.call, "set_to_none"),
        )

    def _by_hand(self, file: SourceFile, event: Event, parameter: ast.expr) -> Finding:
        name = file.segment(parameter)
        alone = isinstance(event.parent, ast.Expr)
        return self.suspect(
            file,
            event,
            f"{file.segment(event.node)} keeps every gradient allocated through the forward pass",
            severity=None if file.mentions(".backward(") and not _needs_them(file) and not is_test(file) else "info",
            cause="gradients set to zero keep their storages while the forward pass fills memory with activations",
            advice=f"`{name}.grad = None`, or `optimizer.zero_grad()`, which does that",
            edits=[edits.replace(file, event.call, f"{name}.grad = None")] if alone else (),
        )


def _drops_a_step(file: SourceFile, event: Event) -> bool:
    """Whether gradients are zeroed between a backward and the step that would use them: that throws a step away, and
    whoever clears gradients for the next one does it elsewhere."""
    # Pairs compare by their index first.
    acts = [(e.index, "backward") for e in event.unit.calls.get("backward", ())]
    for one in event.unit.calls.get("step", ()):
        on = receiver(one.call)
        if file.roles.is_a("optimizer", on, event.unit) or file.roles.is_a("scaler", on, event.unit):
            acts.append((one.index, "step"))
    before = max((act for act in acts if act[0] < event.index), default=(0, ""))
    after = min((act for act in acts if act[0] > event.index), default=(0, ""))
    return (before[1], after[1]) == ("backward", "step")


def _is_false(call: ast.Call) -> bool:
    """Whether `set_to_none` is given as False."""
    given = [k.value for k in call.keywords if k.arg == "set_to_none"] or call.args[:1]
    return bool(given) and is_literal(given[0], False)


_IN_PLACE = name_set(
    ".grad.add_ .grad.copy_ .grad.data.copy_ .grad.data.add_ _foreach "
    "CUDAGraph make_graphed_callables cuda.graph( gradient_as_bucket_view"
)


def _needs_them(file: SourceFile) -> bool:
    """Whether the file adds to gradients itself, or records them at fixed addresses: they have to stay in place."""
    # Spelled as programs do.
    return file.mentions(".grad +=", ".grad /=", ".grad = torch.zeros", ".grad = th.zeros", *_IN_PLACE)


def _parameter_of(event: Event) -> ast.expr | None:
    """`p` of `p.grad.zero_()` where `p` runs over parameters; None for a single tensor, whose gradient is small."""
    on = receiver(event.call)
    if "set_to_none" in event.unit.parameters:
        return None  # that is what it is asked for
    if is_attribute(on, "data"):
        on = on.value
    if not is_attribute(on, "grad") or not isinstance(on.value, ast.Name):
        return None
    loop = event.loop
    while loop is not None:
        node = loop.node
        if isinstance(node, (ast.For, ast.AsyncFor)) and on.value.id in map(terminal, targets_of(node)):
            return on.value if _are_parameters(node.iter) else None
        loop = loop.parent
    return None


def _are_parameters(node: ast.expr) -> bool:
    """`model.parameters()`, `model.named_parameters()`, `group["params"]`, `model_params`."""
    if isinstance(node, ast.Subscript):
        # An optimizer's group.
        return isinstance(node.slice, ast.Constant) and node.slice.value == "params"
    return "param" in terminal(node).lower()
