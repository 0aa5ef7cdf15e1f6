"""OPS323: a decomposition computes factors that nobody reads."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import count, ms
from torchvet.recording.records.distributions import UnreadFactors as Seen
from torchvet.rules.kit import About, Edits, Finding, Iterator, RankRecording, SourceFile, about
from torchvet.rules.operations._factors import named_again
from torchvet.rules.operations.fixes.values_alone import ALONE, values_alone
from torchvet.rules.shared.line_costs import Cost, LineCostRule
from torchvet.source.model import is_call, walk

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Statement, Timing

_QUICKER = 0.8
"""What the cheaper call takes of the time, up to which it is worth a word. Chosen, not measured."""
_UNREAD = {"svd": "U and Vh are", "eigh": "the vectors are", "eig": "the vectors are", "qr": "Q is"}


class UnreadFactors(LineCostRule):
    """A decomposition computes factors that nobody reads."""

    severity = "warning"
    silence_clears = False
    fix_may_change_losses = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """`torch.linalg.svdvals(A)` for a call of which only the values are bound or taken."""
        return values_alone(file, finding) if about(finding).variant == "values" else ()

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines whose decompositions take a part of the step, by what the cheaper call was measured to take."""
        for seen in rank.latest(Seen, "place"):
            at = timing.files.statement(seen.place, {})
            if not seen.whole or seen.less > _QUICKER * seen.whole or not _calls(at, seen.name):
                continue
            parts = timing.innermost(at.path, at.line, at.end)
            saved = min(1.0, seen.seconds / seen.every) * (1 - seen.less / seen.whole)
            cost = Cost(timing, parts, saved, alone=True)
            if cost.counts:
                asked = at.node if seen.kind == "values" else None
                again = named_again(timing.files.tree(at.path), asked, seen.name) if asked is not None else None
                yield self._unread(rank, seen, cost, again)

    def _unread(self, rank: RankRecording, seen: Seen, cost: Cost, again: int | None) -> Finding:
        often = f", in about one of {round(1 / cost.often):,} steps" if cost.often else ""
        called = f"{seen.name}{' with full factors' if seen.full else ''}"
        least = min(seen.shape[-2:])
        if seen.kind == "values":
            unread = f"{_UNREAD[seen.name]} {'never read' if again is None else 'not seen to be read'}"
            alone = ALONE.get(seen.name)
            instead = f"torch.linalg.{alone}(A)" if alone else 'torch.linalg.qr(A, mode="r").R'
        else:
            unread = f"of each factor no more than the first {least:,} are read"
            option = "full_matrices=False" if seen.name == "svd" else 'mode="reduced"'
            instead = f"torch.linalg.{seen.name}(A, {option})"
        what = "x".join(f"{n:,}" for n in seen.shape)
        also = ", with gradients" if seen.gradients else ""
        # What the text hands on may be read in other steps, or by another thread: no call can be said to be too much.
        unheard = (
            f"line {again} names them, and what it does in other steps or threads was not heard; " if again else ""
        )
        needed = f", where line {again} does not need the rest" if again else ""
        return self.takes(
            rank,
            seen.place,
            f"{called} of {what}, and {unread}: `{instead}` would save {cost.of_step()}{often}",
            cost,
            cause=f"in {count(seen.calls, 'call')} of {count(seen.sampled, 'sampled step')} nothing read more; "
            f"{unheard}measured after the run on such matrices{also}: {ms(seen.whole)} by the call as it is, "
            f"{ms(seen.less)} by the other",
            advice=f"`{instead}` gives the same, but for rounding{needed}"
            f"{'; backward takes the same time with both' if seen.gradients else ''}",
            severity="info" if again else None,
            about=About(variant=seen.kind),
        )


def _calls(at: Statement, name: str) -> bool:
    """Whether a statement calls the decomposition, and nothing that asks for the values alone: these look the same to
    those who listen to operators."""
    nodes = walk(at.node) if at.node is not None else ()
    calls = [n for n in nodes if isinstance(n, ast.Call) and at.line <= n.lineno <= at.end]
    return any(is_call(n, name) for n in calls) and not any(is_call(n, *ALONE.values()) for n in calls)
