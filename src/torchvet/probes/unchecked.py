"""Says what the probes of one session could not look at."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from torchvet.probes.ledger import Ledger
from torchvet.probes.taps import Taps, compiled_anything
from torchvet.recording.training_records import Unchecked, Unwatched

_MOST_NAMES = 5


class Doubting(Protocol):
    """A probe that has gaps of its own."""

    def unchecked(self) -> Iterator[Unchecked] | Iterator[Unwatched]:
        """What it could not look at."""


def simulated_gaps(dry: bool = False) -> Iterator[Unchecked]:
    """What a GPU that is not there cannot show. `dry` where it computed nothing."""
    numbers = "nothing was computed" if dry else "its numbers were computed on the CPU"
    yield Unchecked(
        check="the GPU's own time: kernels, their launches, what overlaps",
        reason=f"the GPU was simulated: {numbers}, its memory by rules",
    )
    yield Unchecked(
        check="memory beyond operators' results: temporaries within kernels, libraries' workspaces but cuBLAS's",
        reason="the GPU was simulated: what its libraries would take beyond their results is not known; cuBLAS's "
        "workspaces are counted on cards that were named, not on those given by size",
    )
    from torchvet.simulate.refusals import asked
    from torchvet.simulate.settings import not_simulated

    for what, why in asked.items():
        yield Unchecked(check=what, reason=why)
    passed_by = ", ".join(not_simulated(os.environ))
    if passed_by:
        yield Unchecked(
            check=f"what {passed_by} would do", reason="the simulated allocator has no such setting: it was passed by"
        )


def all_gaps(
    simulated: bool, ledger: Ledger, taps: Taps, unreadable: Collection[str], sampled: bool, probes: Iterable[Doubting]
) -> Iterator[Unchecked | Unwatched]:  # fmt: skip
    """All gaps at the end of a run: those of a simulated GPU, the session's own, and what the probes say of theirs."""
    if simulated:
        yield from simulated_gaps()
    yield from unchecked(ledger, taps, unreadable, sampled)
    for probe in probes:
        yield from probe.unchecked()


def unchecked(ledger: Ledger, taps: Taps, unreadable: Collection[str], sampled: bool) -> Iterator[Unchecked]:
    """The gaps, at the end of the run. `unreadable` functions call `locals()`; `sampled` is whether any step was."""
    if ledger.broken is not None:
        error = ledger.broken
        yield Unchecked(check="storages of sampled steps", reason=f"{type(error).__name__}: {error}")
    if unreadable:
        names = ", ".join(sorted(unreadable)[:_MOST_NAMES])
        yield Unchecked(
            check=f"variables of {names}()",
            reason="it calls locals(), whose dictionary may not be refreshed behind its back",
        )
    if not sampled:
        yield Unchecked(check="storages of sampled steps", reason="no step was free of other dispatch modes")
    if compiled_anything():
        yield Unchecked(
            check="inside torch.compile regions", reason="compiled kernels allocate out of the ledger's sight"
        )
    if taps.modules_refused:
        yield Unchecked(
            check="module names, and evaluation without no_grad",
            reason="module hooks stay out of programs that use torch.compile: its guards would see them",
        )
