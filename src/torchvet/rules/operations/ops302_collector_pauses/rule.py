"""OPS302: Python's garbage collector stops the program."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edits, Finding, Iterator, RankRecording, SourceFile, events_at
from torchvet.rules.operations._loader_rows import rows_read_at
from torchvet.rules.shared.line_costs import Cost, LineCostRule, joined_parts, works_of
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import is_call

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_CAUSE = "a full collection visits every container object of the process, and no Python runs meanwhile"
_LESS = "take gc.collect() out of the step, or call it at an interval of hundreds of steps"
_RARELY = "call gc.freeze() after the set-up, and gc.disable(); then gc.collect() at an interval"


class CollectorPauses(TraceRule, LineCostRule):
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

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines that call for collections, by their time; and where there are none, the automatic ones."""
        from torchvet.analysis.host_work import AUTOMATIC, COLLECTING

        works = works_of(rank, timing)
        for work, cost in works:
            if work.kind == COLLECTING and cost.counts:
                message, at = f"`gc.collect()` takes {cost.of_step()}", work.statements[0].place
                yield self.takes(rank, at, message, cost, cause=_CAUSE, advice=_LESS)
        # What rows that are read one by one leave behind is OPS301's.
        automatic = [w for w, _ in works if w.kind == AUTOMATIC and rows_read_at(rank, w.site) is None]
        cost = Cost(timing, joined_parts(work.parts for work in automatic))
        if cost.counts:
            message = f"automatic collections of garbage take {cost.of_step()}"
            yield self.takes(rank, None, message, cost, cause=_CAUSE, advice=_RARELY)

    def slow(self, found: Worst) -> Finding:
        """Collections that the trace shows: those called for, and with stacks the automatic ones as well."""
        message = f"Python's garbage collector takes {found.of_step(found.costs[0].duration)}{found.where()}"
        advice = "take gc.collect() out of the step; or gc.freeze() after the set-up and collect rarely"
        return self.loses(found, message, _CAUSE, advice)
