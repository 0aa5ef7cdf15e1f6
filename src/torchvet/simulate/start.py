"""Puts a simulated GPU into the process."""

from __future__ import annotations

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from torchvet.simulate import devices, parameters, storages, threads
from torchvet.simulate.allocation import memory, pinned, workspaces
from torchvet.simulate.api import (
    autocasting,
    backend,
    backward_errors,
    checkpoints,
    compiling,
    crossings,
    fast_paths,
    generators,
    naming,
    parallel,
    processes,
    unsupported,
    wrappers,
)
from torchvet.simulate.cards import Card
from torchvet.simulate.cuda import module
from torchvet.simulate.operations import (
    accumulating,
    asserts,
    attention,
    factories,
    half_precision,
    kernels,
    norms,
    own_memory,
    recurrent,
    transfers,
)

_libraries: list[torch.library.Library] = []
_cards: list[Card] = []


def started() -> bool:
    """Whether this process has the GPU."""
    return bool(_libraries)


def card() -> Card | None:
    """The card that this process has; None where it has none."""
    return _cards[0] if _cards else None


def start(card: Card, count: int = 1) -> None:
    """Make `cuda` mean `count` such cards for the rest of the process. Call it once, before the program starts."""
    # Before torch hears of the devices: from then on any operator may ask for memory.
    memory.set_up(card.total_memory, count, card.context)
    workspaces.set_size(card.workspace)
    # Before the device guard is there: see its docstring.
    backward_errors.begin_without_threads()
    _setup_privateuseone_for_python_backend(
        devices.BACKEND, backend_module=backend.Backend(), device_guard=backward_errors.Guard()
    )
    # After the engine has started, whose object it wraps.
    backward_errors.install()
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    # Kept, because torch takes the kernels back when the library object dies.
    _libraries.append(library)
    _cards.append(card)
    factories.install(library)
    autocasting.install(library)
    transfers.install(library)
    attention.install(library)
    recurrent.install(library)
    norms.install(library)
    asserts.install(library)
    kernels.install()
    half_precision.install()
    accumulating.install()
    own_memory.install()
    checkpoints.install()
    generators.install()
    backend.let_optimizers_know()
    parameters.install()
    storages.install()
    parallel.install()
    compiling.install()
    crossings.install()
    processes.install(card, count)
    module.install(card)
    pinned.install()
    unsupported.install()
    fast_paths.install()
    wrappers.install()
    # Last, since all above call torch with devices under torch's own name for them.
    naming.in_default_devices()
    naming.in_callbacks()
    threads.in_every_thread(naming.enter)
