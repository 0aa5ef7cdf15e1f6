"""DST105: every micro-step of an accumulation window synchronises the gradients of all ranks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.distributed.fixes.no_sync import held_back
from torchvet.rules.kit import Finding, Identity, Iterator, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model.origins import identity

if TYPE_CHECKING:
    from torchvet.rules.shared.training_loops import Window


class GradientSyncEachMicroStep(loops.LoopRule):
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
        made = file.calls("DistributedDataParallel", "DDP")
        models = [
            identity(e.call, e.unit) for e in made if file.dotted(e.call.func).endswith("DistributedDataParallel")
        ]
        wrapped = frozenset[tuple[object, ...]]().union(*models)
        for window in loops.windows(file) if wrapped else ():
            plain = not window.backward.through or window.backward.scaled
            if plain and _runs(window, wrapped):
                yield self._finding(file, window, wrapped)

    def _finding(self, file: SourceFile, window: Window, wrapped: Identity) -> Finding:
        message = f"each of {window.passes} backwards synchronises all ranks, where the last would do"
        cause = "DistributedDataParallel averages the gradients in each backward, also in those that only accumulate"
        advice = "run the passes before the last one of a window under `with model.no_sync():`"
        held = held_back(file, window, wrapped)
        related = [self.also(file, "stepped", window.stepped.event)]
        related += [self.also(file, "runs", held.run)] if held is not None else []
        change = held.edits if held is not None else ()
        at = window.backward.event
        return self.suspect(file, at, message, cause=cause, advice=advice, edits=change, related=related)


def _runs(window: Window, wrapped: Identity) -> bool:
    """Whether the wrapped model is what the window's loop runs."""
    file = window.step.unit.file
    near = [e for u in loops.units_of(window.step) for e in u.events if e.node.__class__ is ast.Call]
    called = {id(u): u for u in map(file.callee, near) if u is not None}
    calls = [*near, *(e for u in called.values() for e in u.events if e.node.__class__ is ast.Call)]
    named = (e for e in calls if isinstance(e.call.func, (ast.Name, ast.Attribute)))
    return any(identity(e.call.func, e.unit) & wrapped for e in named)
