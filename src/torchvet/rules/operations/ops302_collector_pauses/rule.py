"""OPS302: Python's garbage collector stops the program."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Iterator, Place, RankRecording, Recording, SourceFile, events_at
from torchvet.rules.shared.line_costs import Cost
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import is_call

_CAUSE = "a full collection visits every container object of the process, and no Python runs meanwhile"
_LESS = "take gc.collect() out of the step, or call it at an interval of hundreds of steps"
_RARELY = "call gc.freeze() after the set-up, and gc.disable(); then gc.collect() at an interval"


class CollectorPauses(TraceRule):
    """Python's garbage collector stops the step."""

    severity = "info"
    lost_in = "collector"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The statement taken out that does nothing else."""
        for event in events_at(file, finding):
            alone = isinstance(event.statement, ast.Expr) and event.statement.value is event.node
            if alone and is_call(event.node, "collect"):
                return without_statement(file, event.statement)
        return ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Lines that call for collections, by their time; and where there are none, the automatic ones."""
        from torchvet.analysis.host_work import AUTOMATIC, COLLECTING, HostWork
        from torchvet.analysis.line_times import operators_of, timing_of

        timing = timing_of(rank)
        if timing is None:
            return
        works = HostWork(timing, operators_of(rank)[1]).works()
        for work in works:
            cost = Cost(timing, work.parts)
            if work.kind == COLLECTING and cost.counts:
                message = f"`gc.collect()` takes {cost.of_step()}"
                yield self._pauses(rank, work.statements[0].place, message, cost, _LESS)
        cost = Cost(timing, [part for work in works if work.kind == AUTOMATIC for part in work.parts])
        if cost.counts:
            message = f"automatic collections of garbage take {cost.of_step()}"
            yield self._pauses(rank, None, message, cost, _RARELY)

    def _pauses(self, rank: RankRecording, at: Place | None, message: str, cost: Cost, advice: str) -> Finding:
        return self.observed(
            rank,
            at,
            message,
            cause=f"{_CAUSE}; {cost.without()}",
            advice=advice,
            severity=cost.severity(),
            measured=cost.measured(),
        )

    def slow(self, found: Worst) -> Finding:
        """Collections that the trace shows: those called for, and with stacks the automatic ones as well."""
        message = f"Python's garbage collector takes {found.of_step(found.costs[0].duration)}{found.where()}"
        advice = "take gc.collect() out of the step; or gc.freeze() after the set-up and collect rarely"
        return self.loses(found, message, _CAUSE, advice)
