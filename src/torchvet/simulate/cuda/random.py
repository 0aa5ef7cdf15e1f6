"""Random numbers. Devices draw from the host's generator, so that a program computes what it would on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.simulate import devices


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    """The host's generator's."""
    return torch.default_generator.get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """One a device."""
    return [get_rng_state() for _ in range(devices.count())]


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    """The host's generator's."""
    torch.default_generator.set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """The host's generator's, from the first."""
    for state in list(new_states)[:1]:
        set_rng_state(state)


def manual_seed(seed: int) -> None:
    """Nothing: the seed of the host's generator is the program's to set, as on the CPU."""


def manual_seed_all(seed: int) -> None:
    """See `manual_seed`."""


def seed() -> None:
    """See `manual_seed`."""


def seed_all() -> None:
    """See `manual_seed`."""


def initial_seed() -> int:
    """The host's generator's."""
    return torch.default_generator.initial_seed()


ANSWERS = (
    "get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "initial_seed",
)  # fmt: skip
