"""AMP206: a custom autograd Function multiplies matrices under autocast without `custom_fwd` and `custom_bwd`."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Sequence, SourceFile, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.precision.fixes.moves import line_of
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import ClassModel, Event, Unit, edits, name_set, terminal, walk

_PRODUCTS = name_set("mm matmul bmm addmm linear conv1d conv2d conv3d einsum baddbmm")
_CAREFUL = ("custom_fwd", "custom_bwd", "autocast", ".float()", "float32", ".dtype", "type_as", ".half()", "bfloat16")
"""A Function that mentions one of these minds its dtypes itself."""
_HABIT, _OFTEN = 2, 20
"""So many sampled calls in which a sum overflows, and one in so many, are no accident of a single batch."""


class FunctionWithoutCustomFwd(AutocastRule):
    """A custom autograd Function under autocast lacks `custom_fwd` and `custom_bwd`."""

    severity = "warning"
    words = ("save_for_backward",)
    cause = "without `custom_fwd` its forward runs under autocast; its backward runs outside, on what was saved"
    advice = (
        "decorate `forward` with `torch.amp.custom_fwd(device_type=…)` and `backward` with "
        "`torch.amp.custom_bwd(device_type=…)`"
    )
    bad_raises = "expected m1 and m2 to have the same dtype"
    fix_may_change_losses = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Functions whose backward died of mixed dtypes, and those that gave half results from float32 inputs."""
        died = [e for e in rank.latest(records.autocast.AutocastError, "kind", "place") if e.kind == "function"]
        for error in died:
            message = f"backward of {error.name} raised under mixed precision: {error.message}"
            yield self.seen_at(rank, error.place, message, severity="error")
        for seen in rank.latest(records.autocast.FunctionPrecision, "place"):
            if seen.name not in [e.name for e in died]:
                message = (
                    f"{seen.name} gave {seen.dtype} results from float32 inputs: autocast casts within its forward"
                )
                yield self.seen_at(rank, seen.place, message, severity="info")
        for sums in rank.latest(records.autocast.FunctionOverflow, "place", "operator"):
            yield self._overflowed(rank, sums)

    def _overflowed(self, rank: RankRecording, seen: records.autocast.FunctionOverflow) -> Finding:
        habit = seen.overflowed >= _HABIT and _OFTEN * seen.overflowed >= seen.calls
        return self.seen_at(
            rank,
            seen.place,
            f"{seen.operator} overflows in the forward of {seen.name}, which runs under autocast: "
            f"{seen.infinite:,} of {seen.elements:,} results were infinite in {seen.overflowed:,} of {seen.calls:,} "
            "sampled calls",
            cause="float16 ends at 65504; the operands, or the numbers that were squared, were finite",
            advice="decorate `forward` with `torch.amp.custom_fwd(device_type=…, cast_inputs=torch.float32)` and "
            "`backward` with `torch.amp.custom_bwd(device_type=…)`",
            severity="warning" if habit else "info",
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The decorators of torch.amp on the Function that the line belongs to, computing in float32."""
        line = line_of(file, finding)
        known = file.unit_at(line).method_class() if line is not None else None
        methods = _methods(file, known) if known is not None else None
        if methods is None or finding.device is None or file.imports.names.get("torch") != "torch":
            return ()
        return _decorated(file, methods, finding.device.partition(":")[0], ", cast_inputs=torch.float32")

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A Function of matrix products that saves its inputs, in a file that runs under autocast."""
        for known in file.classes.values() if file.mentions("autocast") else ():
            methods = _methods(file, known) if "function" in file.roles.of_class(known) else None
            saved = _saves_inputs(methods[0]) if methods is not None else None
            if methods is None or saved is None or not all(_multiplies(unit) for unit in methods):
                continue
            region = _used_under(file, known)
            if region is not None:
                yield self._finding(file, known, saved, methods, region)

    def _finding(
        self, file: SourceFile, known: ClassModel, saved: Event, methods: tuple[Unit, Unit], region: autocast.Region
    ) -> Finding:
        device = region.device or "cuda"
        sure = bool(region.device) and file.imports.names.get("torch") == "torch"
        return self.suspect_at(
            saved,
            f"{known.name} runs under autocast without custom_fwd: it saves float32 inputs, and its backward "
            "multiplies them with half gradients",
            node=methods[0].node,
            cause="products in forward are cast by autocast; backward runs outside of it and is not",
            advice=f'decorate forward with `@torch.amp.custom_fwd(device_type="{device}")` and backward with '
            f'`@torch.amp.custom_bwd(device_type="{device}")`, below `@staticmethod`',
            edits=_decorated(file, methods, device) if sure else (),
            related={"saved": saved},
        )


def _methods(file: SourceFile, known: ClassModel) -> tuple[Unit, Unit] | None:
    """Forward and backward of a Function that does not mind its dtypes itself."""
    forward, backward = known.methods.get("forward"), known.methods.get("backward")
    text = file.text_of(known)
    careful = any(word in text for word in _CAREFUL)
    return None if forward is None or backward is None or careful else (forward, backward)


def _decorated(file: SourceFile, methods: tuple[Unit, Unit], device: str, cast: str = "") -> list[Edit]:
    """The decorators of torch.amp right above the `def` of forward and backward, below those that they have."""
    texts = (f'custom_fwd(device_type="{device}"{cast})', f'custom_bwd(device_type="{device}")')
    made = []
    for unit, text in zip(methods, texts, strict=True):
        line, column = unit.node.lineno, unit.node.col_offset  # type: ignore[union-attr]
        made.append(edits.insert(file, (line, 1), f"{file.lines[line - 1][:column]}@torch.amp.{text}{file.newline}"))
    return made


def _saves_inputs(forward: Unit) -> Event | None:
    """The call that saves at least two of the inputs as they came."""
    for event in forward.calls.get("save_for_backward", ()):
        names = {a.id for a in event.call.args if isinstance(a, ast.Name)}
        if len(names & set(forward.parameters[1:])) >= 2:
            return event
    return None


def _multiplies(unit: Unit) -> bool:
    products = (n for n in walk(unit.node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.MatMult))
    return not _PRODUCTS.isdisjoint(unit.calls) or any(products)


def _used_under(file: SourceFile, known: ClassModel) -> autocast.Region | None:
    """The active region that the Function is applied in, itself or through modules of this file."""
    applied = [e for e in file.calls("apply") if terminal(getattr(e.call.func, "value", None)) == known.name]
    state = next((state for e in applied if (state := autocast.state(e)) is not None), None)
    if state is not None:
        return state if state.enabled != "no" else None
    if not any(e.unit.owner is not None for e in applied):
        return None
    opened = ((region, at) for region, at, _ in autocast.opened(file) if region.may_be_on)
    return next((region for region, at in opened if autocast.module_calls(at.unit, region)), None)
