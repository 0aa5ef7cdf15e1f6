"""NUM107: a sum, counter or running mean is kept in half precision."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

from torchvet.rules.kit import Edit, Finding, Place, RankRecording, Recording, Severity, SourceFile, events_at, records
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.numerics.fixes.full_precision import only_numbers_come_out, started_float32
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, Loop, is_call, name_set, receiver, steps, terminal, under_methods
from torchvet.source.syntax import remainders

_STARTS = name_set("zeros zeros_like tensor ones ones_like full new_zeros empty full_like as_tensor register_buffer")
_WRITTEN = ("+=", "-=", ".add_(", ".lerp_(")
_ADVICE = "in float32 (`dtype=torch.float32`), or add Python numbers (`.item()`)"
_FEW = 64
"""Turns whose sum loses little: beyond that the start or the reset of a sum is looked for further out."""
_LASTS = 16
"""Looks without a fall from which on a sum is not set to zero every few steps."""


class HalfAccumulation(_runs.NumberRule):
    """A sum, counter or running mean is kept in half precision."""

    severity = "warning"
    words = (".half", "float16")
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """What is added to on the line begun in float32."""
        found = {ast.unparse(t): (t, e) for e in events_at(file, finding) if (t := self._target(e)) is not None}
        return started_float32(file, *next(iter(found.values()))) if len(found) == 1 else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """What a line adds to in every step, and that has stopped moving, or moves in jumps."""
        for record in _most_by_place(rank):
            if 2 * record.stalled >= record.elements > 0 or 2 * record.coarse >= record.elements > 0:
                yield self._stalls(rank, record)
            elif record.elements and "lerp" not in record.operator:
                yield self._will_stall(rank, record)

    def _stalls(self, rank: RankRecording, record: records.numeric.HalfSum) -> Finding:
        value, addend, apart = (_runs.figure(v) for v in (record.value, record.addend, record.spacing))
        what = "a number" if not record.shape else f"a tensor of shape {record.shape}"
        stopped = 2 * record.stalled >= record.elements
        part = f", {_runs.share(record.stalled, record.elements)} of the looked-at elements" if record.shape else ""
        harm = f"has stopped moving{part}: at {value}" if stopped else f"moves in jumps: at {value}"
        since = f" (last change after step {record.moved} of {record.tick})" if stopped else ""
        message = f"{what} that is added to in {record.dtype} {harm} the next number is {apart} away, and {addend} "
        # `x = x - rate * f(x)` may be a sampler's state: that it rounds is no accumulator's fault.
        carried = record.operator in ("add", "sub") and record.elements > 1
        return self._rounds(rank, record, f"{message}is added{since}", "info" if carried else "warning")

    def _will_stall(self, rank: RankRecording, record: records.numeric.HalfSum) -> Finding:
        """Not yet: a sum of like terms stands still after as many as the dtype has steps between powers of two."""
        # Adding 1 stands still at 2048 in float16 and at 256 in bfloat16.
        most, value, addend = (
            records.numeric.EXACT[record.dtype],
            _runs.figure(record.value),
            _runs.figure(record.addend),
        )
        left = max(0.0, most - abs(record.value / record.addend)) if record.addend else most
        message = (
            f"what is added to here in {record.dtype} stands still once it is {most:,} times what is added: "
            f"at {value}, with {addend} added, in about {left:,.0f} steps"
        )
        # An operator in place keeps its tensor; what is bound anew may start afresh at any step.
        lasts = record.grows and record.looks >= _LASTS and record.operator.endswith("_")
        return self._rounds(rank, record, message, "warning" if lasts else "info")

    def _rounds(
        self, rank: RankRecording, record: records.numeric.HalfSum, message: str, severity: Severity
    ) -> Finding:
        digits = records.numeric.EXACT[record.dtype].bit_length() - 1
        cause = f"{record.dtype} has {digits} binary digits: the sum is rounded to them at each addition"
        return self.at(rank, record.place, message, cause, f"keep it {_ADVICE}", severity, record.tick)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`+=`, `.add_`, `.lerp_` in a loop, or in a method, on what began as a half tensor before it."""
        lines = {file.line_of(p) for sign in _WRITTEN for p in file.words.positions(sign)}
        for unit in file.units_at(sorted(lines)):
            for event in unit.events:
                target = self._target(event)
                if target is None:
                    continue
                kind = _accumulates(target, event) or _averaged(target, event)
                turns = _turns_between_resets(target, event)
                if kind and not (turns is not None and turns <= _FEW):
                    yield self._finding(file, event, target, half_precision.NAMES[kind], turns)

    @staticmethod
    def _target(event: Event) -> ast.expr | None:
        node = event.node
        if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
            return node.target
        if is_call(node, "add_", "lerp_") and isinstance(event.parent, ast.Expr):
            return under_methods(receiver(node), ("mul_", "detach"))
        return None

    def _finding(self, file: SourceFile, event: Event, target: ast.expr, dtype: str, turns: float | None) -> Finding:
        name, most = file.segment(target), records.numeric.EXACT[dtype]
        severity: Severity = "info" if turns is not None and not most < turns < math.inf else "warning"
        message = f"{name} adds up in {dtype}: it stalls where it is {most} times what is added"
        cause = f"next to {most} the numbers of {dtype} are 2 apart, so that adding 1 changes nothing"
        advice = f"make {name} float32{_ADVICE.removeprefix('in float32')}"
        made = started_float32(file, target, event) if only_numbers_come_out(file, target, event) else ()
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=severity, edits=made)


def _most_by_place(rank: RankRecording) -> list[records.numeric.HalfSum]:
    """Of all tensors that one line adds to (the parameters of a model, say) the one of which most was looked at."""
    last = {(r.place, r.shape): r for r in rank.all(records.numeric.HalfSum)}
    most: dict[Place, records.numeric.HalfSum] = {}
    for record in last.values():
        before = most.get(record.place)
        if before is None or record.elements > before.elements:
            most[record.place] = record
    return list(most.values())


def _accumulates(target: ast.expr, event: Event) -> str:
    """The half dtype of an accumulator that is added to again and again; empty where it is none."""
    if isinstance(target, ast.Attribute):
        return _of_attribute(target, event)
    if not event.is_own(target):
        return ""
    start = half_precision.latest(target.id, event)
    value = getattr(start.node, "value", None) if start is not None else None
    if start is None or value is None or not _repeated(start, event):
        return ""
    # `total = 0` has no dtype: the first addend gives it its own.
    if isinstance(value, ast.Constant) and isinstance(event.node, ast.AugAssign):
        return half_precision.kind(event.node.value, event)
    return half_precision.kind(value, start) if _is_start(value) else ""


def _of_attribute(target: ast.Attribute, event: Event) -> str:
    """`self.count += 1` in a method that is called again and again, where `__init__` made it half."""
    unit, owner = event.unit, event.unit.method_class()
    if owner is None or unit.name == "__init__" or terminal(target.value) != unit.self_name():
        return ""
    values = [v for e, v in owner.attributes.get(target.attr, ()) if not isinstance(e.node, ast.AugAssign)]
    return half_precision.kind(target, event) if all(map(_is_start, values)) else ""


def _is_start(value: ast.expr | None) -> bool:
    """Whether a value is a fresh tensor: what came from a model and is added to is no accumulator."""
    while isinstance(value, ast.Call) and terminal(value) not in _STARTS:
        value = receiver(value)
    return isinstance(value, ast.Call)


def _repeated(start: Event, event: Event) -> bool:
    """Whether additions repeat in a loop that the start is outside of, more often than the dtype can count."""
    loop: Loop | None = event.loop
    while loop is not None and loop.parent is not None and start.loop is not loop.parent:
        loop = loop.parent
    if loop is None or start.inside(loop):
        return False
    around = getattr(loop.node, "iter", None)
    if is_call(around, "range") and around.args:
        times = _terms.number(around.args[0 if len(around.args) == 1 else 1], event.unit)
        return times is None or times > _FEW
    # Within a `forward` a sum runs over layers, of which there are few.
    owner = event.unit.owner
    return owner is None or "module" not in event.unit.file.roles.of_class(owner)


def _turns_between_resets(target: ast.expr, event: Event) -> float | None:
    """How many turns at most an accumulator adds up before it is set to zero every so many turns: infinite where the
    text does not give the number; None where nothing sets it to zero that often."""
    return min((turns for reset in _resets(target, event) for turns in _periods(reset)), default=None)


def _resets(target: ast.expr, event: Event) -> Iterator[Event]:
    """Where an accumulator is filled or bound anew: an attribute in any method of its class."""
    owner = event.unit.method_class() if isinstance(target, ast.Attribute) else None
    units = list(owner.methods.values()) if owner is not None else [event.unit]
    for call in (e for unit in units for name in ("zero_", "fill_") for e in unit.calls.get(name, ())):
        if steps.text_of(receiver(call.call)) == steps.text_of(target):
            yield call
    for bound, value in owner.attributes.get(terminal(target), ()) if owner is not None else ():
        if value is not None and bound.unit in units and bound.unit.name != "__init__":
            yield bound


def _periods(event: Event) -> Iterator[float]:
    """After how many turns each branch with a remainder in its condition is taken; infinite where that is unknown."""
    for branch, _ in event.context.arms:
        test = getattr(branch, "test", None)
        first = next(remainders(test), None) if test is not None else None
        if first is not None:
            turns = _terms.number(first.right, event.unit)
            yield math.inf if turns is None else turns


def _averaged(target: ast.expr, event: Event) -> str:
    """The half dtype of a module whose parameters a loop moves a little: `s.mul_(d).add_(…)`, `s.lerp_(…)`."""
    node, loop = event.node, event.loop.node if event.loop is not None else None
    moves = is_call(node, "lerp_") or (isinstance(node, ast.Call) and is_call(receiver(node), "mul_"))
    if not moves or not isinstance(target, ast.Name) or not isinstance(loop, ast.For):
        return ""
    pairs = [(loop.target, loop.iter)]
    if isinstance(loop.target, ast.Tuple) and is_call(loop.iter, "zip"):
        pairs = list(zip(loop.target.elts, loop.iter.args, strict=False))
    iterated = next((given for one, given in pairs if terminal(one) == target.id), None)
    on = receiver(iterated) if is_call(iterated, "parameters") else None
    return half_precision.of_module(on, event) if on is not None else ""
