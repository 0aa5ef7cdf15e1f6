"""DEV104: an index or a class is outside what it selects from."""

from __future__ import annotations

from torchvet.rules.device import _crashes
from torchvet.rules.kit import Finding, Findings, RankRecording, Recording, Rule, records

_LATER = (
    "on a GPU this is a device-side assert: the error is raised at whatever the host does next, in another line, says "
    "neither value nor bound, and no CUDA call works any more in the process"
)
_SIMULATED = f"{_LATER}; the simulated GPU raises it at the line itself"


class IndexOutOfRange(Rule):
    """An index or a class is outside what it selects from."""

    severity = "error"
    bad_raises = "index out of range in self"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """An error that ended the program for such a value, or a device-side assert."""
        for record in rank.all(records.device.BadValue):
            if record.kind == "index":
                yield self._finding(rank, record)
            elif record.kind == "unknown":
                yield self._assert(rank, record)

    def _finding(self, rank: RankRecording, record: records.device.BadValue) -> Finding:
        name = record.name or f"what {record.operation or 'the operation'} was given"
        value = f"{record.values[0]:.0f}" if record.values else "a value"
        low = f"{record.low:.0f}" if record.low is not None else "0"
        high, bound = "less than there are", record.bounded_by
        if record.high is not None:
            high = f"{record.high - 1:,.0f}"
            bound = bound or f"there are {record.high:,.0f} to choose from"
        later = (_SIMULATED if record.simulated else _LATER) if record.asserted else ""
        message = f"{name} holds {value}{_crashes.positions(record)}: {record.operation} takes {low} to {high}"
        cause = "; ".join(filter(None, [bound, later]))
        return self.observed(rank, record.place, message, cause=cause, advice=_advice(record))

    def _assert(self, rank: RankRecording, record: records.device.BadValue) -> Finding:
        return self.observed(
            rank,
            record.place,
            "a kernel asserted: an index, a class or a probability that it was given is out of range",
            cause="the GPU reports it late: the fault is in this line or in one that ran before it, and the GPU cannot "
            "be read any more to see the value",
            advice="run it on the CPU, or under `torchvet run --simulate-gpu`: there the value, its row and the line "
            "are reported; `CUDA_LAUNCH_BLOCKING=1` reports at least the line",
        )


def _advice(record: records.device.BadValue) -> str:
    value = record.values[0] if record.values else 0.0
    if record.ignored is not None and value < 0:
        return f"if {value:.0f} means 'no label', say `ignore_index={value:.0f}`: it is {record.ignored} here"
    if record.high is not None and value == record.high:
        return "the value is the size itself: count from 0, or make the size one larger"
    if value < 0:
        return "a negative value is no index here: look for the padding or the missing entry that it stands for"
    return "make the size larger, or find out where the data gets such a value"
