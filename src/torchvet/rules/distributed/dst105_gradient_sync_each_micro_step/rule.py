"""DST105: every micro-step of an accumulation window synchronizes the gradients of all ranks."""

from __future__ import annotations

import ast

from torchvet.formatting import count, ms, percent, size
from torchvet.recording import records
from torchvet.rules.distributed._modules import modules_of, share_of_step, step_seconds
from torchvet.rules.distributed.fixes.no_sync import held_back
from torchvet.rules.kit import Finding, Findings, Identity, Measured, RankRecording, Recording, SourceFile, grading
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import origins

_SURE, _AS_A_RULE = 2, 0.8
"""Sampled steps that must have had several such passes, and their share of all: a scaler skips a step now and then."""
_CAUSE = "DistributedDataParallel averages the gradients in each backward, also in those that only accumulate"
_ADVICE = "run the passes before the last one of a window under `with model.no_sync():`"


class GradientSyncEachMicroStep(loops.LoopRule):
    """Every micro-step of an accumulation window synchronizes the gradients of all ranks."""

    severity = "warning"
    words = ("DistributedDataParallel",)
    cost = "reductions"

    def could_be_measured(self, recording: Recording) -> bool:
        """Only where a wrapped model was seen training."""
        trained = all(any(line.steps >= _SURE for line in _lines(rank)) for rank in recording.ranks)
        return super().could_be_measured(recording) and trained

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Lines whose backward synchronizes several times in an optimizer's step."""
        modules = {module.id: module for module in modules_of(rank)}
        for line in _lines(rank):
            often = line.several >= max(_SURE, _AS_A_RULE * line.steps)
            if often and line.id in modules:
                yield self._seen(rank, line, modules[line.id])

    def _seen(
        self, rank: RankRecording, line: records.ranks.SynchronizedPasses, module: records.ranks.DistributedModule
    ) -> Finding:
        passes = line.passes / line.steps
        needless = passes - 1
        cost = f"{count(needless, 'average')} of {size(module.gradient_bytes)} a step more than needed"
        # What one rank waits for itself says nothing of several.
        waits = module.communication_seconds if rank.member is not None else None
        # Some of a step is left to the pass that must synchronize.
        most = needless / passes * step_seconds(rank)
        seconds = min(needless * waits, most) if waits is not None and most else None
        share = share_of_step(rank, seconds) if seconds is not None else None
        if seconds is not None and share is not None:
            cost += f", which take {ms(seconds)} or {percent(share)} of a step"
        return self.observed(
            rank,
            line.place,
            f"each of {count(passes)} backwards synchronizes all ranks, where the last would do ({cost})",
            severity=grading.of_share(share) if share is not None else self.severity,
            cause=_CAUSE,
            advice=_ADVICE,
            related=[self.beside("wrapped", f"{module.name} in DistributedDataParallel", module.place)],
            measured=Measured(steps=rank.ticks, share=share, seconds_per_step=seconds),
        )

    def in_file(self, file: SourceFile) -> Findings:
        """Accumulation windows over a DistributedDataParallel model, in a file that never holds its gradients back."""
        if file.mentions("no_sync", "backward_grad_sync", "_gradient_sync", "able_allreduce"):
            return
        made = file.calls("DistributedDataParallel", "DDP")
        models = [
            origins.identity(e.call, e.unit)
            for e in made
            if file.dotted(e.call.func).endswith("DistributedDataParallel")
        ]
        wrapped = frozenset[tuple[object, ...]]().union(*models)
        for window in loops.windows(file) if wrapped else ():
            plain = not window.backward.through or window.backward.scaled
            if plain and _runs(window, wrapped):
                yield self._finding(file, window, wrapped)

    def _finding(self, file: SourceFile, window: loops.Window, wrapped: Identity) -> Finding:
        message = f"each of {window.passes} backwards synchronizes all ranks, where the last would do"
        held = held_back(file, window, wrapped)
        related = [self.also(file, "stepped", window.stepped.event)]
        related += [self.also(file, "runs", held.run)] if held is not None else []
        change = held.edits if held is not None else ()
        at = window.backward.event
        return self.suspect(file, at, message, cause=_CAUSE, advice=_ADVICE, edits=change, related=related)


def _lines(rank: RankRecording) -> list[records.ranks.SynchronizedPasses]:
    return rank.latest(records.ranks.SynchronizedPasses, "id", "place")


def _runs(window: loops.Window, wrapped: Identity) -> bool:
    """Whether the wrapped model is what the window's loop runs."""
    file = window.step.unit.file
    near = [e for u in loops.units_of(window.step) for e in u.events if e.node.__class__ is ast.Call]
    called = {id(u): u for u in map(file.callee, near) if u is not None}
    calls = [*near, *(e for u in called.values() for e in u.events if e.node.__class__ is ast.Call)]
    named = (e for e in calls if isinstance(e.call.func, (ast.Name, ast.Attribute)))
    return any(origins.identity(e.call.func, e.unit) & wrapped for e in named)
