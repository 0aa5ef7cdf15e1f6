"""Where the random numbers of devices come from, and `torch.Generator("cuda")`.

A device draws from the host's default generator, so that a program computes what it would on the CPU, until the program
gives it a seed of its own (`torch.cuda.manual_seed`): then from a generator of its own, until `torch.manual_seed` seeds
all of them alike. A seed that the host's generator has been given, while no device has drawn since, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchvet.simulate import devices

_real = torch.Generator


# The C type's own metaclass is the base, or Python refuses the class.
class _AnyGenerator(type(_real)):  # type: ignore[misc]
    """Makes `isinstance(torch.default_generator, torch.Generator)` true for the replaced name too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real)


class Generator(_real, metaclass=_AnyGenerator):
    """As torch's; one for a simulated device draws the host's numbers."""

    _index: int | None = None

    def __new__(cls, device: Any = "cpu") -> Any:
        if not devices.is_simulated(device):
            return _real(device)
        self = super().__new__(cls)
        self._index = devices.index_of(device)
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """As the program knows it."""
        return torch.device("cpu") if self._index is None else devices.outer(self._index)


_own: dict[int, torch.Generator] = {}
"""By device: those that the program has seeded apart from the host's."""
_drawn = [False]
"""Whether a device has drawn from the host's generator since that was seeded."""


def of(index: int) -> torch.Generator:
    """The generator that a device draws from."""
    return _own.get(index, torch.default_generator)


def seeded_apart() -> list[torch.Generator]:
    """Generators of devices that the program has seeded apart from the host's."""
    return list(_own.values())


def seed(index: int, number: int) -> None:
    """Give a device a seed."""
    # `manual_seed` and `cuda.manual_seed` of one number keep the host's generator, so that losses equal the CPU's.
    if index in _own or _drawn[0] or number != torch.default_generator.initial_seed():
        _own.setdefault(index, _real()).manual_seed(number)


def seeded_alike() -> None:
    """All devices draw from the host's generator again."""
    _own.clear()
    _drawn[0] = False


def draws(func: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


@contextmanager
def drawing(index: int) -> Iterator[None]:
    """Within, the host's default generator is where this device's is, and that goes on from where it is left."""
    _drawn[0] = True
    own, host = _own.get(index), torch.default_generator
    if own is None:
        yield
        return
    before = host.get_state()
    # The CPU's kernels draw from the default generator only.
    host.set_state(own.get_state())
    try:
        yield
    finally:
        own.set_state(host.get_state())
        host.set_state(before)


def check(generator: Any, device: Any, args: tuple[Any, ...]) -> None:
    """Raise what torch raises where numbers are to be drawn on one kind of device by a generator of another."""
    # A factory without a device draws on the default one, an operator where its tensor is.
    if device is None:
        tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
        device = torch.get_default_device() if tensor is None else tensor.device
    wanted = "cuda" if devices.is_simulated(device) else torch.device(device).type
    given = generator.device.type
    if given != wanted and wanted in ("cuda", "cpu"):
        raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{given}'")


def install() -> None:
    """Put it where programs look for it."""
    Generator.__module__, Generator.__qualname__ = "torch", "Generator"
    torch.cuda.default_generators = (torch.default_generator,) * devices.count()  # type: ignore[assignment]
    torch.Generator = Generator  # type: ignore[misc]
