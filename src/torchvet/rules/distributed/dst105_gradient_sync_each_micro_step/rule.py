"""DST105: every micro-step of an accumulation window synchronises the gradients of all ranks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.distributed.fixes.no_sync import held_back
from torchvet.rules.kit import Finding, Identity, Iterator, Rule, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model.origins import identity

if TYPE_CHECKING:
    from torchvet.rules.shared.training_loops import Window


class GradientSyncEachMicroStep(Rule):
    """Every micro-step of an accumulation window synchronises the gradients of all ranks."""

    code = "DST105"
    name = "gradient-sync-each-micro-step"
    summary = "Every micro-step of an accumulation window synchronises the gradients of all ranks"
    severity = "warning"
    words = ("DistributedDataParallel",)

    cost = "reductions"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Accumulation windows over a DistributedDataParallel model, in a file that never holds its gradients back."""
        if file.mentions("no_sync", "backward_grad_sync", "_gradient_sync", "able_allreduce"):
            return
        wrapped: set[tuple[object, ...]] = set()
        for made in file.calls("DistributedDataParallel", "DDP"):
            if file.dotted(made.call.func).endswith("DistributedDataParallel"):
                wrapped |= identity(made.call, made.unit)
        for window in loops.windows(file) if wrapped else ():
            backward = window.backward
            if (backward.through and not backward.scaled) or not _runs(window, wrapped):
                continue
            yield self._finding(file, window, frozenset(wrapped))

    def _finding(self, file: SourceFile, window: Window, wrapped: Identity) -> Finding:
        period = window.passes
        held = held_back(file, window, wrapped)
        stepped = self.also(file, "stepped", window.stepped.event, file.segment(window.stepped.event.node))
        runs = [self.also(file, "runs", held.run, file.segment(held.run.node))] if held is not None else []
        return self.suspect(
            file, window.backward.event, f"each of {period} backwards synchronises all ranks, where the last would do",
            cause="DistributedDataParallel averages the gradients in each backward, also in those that only accumulate",
            advice="run the passes before the last one of a window under `with model.no_sync():`",
            severity="info" if loops.is_test(file) else None,
            related=[stepped, *runs], edits=held.edits if held is not None else (),
        )  # fmt: skip


def _runs(window: Window, wrapped: set[tuple[object, ...]]) -> bool:
    """Whether the wrapped model is what the window's loop runs."""
    file = window.step.unit.file
    near = [e for u in loops.units_of(window.step) for e in u.events if e.node.__class__ is ast.Call]
    called = {id(u): u for u in map(file.callee, near) if u is not None}
    calls = [*near, *(e for u in called.values() for e in u.events if e.node.__class__ is ast.Call)]
    return any(
        identity(e.call.func, e.unit) & wrapped for e in calls if isinstance(e.call.func, (ast.Name, ast.Attribute))
    )
