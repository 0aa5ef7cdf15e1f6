"""DST104: the search for unused parameters is on and finds none, or is off and some parameters go unused."""

from __future__ import annotations

from torchvet.formatting import count, ms, percent
from torchvet.recording import records
from torchvet.rules.distributed._in_text import use_of
from torchvet.rules.distributed._modules import modules_of, on_all_ranks, share_of_step
from torchvet.rules.kit import Finding, Findings, Location, Measured, Place, RankRecording, Recording, Rule, grading

_ENOUGH = 3
"""Passes that must have been looked at."""


class UnusedParameters(Rule):
    """find_unused_parameters does not fit the model: it searches in vain, or is missing"""

    severity = "info"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """What a rank's reducer failed at, or searched for in vain on all ranks."""
        for failed in rank.all(records.ranks.UnfinishedReduction):
            yield self._failed(rank, failed, recording)
        for module in modules_of(rank):
            everywhere = on_all_ranks(recording, module.id)
            if module.find_unused_parameters and not module.static_graph and all(map(_uses_all, everywhere)):
                yield self._in_vain(rank, module, recording)

    def _in_vain(self, rank: RankRecording, module: records.ranks.DistributedModule, recording: Recording) -> Finding:
        seconds = module.traversal_seconds / module.traversals if module.traversals else 0.0
        share = share_of_step(rank, seconds) if seconds else None
        cost = f"; the search takes {ms(seconds)} a pass" if seconds else ""
        cost += f", {percent(share)} of a step" if share is not None else ""
        return self.observed(
            rank,
            _option(recording, module.place) or module.place,
            f"find_unused_parameters=True, but {module.name} used all of its {count(module.parameters, 'parameter')} "
            f"in each of {count(module.looked, 'pass', 'passes')} looked at{cost}",
            severity=grading.of_share(share or 0.0),
            cause="after each forward pass DistributedDataParallel follows the whole autograd graph to find parameters "
            "without a gradient, and tells the other ranks of them",
            advice="leave find_unused_parameters out; if some parameters are used in rare passes only, keep it",
            measured=Measured(seconds_per_step=seconds or None, share=share, steps=rank.ticks),
        )

    def _failed(self, rank: RankRecording, failed: records.ranks.UnfinishedReduction, recording: Recording) -> Finding:
        more = ", …" if failed.count > len(failed.names) else ""
        names = ", ".join(f"`{name}`" for name in failed.names)
        which = f"{count(failed.count, 'parameter')} of {failed.module} ({names}{more})" if names else "some parameters"
        advice = (
            "use them in the loss, or freeze them (`requires_grad_(False)`) before the model is wrapped; where which "
            "ones go unused changes from step to step, pass find_unused_parameters=True"
        )
        if failed.found_unused:
            advice = "return from forward, as tensors, all that the loss is computed from"
        related = [self.beside("raised", failed.message.partition(". ")[0], failed.place)]
        if failed.made is not None:
            related.append(self.beside("wrapped", f"{failed.module} in DistributedDataParallel", failed.made))
        used = next(filter(None, (use_of(recording, name) for name in failed.names)), None)
        return self.observed(
            rank,
            used or failed.place,
            f"the pass before had left {which} without a gradient, so that the average over all ranks never ended",
            severity="error",
            cause="DistributedDataParallel waits until each parameter has a gradient; one that the loss does not "
            "depend on gets none",
            advice=advice,
            related=related,
            measured=Measured(steps=rank.ticks + 1),
        )


def _option(recording: Recording, made: Place | None) -> Location | None:
    """The line of the argument, in a call of several lines."""
    file = recording.model(made.path) if made is not None else None
    calls = file.events_on(made.line) if file is not None and made is not None else []
    for event in calls:
        given = [k for k in getattr(event.node, "keywords", ()) if k.arg == "find_unused_parameters"]
        if file is not None and given:
            return file.place(given[0], event)
    return None


def _uses_all(module: records.ranks.DistributedModule) -> bool:
    return module.looked >= _ENOUGH and not module.unused_passes
