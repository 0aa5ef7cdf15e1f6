"""OPS318: a loop calls a model once for each row of a batch, or many small modules of one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.formatting import ms
from torchvet.recording.records.base import Place
from torchvet.recording.records.timing import Differentiated, RowCalls
from torchvet.rules.kit import Finding, Iterator, RankRecording, Related
from torchvet.rules.operations._model_calls import RowLoop, row_loops_of
from torchvet.rules.shared.line_costs import LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing

_TEXTS: dict[Differentiated, tuple[str, str]] = {
    "": ("forward", "one call with all rows; with a loss, `reduction='none'` gives that of each row"),
    "summed": (
        "forward and backward",
        "one call with all rows, and one backward pass from the sum of their losses (`reduction='none'` gives that of "
        "each row). It holds the activations of all rows: where memory is short, call it with a part of them at a time",
    ),
    "each": (
        "forward and backward",
        "the gradients of each row by one call: `torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))"
        "(parameters, x, y)`, with `torch.func.functional_call` in `loss_of_one`. It holds one gradient of all "
        "parameters for each row (`chunk_size` makes that fewer); their norms alone can be had by hooks, from each "
        "layer's input and the gradient of its output",
    ),
}
"""By what becomes of the gradients: what was timed, and what to do."""


class ModelCalledRowByRow(LineCostRule):
    """A loop calls a model once for each row of a batch."""

    severity = "warning"
    silence_clears = False

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Loops that would be quicker as one call, by what was measured."""
        for loop in row_loops_of(rank, timing):
            yield self._called(rank, loop)

    def _called(self, rank: RankRecording, loop: RowLoop) -> Finding:
        seen, cost = loop.seen, loop.cost
        if seen.modules:
            return self._alike(rank, loop)
        passes, advice = _TEXTS[seen.differentiated]
        timed = f"{seen.timed} rows take {ms(seen.timed * seen.one)} one by one, and {ms(seen.together)} at once"
        return self.observed(
            rank,
            seen.place,
            f"{seen.module} is called for one row at a time, {_often(seen)}: one call with all rows would save "
            f"{cost.of_step()}",
            cause="each call dispatches every operator anew, for one row; no row needs what was computed for another. "
            f"Measured after the run on tensors made alike, {passes}: {timed}; {cost.without()}",
            advice=advice,
            severity=cost.severity(),
            measured=cost.measured(),
            related=self._around(loop),
        )

    def _alike(self, rank: RankRecording, loop: RowLoop) -> Finding:
        seen, cost = loop.seen, loop.cost
        passes, _ = _TEXTS[seen.differentiated]
        timed = f"{ms(seen.modules * seen.one)} one by one, and {ms(seen.together)} by one batched product"
        return self.observed(
            rank,
            seen.place,
            f"{seen.modules} {seen.module} modules of one shape are called one after the other{_turns(seen)}: one "
            f"batched product of their weights would save {cost.of_step()}",
            cause="each call dispatches every operator anew, for little work, and none needs what another has "
            f"computed. Measured after the run on tensors made alike, {passes}: they take {timed}; {cost.without()}",
            advice="keep their weights as one parameter of three dimensions, and compute all by `torch.baddbmm`, or "
            "`torch.einsum('bni,nio->bno', x, weight) + bias`; `torch.func.stack_module_state` with `torch.vmap` "
            "does so for other modules. Saved states have other names then, and results differ by rounding",
            severity=cost.severity(),
            measured=cost.measured(),
            related=self._around(loop),
        )

    def _around(self, loop: RowLoop) -> list[Related]:
        seen = loop.seen
        if (loop.path, loop.first) == (seen.place.path, seen.place.line):
            return []
        return [self.beside("loop", "the loop", Place(loop.path, loop.first, seen.place.function))]


def _turns(seen: RowCalls) -> str:
    turns = round(seen.loops / seen.sampled)
    return f" in each of {turns} loops of a step" if turns > 1 else " in a step"


def _often(seen: RowCalls) -> str:
    turns = seen.loops / seen.sampled
    if round(turns) <= 1:
        return f"{seen.rows} times in a step" if turns >= 0.75 else f"{seen.rows} times in some steps"
    return f"{seen.rows} times in each of {round(turns)} loops of a step"
