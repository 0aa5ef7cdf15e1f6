"""AMP206: a custom autograd Function multiplies matrices under autocast without `custom_fwd` and `custom_bwd`."""

from __future__ import annotations

import ast

from torchvet.recording.records.autocast import AutocastError, FunctionOverflow, FunctionPrecision
from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Rule, Sequence, SourceFile
from torchvet.rules.precision._observed import totals
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import ClassModel, Event, Unit, terminal, walk

_PRODUCTS = ("mm", "matmul", "bmm", "addmm", "linear", "conv1d", "conv2d", "conv3d", "einsum", "baddbmm")
_CAREFUL = ("custom_fwd", "custom_bwd", "autocast", ".float()", "float32", ".dtype", "type_as", ".half()", "bfloat16")
"""A Function that mentions one of these minds its dtypes itself."""
_HABIT, _OFTEN = 2, 20
"""So many sampled calls in which a sum overflows, and one in so many, are no accident of a single batch."""


class FunctionWithoutCustomFwd(Rule):
    """A custom autograd Function multiplies matrices under autocast without `custom_fwd` and `custom_bwd`."""

    code = "AMP206"
    name = "function-without-custom-fwd"
    summary = "A custom autograd Function under autocast lacks `custom_fwd` and `custom_bwd`"
    severity = "warning"
    words = ("save_for_backward",)

    bad_raises = "expected m1 and m2 to have the same dtype"
    needs_at_work = "autocast"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Functions whose backward died of mixed dtypes, and those that gave half results from float32 inputs."""
        died = [e for e in totals(rank, AutocastError, "kind", "place") if e.kind == "function"]
        for error in died:
            yield self._observed(rank, error.name, error)
        for seen in totals(rank, FunctionPrecision, "place"):
            if seen.name not in [e.name for e in died]:
                yield self._observed(rank, seen.name, seen)
        for sums in totals(rank, FunctionOverflow, "place", "operator"):
            yield self._overflowed(rank, sums)

    def _observed(self, rank: RankRecording, name: str, seen: AutocastError | FunctionPrecision) -> Finding:
        if isinstance(seen, AutocastError):
            message = f"backward of {name} raised under mixed precision: {seen.message}"
        else:
            message = f"{name} gave {seen.dtype} results from float32 inputs: autocast casts within its forward"
        return self.observed(
            rank, severity="error" if isinstance(seen, AutocastError) else "info", place=seen.place,
            message=message,
            cause="without `custom_fwd` its forward runs under autocast; its backward runs outside, on what was saved",
            advice="decorate `forward` with `torch.amp.custom_fwd(device_type=…)` and `backward` with "
            "`torch.amp.custom_bwd(device_type=…)`",
        )  # fmt: skip

    def _overflowed(self, rank: RankRecording, seen: FunctionOverflow) -> Finding:
        habit = seen.overflowed >= _HABIT and _OFTEN * seen.overflowed >= seen.calls
        return self.observed(
            rank, severity="warning" if habit else "info", place=seen.place,
            message=f"{seen.operator} overflows in the forward of {seen.name}, which runs under autocast: "
            f"{seen.infinite:,} of {seen.elements:,} results were infinite in {seen.overflowed:,} of {seen.calls:,} "
            "sampled calls",
            cause="float16 ends at 65504; the operands, or the numbers that were squared, were finite",
            advice="decorate `forward` with `torch.amp.custom_fwd(device_type=…, cast_inputs=torch.float32)` and "
            "`backward` with `torch.amp.custom_bwd(device_type=…)`",
        )  # fmt: skip

    fix_may_change_losses = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The decorators of torch.amp on the Function that the line belongs to, computing in float32."""
        at = finding.location
        known = file.unit_at(at.line).method_class() if at is not None and at.path == file.path else None
        methods = known.methods if known is not None else {}
        forward, backward = methods.get("forward"), methods.get("backward")
        if known is None or forward is None or backward is None or self._careful(file, known):
            return ()
        if file.imports.names.get("torch") != "torch" or finding.device is None:
            return ()
        device = finding.device.partition(":")[0]
        cast = f'@torch.amp.custom_fwd(device_type="{device}", cast_inputs=torch.float32)'
        return [self._decorator(file, forward, cast),
                self._decorator(file, backward, f'@torch.amp.custom_bwd(device_type="{device}")')]  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A Function of matrix products that saves its inputs, in a file that runs under autocast."""
        if not file.mentions("autocast"):
            return
        for known in file.classes.values():
            if "function" not in file.roles.of_class(known):
                continue
            forward, backward = known.methods.get("forward"), known.methods.get("backward")
            if forward is None or backward is None or self._careful(file, known):
                continue
            saved = self._saves_inputs(forward)
            if saved is None or not (_multiplies(forward) and _multiplies(backward)):
                continue
            region = self._used_under(file, known)
            if region is not None:
                yield self._finding(file, known, saved, forward, backward, region)

    @staticmethod
    def _careful(file: SourceFile, known: ClassModel) -> bool:
        text = "\n".join(file.lines[known.node.lineno - 1 : known.node.end_lineno])
        return any(word in text for word in _CAREFUL)

    @staticmethod
    def _saves_inputs(forward: Unit) -> Event | None:
        """The call that saves at least two of the inputs as they came."""
        for event in forward.calls.get("save_for_backward", ()):
            names = {a.id for a in event.call.args if isinstance(a, ast.Name)}
            if len(names & set(forward.parameters[1:])) >= 2:
                return event
        return None

    @staticmethod
    def _used_under(file: SourceFile, known: ClassModel) -> autocast_regions.Region | None:
        """The active region that the Function is applied in, itself or through modules of this file."""
        applied = [e for e in file.calls("apply") if terminal(getattr(e.call.func, "value", None)) == known.name]
        for event in applied:
            state = autocast_regions.state(event)
            if state is not None:
                return state if state.enabled != "no" else None
        if not any(e.unit.owner is not None for e in applied):
            return None
        active = [
            r
            for r, at, _ in autocast_regions.opened(file)
            if r.enabled != "no" and not r.framework and _runs_model(at, r)
        ]
        return active[0] if active else None

    def _finding(self, file: SourceFile, known: ClassModel, saved: Event, forward: Unit, backward: Unit,
                 region: autocast_regions.Region) -> Finding:  # fmt: skip
        device = region.device or "cuda"
        decorators = [(forward, "custom_fwd"), (backward, "custom_bwd")]
        lines = [self._decorator(file, unit, f"@torch.amp.{name}(device_type={device!r})".replace("'", '"'))
                 for unit, name in decorators]  # fmt: skip
        sure = bool(region.device) and file.imports.names.get("torch") == "torch"
        return self.suspect(
            file, saved, f"{known.name} runs under autocast without custom_fwd: it saves float32 inputs, and its "
            "backward multiplies them with half gradients",
            node=forward.node,
            cause="products in forward are cast by autocast; backward runs outside of it and is not",
            advice=f'decorate forward with `@torch.amp.custom_fwd(device_type="{device}")` and backward with '
            f'`@torch.amp.custom_bwd(device_type="{device}")`, below `@staticmethod`',
            edits=lines if sure else (),
            related=[self.also(file, "saved", saved, file.segment(saved.node))],
        )  # fmt: skip

    @staticmethod
    def _decorator(file: SourceFile, unit: Unit, text: str) -> Edit:
        """A decorator right above a method's `def`, below those it has."""
        line = unit.node.lineno  # type: ignore[union-attr]
        margin = file.lines[line - 1][: unit.node.col_offset]  # type: ignore[union-attr]
        return Edit(path=file.path, start=(line, 1), end=(line, 1), text=f"{margin}{text}{file.newline}")


def _multiplies(unit: Unit) -> bool:
    if any(name in unit.calls for name in _PRODUCTS):
        return True
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult) for n in walk(unit.node))


def _runs_model(at: Event, region: autocast_regions.Region) -> bool:
    return any(autocast_regions.is_module_call(e) for e in autocast_regions.inside(at.unit, region))
