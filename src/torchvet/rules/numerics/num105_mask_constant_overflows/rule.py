"""NUM105: a mask constant that float16 cannot hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from torchvet.rules.kit import Edit, Finding, RankRecording, Recording, Severity, SourceFile, events_at, records
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.numerics.fixes.masks import knows_finfo
from torchvet.rules.shared import autocast_regions, half_precision
from torchvet.source.model import Event, argument, edits, is_call, keyword, name_set, operand, receiver, terminal, walk

_LARGEST = 65504.0
_RAISED = re.compile(r"cannot be converted to type .*Half without overflow")
_OUT_OF_RANGE = "out of float16's range, which ends at 65504: the result is infinite"
_FILLS = ("masked_fill", "masked_fill_", "fill_", "full_like", "new_full", "full")
_SHAPING = name_set("view reshape transpose permute mul_ div_ mul div squeeze unsqueeze masked_fill")
_PRODUCTS = ("matmul", "bmm", "mm", "einsum", "baddbmm", "linear")


class MaskConstantOverflows(_runs.NumberRule):
    """A mask constant, such as -1e9, that float16 cannot hold."""

    severity = "error"
    specialises = "NUM101"
    reasons = ("overflow",)
    words = ("masked_fill", "masked_fill_", "fill_", "full")
    bad_raises = "without overflow"
    fix_may_change_losses = True
    # On a CPU autocast is off, or of another dtype, where a GPU would be in float16.
    needs_at_work = "CUDA"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Half of the dtype's least number in the place of the constant: it leaves room for a score, and its
        exponential is 0."""
        if not knows_finfo(file):
            return ()
        for event in events_at(file, finding):
            written = [n for n in walk(event.statement) if _is_mask_constant(n)]
            variables = (n for n in walk(event.statement) if isinstance(n, ast.Name))
            names = {n.id for n in variables if _is_added_to(n, event.statement)}
            if len(written) == len(names) == 1 and edits.on_one_line(written[0]):
                return [edits.replace(file, written[0], f"(torch.finfo({names.pop()}.dtype).min / 2)")]
        return ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """A program that ended in such a fill, and a mask constant that a score pushed out of float16's range."""
        outcome = rank.last(records.training.Outcome)
        if outcome is not None and outcome.place is not None and _RAISED.search(outcome.error or ""):
            step = outcome.ticks + 1
            message = f"the program ended in its step {step}: a constant that float16, which ends at 65504, cannot hold"
            cause = "the tensor is float16 here, by its dtype or under autocast"
            advice = "fill with `torch.finfo(scores.dtype).min`"
            yield self.at(rank, outcome.place, message, cause, advice, "error", step)
        yield from super().in_rank(rank, recording)

    def failed(self, failure: _runs.Failure, recording: Recording) -> Iterator[Finding]:
        """A sum or product in float16 that is infinite, of a constant that is too large for a score beside it."""
        record = failure.record
        if failure.operator not in ("add", "add_", "sub", "mul") or not record.result or record.result.nans:
            return
        constant = max((o.largest for o in record.operands if o.dtype == "float16"), default=0.0)
        masked = _times_mask(record) if failure.operator == "mul" else 0.0
        # A constant in range is fine by itself; the score that is added takes it over 65504.
        if constant >= _LARGEST / 2:
            message = f"{failure.operator} pushed a constant of {_runs.figure(constant)} {_OUT_OF_RANGE}"
            cause = "a mask constant close to the limit leaves no room for the score that it is added to"
            advice = "use `masked_fill` with `torch.finfo(scores.dtype).min` in place of adding it"
            yield self.in_step(failure, message, cause, advice)
        elif masked:
            message = f"a product of a mask of zeros and ones takes a constant of {masked:.3g} {_OUT_OF_RANGE}"
            cause = "an infinity that is added to scores leaves NaN where a row is masked throughout, or meets another"
            advice = "use `masked_fill` with `torch.finfo(scores.dtype).min`, or build the mask in float32"
            yield self.in_step(failure, message, cause, advice)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A fill of a float16 tensor, or of a product in a module that this file runs in float16."""
        if not file.mentions(*half_precision.WORDS, "autocast"):
            return
        for event in file.calls(*_FILLS):
            value = self._value(event)
            number = _terms.number(value, event.unit)
            severity = self._severity(file, event) if number is not None and abs(number) > _LARGEST else None
            if value is not None and severity is not None:
                yield self._finding(file, event, value, severity)

    @staticmethod
    def _value(event: Event) -> ast.expr | None:
        call, name = event.call, terminal(event.node)
        by_function = event.unit.file.dotted(call.func).startswith("torch.") and name in ("masked_fill", "fill_")
        place = (name != "fill_") + by_function
        return keyword(call, "fill_value") or argument(call, "value", place)

    def _severity(self, file: SourceFile, event: Event) -> Severity | None:
        """`error` where the tensor is surely float16, `warning` where it is if a switch is on, None otherwise."""
        if terminal(event.node) == "full":
            return "error" if half_precision.kind(event.node, event) == "fp16" else None
        tensor, given = operand(file, event.call), keyword(event.call, "dtype")
        if tensor is None:
            return None
        if given is not None:
            return "error" if half_precision.named(file, given, event.unit) == "fp16" else None
        if half_precision.kind(tensor, event) == "fp16":
            return "error"
        # Under autocast what a matrix product gives is half; of other tensors the text does not say it.
        if not _is_product(tensor, event):
            return None
        state = autocast_regions.state(event)
        return self._in_region(state) if state is not None else self._in_module(file, event)

    @staticmethod
    def _in_region(region: autocast_regions.Region) -> Severity | None:
        """In an fp16 region what a matrix product gave is float16."""
        if region.dtype != "fp16" or region.enabled == "no":
            return None
        return "error" if region.enabled == "yes" else "warning"

    @staticmethod
    def _in_module(file: SourceFile, event: Event) -> Severity | None:
        """In a module of this file that is converted to float16, or called in an fp16 region."""
        owner, lines = event.unit.owner, file.lines[event.unit.first - 1 : event.unit.last]
        if owner is None or "module" not in file.roles.of_class(owner):
            return None
        # The function may compute its scores in float32 by itself.
        if any("float" in line and "masked_fill" not in line for line in lines):
            return None
        if half_precision.half_classes(file).get(owner.name) == "fp16":
            return "error"
        found = half_precision.run_under_autocast(file, "fp16").get(owner.name)
        return "error" if found == "yes" else "warning" if found else None

    def _finding(self, file: SourceFile, event: Event, value: ast.expr, severity: Severity) -> Finding:
        tensor = operand(file, event.call) if terminal(event.node) != "full" else None
        name = file.segment(tensor) if tensor is not None else "the tensor"
        made: list[Edit] = []
        if isinstance(tensor, ast.Name) and file.imports.names.get("torch") == "torch":
            bound = "min" if (_terms.number(value, event.unit) or 0) < 0 else "max"
            made = [edits.replace(file, value, f"torch.finfo({name}.dtype).{bound}")]
        message = f"{file.segment(value)} does not fit into float16, which ends at 65504: filling {name} raises"
        cause = f"{name} is float16 here"
        advice = f"fill with `torch.finfo({name}.dtype).min`" if tensor is not None else "fill with what fits"
        return self.suspect(file, event, message, severity=severity, cause=cause, edits=made, advice=advice)


def _times_mask(record: records.nonfinite.NonFinite) -> float:
    """The constant beyond float16's range that a float16 tensor of zeros and ones was multiplied by; 0 for none."""
    tensors = [o for o in record.operands if o.dtype == "float16"]
    constant = max((o.largest for o in record.operands if o.dtype != "float16" and not o.shape), default=0.0)
    mask = bool(tensors) and all(o.largest == o.smallest == 1.0 for o in tensors)
    return constant if mask and constant > _LARGEST else 0.0


def _is_product(node: ast.expr, event: Event, depth: int = 0) -> bool:
    """Whether a value comes from a matrix product, scaled or reshaped since."""
    if depth > 5:
        return False
    if isinstance(node, ast.Name):
        value, at = _terms.meaning(node, event)
        return value is not node and _is_product(value, at, depth + 1)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return True
        plain = (ast.Constant, ast.Attribute, ast.Call, ast.BinOp)
        scaled = isinstance(node.op, (ast.Div, ast.Mult)) and isinstance(node.right, plain)
        return scaled and _is_product(node.left, event, depth + 1)
    if is_call(node, *_PRODUCTS):
        return True
    on = receiver(node) if is_call(node, *_SHAPING) else None
    return on is not None and _is_product(on, event, depth + 1)


def _is_mask_constant(node: ast.AST) -> TypeGuard[ast.UnaryOp]:
    """`-1e9`, or what else has no place in float16."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub):
        return False
    value = getattr(node.operand, "value", None)
    return isinstance(value, (int, float)) and _LARGEST / 2 <= value < float("inf")


def _is_added_to(name: ast.Name, statement: ast.AST) -> bool:
    """Whether a sum's one side is this name, bare: the scores."""
    sums = (n for n in walk(statement) if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Add, ast.Sub)))
    augmented = isinstance(statement, ast.AugAssign) and statement.target is name
    return augmented or any(name in (n.left, n.right) and not _is_one(n) for n in sums)


def _is_one(node: ast.BinOp) -> bool:
    """`1 - mask`."""
    return isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant)
