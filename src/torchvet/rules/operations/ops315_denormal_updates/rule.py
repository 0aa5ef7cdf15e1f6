"""OPS315: an optimizer's state has decayed into denormal numbers, with which a CPU computes slowly."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import count, ms, percent
from torchvet.recording.records.timing import DenormalState
from torchvet.rules.kit import Edits, Finding, Iterator, RankRecording, SourceFile
from torchvet.rules.shared.line_costs import Cost, LineCostRule
from torchvet.source.model import edits

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_QUICKER = 0.8
"""What an update takes of its time without denormal numbers, up to which it is worth a word."""


class DenormalUpdates(LineCostRule):
    """An optimizer's state has decayed into denormal numbers, with which a CPU computes slowly."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Such numbers taken for zero, after the imports of the file that steps the optimizer."""
        imports = [one for one in file.tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        named = next((name for name, module in file.imports.names.items() if module == "torch"), "")
        switch = f"{file.newline}{named}.set_flush_denormal(True)"
        return edits.after(file, imports[-1], switch) if named and imports else ()

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Optimizers whose update would be quicker with such numbers taken for zero."""
        for seen in rank.latest(DenormalState, "place", "name"):
            at = seen.place
            parts = [part for part in timing.below(at.path, at.line, at.line) if part.phase == "optimizer"]
            if parts and seen.flushed <= _QUICKER * seen.plain:
                cost = Cost(timing, parts, saved=1 - seen.flushed / seen.plain)
                if cost.counts:
                    yield self._slow(rank, seen, cost)

    def _slow(self, rank: RankRecording, seen: DenormalState, cost: Cost) -> Finding:
        return self.takes(
            rank,
            seen.place,
            f"{percent(seen.share)} of the state of {seen.name} is denormal (below 1.2e-38, and not 0): that costs "
            f"{cost.of_step()}",
            cost,
            cause="moments of weights that get no gradient any more shrink by a factor in each step, and a CPU takes "
            f"many times as long for such a number; measured after the run on {count(seen.elements, 'element')}, an "
            f"update takes {ms(seen.plain)}, and {ms(seen.flushed)} with them taken for zero",
            advice="`torch.set_flush_denormal(True)` at the start of the program: numbers below 1.2e-38 become 0",
        )
