"""Says what the probes of one session could not look at."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

import torch

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS, compiled_anything
from torchvet.probes.internals.packing import PACKING
from torchvet.recording.records.training import Unchecked

_MOST_NAMES = 5


def simulated_gaps(dry: bool = False) -> Iterator[Unchecked]:
    """What a GPU that is not there cannot show. `dry` where it computed nothing."""
    numbers = "nothing was computed" if dry else "its numbers were computed on the CPU"
    yield Unchecked(
        check="the GPU's own time: kernels, their launches, what overlaps",
        reason=f"the GPU was simulated: {numbers}, its memory by rules",
    )
    yield Unchecked(
        check="memory that kernels take beyond their results, and cuDNN's workspaces",
        reason="the GPU was simulated: what attention, softmax, norms and embeddings hold while they run is counted, "
        "what others hold is not; cuBLAS's workspaces are counted on cards that were named, not on those given by size",
    )
    from torchvet.simulate.allocation.settings import not_simulated
    from torchvet.simulate.refusals import asked

    for what, why in asked.items():
        yield Unchecked(check=what, reason=why)
    # `PYTORCH_CUDA_ALLOC_CONF` and the like: read as the allocator does, and told where nothing answers to it.
    passed_by = ", ".join(not_simulated(os.environ))
    if passed_by:
        yield Unchecked(
            check=f"what {passed_by} would do", reason="the simulated allocator has no such setting: it was passed by"
        )


def of_unreadable(functions: Collection[str]) -> Iterator[Unchecked]:
    """The gap that functions leave which call `locals()`."""
    if functions:
        names = ", ".join(sorted(functions)[:_MOST_NAMES])
        yield Unchecked(
            check=f"variables of {names}()",
            reason="it calls locals(), whose dictionary may not be refreshed behind its back",
        )


def unchecked(ledger: Ledger, sampled: bool) -> Iterator[Unchecked]:
    """The gaps of sampling, at the end of the run; `sampled` is whether any step was."""
    if ledger.broken is not None:
        error = ledger.broken
        reason = f"{type(error).__name__}: {error}"
        yield Unchecked(check="storages of sampled steps", reason=reason, failed="storages")
    # First: such a run has no sampled steps either, and the reason below would be the wrong one.
    if compiled_anything() and not private.MODES_BESIDE_COMPILE:
        reason = f"torch {torch.__version__} would compile torchvet's own code with the program's; torch 2.11 does not"
        yield Unchecked(check="storages of steps after torch.compile was called", reason=reason, voids=True)
    elif not sampled and not ledger.refused:
        regions = " and outside compiled regions" if REGIONS.ran else ""
        reason = f"no step ran without another TorchDispatchMode{regions}"
        # The more exact reason replaces the general one: here the program can be changed.
        if ledger.inference:
            reason = "the steps ended within torch.inference_mode(), where operators cannot be heard; no_grad lets them"
        yield Unchecked(check="storages of sampled steps", reason=reason, voids=True)
    if PACKING.skipped:
        yield Unchecked(
            check="tensors that saved-tensor hooks packed away (checkpointing, offloading), in what graphs hold",
            reason=f"torch {torch.__version__} shows them only by calling the hooks; torch 2.10 and newer show them",
        )
    if REGIONS.ran:
        yield Unchecked(
            check="inside torch.compile regions",
            reason="compiled kernels allocate out of the ledger's sight, and hooks stay out: neither the modules that "
            "run there nor optimizer steps are seen",
        )
