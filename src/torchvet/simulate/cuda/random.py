"""Random numbers of devices, as `torch.cuda` seeds them: see `generators.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.api import generators


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    """Of the generator that the device draws from."""
    return generators.of(devices.index_of(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """One a device."""
    return [get_rng_state(index) for index in range(devices.count())]


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    """Of the generator that the device draws from."""
    generators.of(devices.index_of(device)).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """One a device; a generator that several draw from takes the first of theirs."""
    taken = set()
    for index, state in enumerate(new_states):
        generator = generators.of(index)
        # Devices without a seed of their own share the host's generator.
        if id(generator) not in taken:
            taken.add(id(generator))
            generator.set_state(state)


def manual_seed(seed: int) -> None:
    """The current device's."""
    generators.seed(devices.current.index, int(seed))


def manual_seed_all(seed: int) -> None:
    """Every device's."""
    for index in range(devices.count()):
        generators.seed(index, int(seed))


def seed() -> None:
    """Something else each time, for the current device."""
    manual_seed(int.from_bytes(os.urandom(7), "little"))


def seed_all() -> None:
    """Something else each time, one for all devices."""
    manual_seed_all(int.from_bytes(os.urandom(7), "little"))


def initial_seed() -> int:
    """Of the generator that the current device draws from."""
    return generators.of(devices.current.index).initial_seed()


ANSWERS = (
    "get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "initial_seed",
)  # fmt: skip
