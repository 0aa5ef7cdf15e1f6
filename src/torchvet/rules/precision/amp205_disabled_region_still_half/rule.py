"""AMP205: a region with autocast off computes on tensors that are half already."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torchvet.rules.kit import Edit, Finding, RankRecording, Recording, Severity, SourceFile, records
from torchvet.rules.precision import _losses
from torchvet.rules.precision._autocast_rule import AutocastRule, callers, half_operators
from torchvet.rules.precision.fixes.float32 import made_before_in_float32
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, Unit, edits, name_set, receiver, terminal

_EXACT = name_set(
    "argmax argmin argsort cat stack split chunk zeros_like ones_like isnan isfinite isinf is_tensor empty_like "
    "randn_like rand_like full_like no_grad autocast save max min topk sort unbind numel where is_floating_point "
    "masked_select gather index_select squeeze unsqueeze reshape flatten transpose permute device inference_mode "
    "tensor_split flip roll isclose allclose equal"
)
"""Functions of torch that lose nothing in half precision."""
_METHODS = name_set(
    "exp log sum mean pow square softmax log_softmax logsumexp norm var std sqrt rsqrt prod cumsum sigmoid matmul "
    "bmm mm"
)
_FULL = ("float", "double", "dtype", "autocast", ".type(")


class DisabledRegionStillHalf(AutocastRule):
    """A region with autocast off computes on tensors that are half already."""

    severity = "warning"
    cause = "the operands were made under autocast; `enabled=False` brings nothing back to float32"
    advice = "convert what comes in from the region around it: `x.float()`"
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """What comes in from the region around it, in float32."""
        return made_before_in_float32(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Operators that autocast would have run in float32, on half operands in a region that is off."""
        for here in half_operators(rank, "disabled"):
            first, names = here[0], ", ".join(dict.fromkeys(s.operator for s in here))
            yield self.seen_at(
                rank,
                first.place,
                f"autocast is off here and yet {names} ran in {first.dtype}, off by up to "
                f"{max(s.error for s in here):.2g} of the largest value in float32",
                [("region", "the region that is off", first.region), *callers(first)],
            )
        for error in rank.latest(records.autocast.AutocastError, "kind", "place"):
            if error.kind == "disabled":
                message = f"half operands meet float32 in a region with autocast off: {error.message}"
                region = [("region", "the region that is off", error.region)]
                yield self.seen_at(rank, error.place, message, region, severity="error")

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A computation in a region that is off, on the output of a module called in an active one."""
        for region, at, _ in autocast.opened(file):
            if region.enabled == "no":
                for event in autocast.calls_inside(at.unit, region):
                    if autocast.state(event) == region and _computes(event):
                        yield from self._judge(file, event, region)

    def _judge(self, file: SourceFile, event: Event, region: autocast.Region) -> Iterator[Finding]:
        for one in _operands(event):
            name = _losses.rooted(one)
            binding = event.binding_of(name)
            # What is made within the region that is off has the dtype of what went in, and is judged there.
            if binding is None or region in autocast.regions(binding):
                continue
            half = _losses.half_output(binding, name) is not None
            severity = self.severity if half else _in_forward(binding, name)
            if severity is not None:
                text = file.segment(one)
                yield self.suspect_at(
                    event,
                    f"{file.segment(event.call.func)}(…) has autocast off, but {name} is half already: it runs in half "
                    "precision or raises",
                    severity=severity,
                    advice=f"give it `{text}.float()`",
                    edits=[edits.replace(file, one, f"{text}.float()")],
                    related={"made": (binding, file.segment(binding.statement))},
                )
                return


def _computes(event: Event) -> bool:
    """Whether a call computes something that half precision spoils, or that dies of it."""
    file, call = event.unit.file, event.call
    if any(k.arg == "dtype" for k in call.keywords):
        return False
    if "criterion" in file.roles.of(call.func, event.unit) or terminal(call).endswith("_loss"):
        return _losses.stays_half(event)
    if file.dotted(call.func).startswith("torch."):
        return terminal(call) not in _EXACT and not terminal(call)[:1].isupper()
    return autocast.is_module_call(event) or receiver(call) is not None or file.callee(event) is not None


def _operands(event: Event) -> list[ast.expr]:
    """What a call computes with: what a tensor's method is called on, and the arguments; none where that is not
    known."""
    on = receiver(event.call)
    if isinstance(on, ast.Name) and terminal(event.node) in _METHODS:
        return [on, *event.call.args]
    return list(event.call.args) if _is_known_to_compute(event) else []


def _is_known_to_compute(event: Event) -> bool:
    file, function = event.unit.file, event.call.func
    if file.dotted(function).startswith("torch.") or file.roles.of(function, event.unit) & {"module", "criterion"}:
        return True
    callee = file.callee(event)
    return callee is not None and _computes_as_given(callee)


def _computes_as_given(unit: Unit) -> bool:
    """Whether a function of this file computes with torch in the dtype that it is given: nothing in it says float."""
    text, calls = unit.file.text_of(unit), [e for calls in unit.calls.values() for e in calls]
    return not any(word in text for word in _FULL) and any(
        unit.file.dotted(e.call.func).startswith("torch.") for e in calls
    )


def _in_forward(binding: Event, name: str) -> Severity | None:
    """Where a layer's own output meets a region that is off, in a module that other code runs under autocast:
    `warning` if this file does, `info` if only the region speaks of it."""
    file, owner = binding.unit.file, binding.unit.owner
    if owner is None or binding.unit.name != "forward" or "module" not in file.roles.of_class(owner):
        return None
    if autocast.state(binding) is not None or _losses.layer_output(binding, name) is None:
        return None
    return "warning" if owner.name in half_precision.run_under_autocast(file) else "info"
