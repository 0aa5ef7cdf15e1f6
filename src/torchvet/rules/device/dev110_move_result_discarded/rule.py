"""DEV110: a tensor is moved or converted, and the result is thrown away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from torchvet.rules.core.fixing import calls_at
from torchvet.rules.device import _crashes
from torchvet.rules.kit import Edit, Finding, Measured, RankRecording, Recording, Severity, SourceFile, grading, records
from torchvet.rules.shared.sure_tensors import surely_tensor
from torchvet.source import timing
from torchvet.source.model import Event, edits, receiver

_CAUSE = "a tensor's methods that move or convert it return a new one and leave the tensor as it is"
_SURE = 2
"""Sampled steps that must have had it."""
_MOVES = re.compile(r"\.(?:to|cuda|cpu|double|half|float|long|bfloat16)\(")
_BEGINS = re.compile(r"(?:[^\n#=]*[;:])?[ \t]*[\w.]+(?:\[[^\]\n]*\])?\.(to|cuda|cpu|double|half|float|long|bfloat16)\(")
"""A statement that begins with such a call, also behind a semicolon or on the line of its `if`."""


class MoveResultDiscarded(_crashes.CrashRule):
    """A tensor is moved or converted, and the result is thrown away."""

    severity = "error"
    words = (".to(", ".cuda(", ".cpu(", ".double(", ".half(", ".float(", ".long(", ".bfloat16(")
    bad_raises = "must have the same dtype"
    # Where the tensor is on the device already nothing is moved, and steps that were not sampled show nothing.
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The name bound to what its move gives."""
        for event, on in calls_at(file, finding, "to", "cuda", "cpu"):
            if isinstance(event.parent, ast.Expr) and isinstance(on, (ast.Name, ast.Attribute)):
                return [edits.replace(file, event.call, f"{file.segment(on)} = {file.segment(event.node)}")]
        return ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Such statements in steps that went on."""
        crashed = {record.discarded_at for _, record, _ in self.crashes(recording)}
        for discarded in rank.latest(records.device.DiscardedMove):
            if discarded.place not in crashed and discarded.steps >= _SURE:
                yield self._going_on(rank, discarded)

    def crash(
        self, rank: RankRecording, record: records.device.DeviceMismatch, stray: records.device.Placed
    ) -> Finding:
        """A crash whose tensor a statement had moved in vain."""
        subject = record.discarded.rpartition(".")[0]
        return self.observed(
            rank,
            record.discarded_at or record.place,
            f"the result of {record.discarded} is thrown away: {record.moved} stays as it is, and {record.operation} "
            "refuses it",
            cause=_CAUSE,
            advice=f"write `{subject} = {record.discarded}`",
            related=_crashes.evidence(record),
        )

    def _going_on(self, rank: RankRecording, record: records.device.DiscardedMove) -> Finding:
        wasted = record.again >= record.calls
        what = "moved again in the same step" if wasted else f"still {record.before}"
        message = (
            f"the result of {record.text} is thrown away: {record.subject} is {what}, and {record.after} is made and "
            f"dropped {record.calls / record.steps:,.0f} times a step"
        )
        advice = f"write `{record.subject} = {record.text}`, or drop the line"
        measured = Measured(bytes=round(record.bytes / record.calls), steps=record.steps)
        return self.observed(
            rank, record.place, message, cause=_CAUSE, advice=advice, severity=_of_going_on(record), measured=measured
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A call that moves or converts what is surely a tensor, as a statement."""
        for event in self._statements(file):
            on = receiver(event.call)
            if on is None or not isinstance(event.parent, ast.Expr) or not isinstance(event.statement, ast.Expr):
                continue
            named = isinstance(on, (ast.Name, ast.Attribute, ast.Subscript))
            if named and surely_tensor(file, on, event, through_calls=True) and not _made_so(event, on):
                yield self._finding(file, event, on)

    @staticmethod
    def _statements(file: SourceFile) -> Iterator[Event]:
        """Calls that may be whole statements; looking at their lines costs less than walking their units."""
        for match in file.words.lines_like(_BEGINS, _MOVES):
            yield from file.calls_on(file.line_of(match.start(1)), match[1])

    def _finding(self, file: SourceFile, event: Event, on: ast.expr) -> Finding:
        subject, call = file.segment(on), file.segment(event.node)
        # A leaf that is bound anew is no longer what the optimizer was given.
        leaf = file.mentions("requires_grad=True", "requires_grad_(", "Parameter(")
        whole = isinstance(on, (ast.Name, ast.Attribute)) and event.unit.self_name() != subject
        moved = file.devices.move(event.call, event.unit)
        sure = moved is not None and moved[0] == "device"
        change = [edits.replace(file, event.call, f"{subject} = {call}")] if whole else []
        # A benchmark throws results away on purpose.
        timed = timing.is_timed(event.unit.node, event.call)
        return self.suspect(
            file,
            event,
            f"the result of {call} is thrown away: {subject} stays as it is",
            cause=f"{subject} is a tensor, and a tensor's methods that move or convert it return a new one",
            advice=f"write `{subject} = {call}`",
            severity="info" if timed else "error" if sure else "warning",
            edits=() if leaf else change,
            safe=sure and not leaf,
        )


def _of_going_on(record: records.device.DiscardedMove) -> Severity:
    """Of a program that goes on. A copy to the host makes the host wait, a copy before a clock is timed: some programs
    want just that. Where the tensor is moved again and that result is used, copies are all that is lost. Else the
    program computes with what it has not moved or converted."""
    if record.kind == "to host" or record.timed:
        return "info"
    return grading.of_waste(record.bytes // record.steps) if record.again >= record.calls else "warning"


def _made_so(event: Event, on: ast.expr) -> bool:
    """Whether the tensor was made with the very dtype or device that it is converted to: then nothing is lost."""
    if len(event.call.args) != 1 or event.call.keywords:
        return False
    wanted = ast.unparse(event.call.args[0])
    values = [value for value, _ in event.unit.file.roles.values(on, event.unit)]
    return bool(values) and all(
        isinstance(v, ast.Call) and any(ast.unparse(k.value) == wanted for k in v.keywords) for v in values
    )
