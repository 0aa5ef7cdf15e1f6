"""NUM101: the first operator of a step that made NaN or an infinity from finite values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchvet.recording import records
from torchvet.rules.kit import Edit, Finding, Measured, RankRecording, Recording, Related, Rule, Severity, SourceFile
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics._data_origins import Origin, origin_of
from torchvet.rules.numerics._spreads import divided_by
from torchvet.rules.numerics.fixes.guards import guarded

_HABIT, _OFTEN = 3, 20
"""So many losses that are not finite, and one in so many steps, are no accident of a single batch."""
_CALIBRATING = 3
"""Skips in a row that a scaler may need to find its scale."""
_WHERE = {
    "loss": "the loss",
    "gradient": "a gradient",
    "output": "what the model gives without gradients",
    "parameter": "a parameter",
    "number": "a number that the program takes after passes without gradients",
    "skipped": "a loss that the program leaves out",
}


class FirstNonfinite(Rule):
    """The loss or the gradients are NaN or infinite, and this operation was the first."""

    severity = "error"
    fix_changes_results = True
    fix_keeps_finite = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Keep the operand of a root, a logarithm or a division away from zero."""
        return guarded(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """The failures that a replay has looked into, one for each place and reason."""
        totals = rank.last(records.nonfinite.NonFiniteTotals) or records.nonfinite.NonFiniteTotals(tick=rank.ticks)
        seen = set()
        for record in say.settled(rank.all(records.nonfinite.NonFinite)):
            key = (record.place, record.reason, record.operator)
            if key not in seen:
                seen.add(key)
                origin = origin_of(record, recording)
                if record.columns and origin.place is None:
                    origin.related += divided_by(recording)
                yield self._finding(rank, record, totals, origin)

    def _finding(
        self,
        rank: RankRecording,
        record: records.nonfinite.NonFinite,
        totals: records.nonfinite.NonFiniteTotals,
        origin: Origin,
    ) -> Finding:
        return self.observed(
            rank,
            severity=severity_of(record, totals, rank.ticks),
            message=message_of(record) + origin.message + _left_out(record, totals),
            place=record.assigned or origin.place or record.place,
            cause=say.cause(record) + origin.cause,
            advice=origin.advice or say.advice(record),
            measured=Measured(steps=_happened(record)),
            related=[*related_of(record, totals), *origin.related],
            about=say.about(record),
        )


def _left_out(record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals) -> str:
    """How many batches went like this one."""
    if record.symptom != "skipped" or totals.skipping < _HABIT:
        return ""
    return f"; {totals.skipping:,} batches since then went without a backward pass"


def _happened(record: records.nonfinite.NonFinite) -> int:
    """The step in which it went wrong: a parameter's that a step found bad was an earlier one, if that is known."""
    return record.since if record.reason == "bad-parameter" and record.since is not None else record.tick


def severity_of(record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals, ticks: int) -> Severity:
    """An error where weights are lost for good, a warning where the run ended before it recovered or a loss is not
    finite again and again: whatever averages it, or keeps the best of it, is lost, and what a scaler leaves out then no
    scale would have saved. Else information."""
    if record.symptom in ("output", "number"):
        return _of_evaluation(record, totals)
    if record.symptom == "skipped":
        return _of_left_out(totals, ticks)
    if totals.first_stepped is not None or record.reason == "bad-parameter":
        return "error"
    if record.symptom == "loss" and totals.nan_losses > 1:
        return "warning"  # a scale that is too large makes infinities, and no scale makes this; one is an accident
    habit = _is_habit(totals.losses, ticks)
    if record.scale is not None:
        return _of_scaled(record, totals, ticks, habit)
    ended = totals.last_bad is not None and totals.last_bad >= ticks and totals.losses > 1
    return "warning" if ended or habit else "info"


def _of_evaluation(record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals) -> Severity:
    """Numbers of evaluation are heard of in sampled steps only, and an average of many is lost by one. Where no look
    showed the operation, it may be the rate of nothing."""
    if record.symptom == "output":
        ruined = totals.ruined >= _HABIT and 2 * totals.ruined >= totals.passes
        return "warning" if ruined or _is_habit(totals.outputs, totals.passes) else "info"
    many = totals.nan_numbers > 1 or 2 * totals.nan_numbers >= totals.numbers
    return "warning" if record.found == "operator" and many else "info"


def _of_left_out(totals: records.nonfinite.NonFiniteTotals, ticks: int) -> Severity:
    """A program that goes on without a loss may never step."""
    if totals.skipping >= max(_HABIT, totals.checked):
        return "error"  # of most batches no step comes
    # Heard of in sampled steps only: to meet two by chance, many must be so.
    return "warning" if totals.left_out > 1 or _is_habit(totals.skipping, ticks) else "info"


def _of_scaled(
    record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals, ticks: int, habit: bool
) -> Severity:
    """A scaler leaves an overflowed step out and goes on with half the scale: that is how it works."""
    recovered = totals.last_bad is not None and totals.last_bad < ticks - 2
    lasting = _skips_for_good(record, totals) or (habit and record.symptom == "loss")
    return "info" if recovered and not lasting else "warning"


def _is_habit(count: int, of: int) -> bool:
    """Whether something happens again and again."""
    return count >= _HABIT and _OFTEN * count >= of


def _skips_for_good(record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals) -> bool:
    """Whether a scaler skipped every step until the end for what no smaller scale prevents. Skips from the start
    on need not count as steps of the run (an optimizer that has yet to step may be waiting for an accumulation)."""
    of_the_scale = record.phase == "backward" and record.reason in ("overflow", "unknown")
    return totals.trailing > _CALIBRATING and not of_the_scale


def message_of(record: records.nonfinite.NonFinite) -> str:
    """What happened, in one line."""
    where = f"{_WHERE[record.symptom]} is not finite in {say.step(record)}"
    if record.found == "not-reproduced":
        return f"{where}; no look at it has shown the operation"
    if record.found == "input":
        held = say.named(record.result, "a tensor")
        if record.assigned is not None:
            return f"{where}: {held} is not since this line assigned it in step {record.since}"
        return f"{where}: {held} was not before any operation ran"
    module = f" in {record.module}" if record.module else ""
    return f"{where}: {say.operator(record)}{module} was the first to give {say.what(record)}"


def related_of(record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals) -> Iterator[Related]:
    """What else is known: the weights' fate, other dtypes, autocast, how exact the replay was."""
    if record.inner is not None:
        yield Related(role="within", message=record.inner.function, path=record.inner.path, line=record.inner.line)
    if record.assigned is not None and record.place is not None:
        place = record.place
        yield Related(role="used", message="the loss is computed with it here", path=place.path, line=place.line)
    for role, message in _remarks(record, totals).items():
        if message:
            yield Related(role=role, message=message)


def _remarks(record: records.nonfinite.NonFinite, totals: records.nonfinite.NonFiniteTotals) -> dict[str, str | None]:
    """What else there is to say of a failure, by role; nothing or None where a role does not apply."""
    shown = record.found != "not-reproduced"
    policy = "" if record.device != "cpu" else "; the CPU's lists of operators are not CUDA's"
    lost = f"optimizer.step() ran with gradients that are not finite from step {totals.first_stepped} on: the weights "
    later = (
        f"step {record.failed} went wrong as well and could not be done again: the steps after it were looked at as "
    )
    return {
        "weights": f"{lost}are lost since" if totals.first_stepped is not None else None,
        "dtype": say.survival(record),
        "autocast": f"under autocast to {record.autocast}{policy}" if record.autocast is not None else None,
        "then": record.note if shown and record.reason != "no-alignment" else None,
        "live": f"{later}they ran" if shown and record.failed is not None else None,
        "replay": "not every value was as in the run: the replay is not exact" if shown and not record.exact else None,
    }
