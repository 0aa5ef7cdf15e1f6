"""NUM103: an eps that is 0 in float16."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Finding, RankRecording, Recording, Severity, SourceFile, events_at, records
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, edits, is_call, keyword, walk

if TYPE_CHECKING:
    pass

_LITERAL = r"\b\d+(?:\.\d*)?[eE]-0*(?:[89]|[1-9]\d)\b"
"""A number that vanishes."""
_WRITTEN = re.compile(_LITERAL)
_EXPONENT = re.compile(r"[eE]-0*(?:[89]|[1-9]\d)\b")
"""Its end, which is quickly searched for."""
_BOUND = re.compile(r"(\w+)\s*(?::\s*\w+\s*)?=\s*$")
"""The name that a number is bound to, by the text before it."""
_CAUSE = "the smallest number of float16 is 5.96e-8; what is at most half of it becomes 0"
_ADVICE = "compute this line in float32 (`.float()`), or use an eps of 1e-4 or so"
_SENSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal")


class EpsVanishes(_runs.NumberRule):
    """An eps that is 0 in float16 protects nothing."""

    severity = "warning"
    specialises = "NUM101"
    words = (".half", "float16")
    fix_changes_results = True
    # The line may have run before the first sampled step: that a run is silent proves nothing.
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """An eps that float16 has, in the place of the one that is written on the line."""
        events = events_at(file, finding)
        nodes = {id(n): n for e in events for n in walk(e.statement) if isinstance(n, ast.Constant)}.values()
        line = finding.location.line if finding.location is not None else 0
        written = [
            n for n in nodes if n.lineno == line and isinstance(n.value, float) and 0 < n.value <= _terms.LARGEST_ZERO
        ]
        return [edits.replace(file, one, "1e-4") for one in written]

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """A division by zero in float16 on a line with such an eps; and every such eps, with the zeros it met."""
        constants = {record.place: record for record in _runs.by_place(rank, records.numeric.VanishedConstant)}
        for failure in _runs.failures(rank, "division-by-zero", "zero-by-zero", "log-of-zero"):
            place = failure.record.place
            if place is not None and place in constants and _runs.half_operand(failure.record) is not None:
                zeros = max((operand.zeros for operand in failure.record.operands), default=0)
                harm = f"{failure.operator} met {zeros:,} zeros, and the result is not finite"
                message = f"{harm}: {constants.pop(place).constant:g}, which was to keep them away, is 0 in float16"
                yield self.in_step(failure, message, _CAUSE, _ADVICE)
        for record in constants.values():
            met = f"{record.zeros:,} of {record.elements:,} elements were 0 there"
            none = f"none of {record.elements:,} elements was 0 in the sampled steps"
            message = f"{record.constant:g} is 0 in float16: nothing keeps 0 away from {record.user}; "
            message += met if record.zeros else none
            severity: Severity = "error" if record.zeros else "info"
            yield self.at(rank, record.place, message, _CAUSE, _ADVICE, severity)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A vanishing eps under a division, root or logarithm of a tensor that is float16 by the text."""
        if not half_precision.names_fp16(file):
            return
        numbers = list(_WRITTEN.finditer(file.text)) if _EXPONENT.search(file.text) else []
        if not numbers and not file.mentions(".normalize("):
            return
        for event in _terms.statements_with(file, self._where(file.text, numbers)):
            for node in walk(event.statement):
                found = self._unprotected(node, event)
                if found is not None:
                    yield self._finding(file, event, *found)
                    break

    @staticmethod
    def _where(text: str, numbers: list[re.Match[str]]) -> re.Pattern[str]:
        """Where such a number, or a name of one, is used."""
        before = [_BOUND.search(text[max(0, m.start() - 60) : m.start()]) for m in numbers]
        names = sorted({b.group(1) for b in before if b is not None})
        return re.compile("|".join([_LITERAL, r"\.normalize\(", *(rf"\b{name}\b" for name in names)]))

    def _unprotected(self, node: ast.AST, event: Event) -> tuple[ast.expr, ast.expr, str] | None:
        """The tensor, what is computed of it and the eps that vanishes, where a node is such a computation."""
        file = event.unit.file
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            guarded: ast.expr | None = node.right
        elif is_call(node, "normalize"):
            return self._normalized(node, event)
        else:
            guarded = _terms.operand_of(file, node, *_SENSITIVE)
        for tensor, eps in _with_eps(file, guarded):
            value = _terms.number(eps, event.unit)
            vanishes = value is not None and 0 < value <= _terms.LARGEST_ZERO
            if vanishes and isinstance(node, ast.expr) and _is_half(tensor, event):
                return tensor, node, file.segment(eps)
        return None

    @staticmethod
    def _normalized(node: ast.Call, event: Event) -> tuple[ast.expr, ast.expr, str] | None:
        if event.unit.file.dotted(node.func) != "torch.nn.functional.normalize" or not node.args:
            return None
        eps = keyword(node, "eps")
        # `F.normalize` has an eps of 1e-12, which is 0 in half: a zero row gives infinite gradients.
        value = 1e-12 if eps is None else _terms.number(eps, event.unit)
        vanishes = value is not None and value <= _terms.LARGEST_ZERO
        return (node.args[0], node, f"{value:g}") if vanishes and _is_half(node.args[0], event) else None

    def _finding(self, file: SourceFile, event: Event, tensor: ast.expr, whole: ast.expr, eps: str) -> Finding:
        what = file.segment(tensor)
        message = f"{eps} is 0 in float16: nothing protects {file.segment(whole)} where {what} is 0"
        cause = f"{what} is float16, whose smallest number is 5.96e-8"
        advice = f"compute it in float32 (`{what}.float()`), or use an eps of 1e-4 or so"
        return self.suspect(file, event, message, node=whole, cause=cause, advice=advice)


def _with_eps(file: SourceFile, node: ast.expr | None) -> list[tuple[ast.expr, ast.expr]]:
    """What may be a tensor and the eps beside it: `x + eps`, `x.clamp(min=eps)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [(node.left, node.right), (node.right, node.left)]
    tensor = _terms.operand_of(file, node, "clamp", "clamp_min") if is_call(node, "clamp", "clamp_min") else None
    if tensor is None or not isinstance(node, ast.Call):
        return []
    least = keyword(node, "min") or (node.args[-1] if node.args else None)
    return [(tensor, least)] if least is not None else []


def _is_half(node: ast.expr, event: Event) -> bool:
    """Whether a tensor is float16: by what made it, or since its module was converted as a whole."""
    if half_precision.kind(node, event) == "fp16":
        return True
    unit = event.unit
    if unit.name != "forward" or unit.owner is None:
        return False
    if half_precision.half_classes(unit.file).get(unit.owner.name) != "fp16":
        return False
    return not any("float" in line for line in unit.file.lines[unit.first - 1 : unit.last])
