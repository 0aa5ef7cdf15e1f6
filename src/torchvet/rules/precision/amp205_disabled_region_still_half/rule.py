"""AMP205: a region with autocast off computes on tensors that are half already."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import AutocastError, HalfOperator
from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Rule, Sequence, Severity, SourceFile
from torchvet.rules.precision import _losses
from torchvet.rules.precision._observed import also, callers, totals
from torchvet.rules.precision.fixes.float32 import made_before_in_float32
from torchvet.rules.shared import autocast_regions, half_precision
from torchvet.source.model import Event, Unit, edits, receiver, terminal

_EXACT = frozenset(("argmax", "argmin", "argsort", "cat", "stack", "split", "chunk", "zeros_like", "ones_like", "isnan",
                    "isfinite", "isinf", "is_tensor", "empty_like", "randn_like", "rand_like", "full_like", "no_grad",
                    "autocast", "save", "max", "min", "topk", "sort", "unbind", "numel", "where", "is_floating_point",
                    "masked_select", "gather", "index_select", "squeeze", "unsqueeze", "reshape", "flatten",
                    "transpose", "permute", "device", "inference_mode", "tensor_split", "flip", "roll", "isclose",
                    "allclose", "equal"))  # fmt: skip
"""Functions of torch that lose nothing in half precision."""


class DisabledRegionStillHalf(Rule):
    """A region with autocast off computes on tensors that are half already."""

    code = "AMP205"
    name = "disabled-region-still-half"
    summary = "A region with autocast off computes on tensors that are half already"
    severity = "warning"
    words = ("autocast",)

    fix_changes_results = True
    needs_at_work = "autocast"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """What comes in from the region around it, in float32."""
        return made_before_in_float32(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Operators that autocast would have run in float32, on half operands in a region that is off."""
        seen = totals(rank, HalfOperator, "place", "situation", "operator", "dtype")
        inside = [s for s in seen if s.situation == "disabled"]
        for place in dict.fromkeys(s.place for s in inside):
            yield self._observed(rank, [s for s in inside if s.place == place])
        for error in totals(rank, AutocastError, "kind", "place"):
            if error.kind == "disabled":
                yield self._raised(rank, error)

    def _observed(self, rank: RankRecording, here: list[HalfOperator]) -> Finding:
        names = ", ".join(dict.fromkeys(s.operator for s in here))
        return self.observed(
            rank, severity="warning", place=here[0].place,
            message=f"autocast is off here and yet {names} ran in {here[0].dtype}, off by up to "
            f"{max(s.error for s in here):.2g} of the largest value in float32",
            cause="the operands were made under autocast; `enabled=False` brings nothing back to float32",
            advice="convert what comes in from the region around it: `x.float()`",
            related=[*also("region", "the region that is off", here[0].region), *callers(here[0])],
        )  # fmt: skip

    def _raised(self, rank: RankRecording, error: AutocastError) -> Finding:
        return self.observed(
            rank, severity="error", place=error.place,
            message=f"half operands meet float32 in a region with autocast off: {error.message}",
            cause="the operands were made under autocast; `enabled=False` brings nothing back to float32",
            advice="convert what comes in from the region around it: `x.float()`",
            related=also("region", "the region that is off", error.region),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A computation in a region that is off, on the output of a module called in an active one."""
        for region, at, _ in autocast_regions.opened(file):
            if region.enabled != "no":
                continue
            for event in autocast_regions.inside(at.unit, region):
                if (
                    event.node.__class__ is ast.Call
                    and autocast_regions.state(event) == region
                    and self._computes(event)
                ):
                    yield from self._judge(file, event, region)

    @staticmethod
    def _computes(event: Event) -> bool:
        """Whether a call computes something that half precision spoils, or that dies of it."""
        file, call = event.unit.file, event.call
        if any(k.arg == "dtype" for k in call.keywords):
            return False
        dotted = file.dotted(call.func)
        if "criterion" in file.roles.of(call.func, event.unit) or terminal(call).endswith("_loss"):
            return _losses.stays_half(event)
        if dotted.startswith("torch."):
            return terminal(call) not in _EXACT and not terminal(call)[:1].isupper()
        return autocast_regions.is_module_call(event) or receiver(call) is not None or file.callee(event) is not None

    def _judge(self, file: SourceFile, event: Event, region: autocast_regions.Region) -> Iterator[Finding]:
        on = receiver(event.call)
        given: list[ast.expr] = list(event.call.args)
        if isinstance(on, ast.Name) and _is_tensor_method(event):
            given.insert(0, on)
        elif not self._known_to_compute(file, event):
            return
        for one in given:
            name = _losses.rooted(one)
            binding = _losses.latest(event, name) if name else None
            if binding is None or region in autocast_regions.regions(binding):
                continue
            if _losses.half_output(binding, name) is not None:
                yield self._finding(file, event, one, name, binding)
                return
            severity = self._in_forward(binding, name)
            if severity is not None:
                yield self._finding(file, event, one, name, binding, severity)
                return

    @staticmethod
    def _in_forward(binding: Event, name: str) -> Severity | None:
        """Where a layer's own output meets a region that is off, in a module that other code runs under autocast:
        `warning` if this file does, `info` if only the region speaks of it."""
        file, unit = binding.unit.file, binding.unit
        owner = unit.owner
        if owner is None or unit.name != "forward" or "module" not in file.roles.of_class(owner):
            return None
        if autocast_regions.state(binding) is not None or _losses.layer_output(binding, name) is None:
            return None
        return "warning" if owner.name in half_precision.run_under_autocast(file) else "info"

    @staticmethod
    def _known_to_compute(file: SourceFile, event: Event) -> bool:
        dotted = file.dotted(event.call.func)
        known = file.roles.of(event.call.func, event.unit)
        if dotted.startswith("torch.") or known & {"module", "criterion"}:
            return True
        callee = file.callee(event)
        return callee is not None and _computes_as_given(callee)

    def _finding(self, file: SourceFile, event: Event, given: ast.expr, name: str, binding: Event,
                 severity: Severity | None = None) -> Finding:  # fmt: skip
        what = file.segment(event.call.func)
        return self.suspect(
            file, event, f"{what}(…) has autocast off, but {name} is half already: it runs in half precision or raises",
            severity=severity, cause=f"{name} was made outside of the region that is off, under autocast, and "
            "`enabled=False` brings nothing back to float32",
            advice=f"give it `{file.segment(given)}.float()`",
            edits=[edits.replace(file, given, f"{file.segment(given)}.float()")],
            related=[self.also(file, "made", binding, file.segment(binding.statement))],
        )  # fmt: skip


_METHODS = frozenset(("exp", "log", "sum", "mean", "pow", "square", "softmax", "log_softmax", "logsumexp", "norm",
                      "var", "std", "sqrt", "rsqrt", "prod", "cumsum", "sigmoid", "matmul", "bmm", "mm"))  # fmt: skip


def _is_tensor_method(event: Event) -> bool:
    return terminal(event.node) in _METHODS


def _computes_as_given(unit: Unit) -> bool:
    """Whether a function of this file computes with torch in the dtype that it is given: nothing in it says float."""
    lines = unit.file.lines[unit.first - 1 : unit.last]
    if any(word in line for line in lines for word in ("float", "double", "dtype", "autocast", ".type(")):
        return False
    return any(unit.file.dotted(e.call.func).startswith("torch.") for calls in unit.calls.values() for e in calls)
