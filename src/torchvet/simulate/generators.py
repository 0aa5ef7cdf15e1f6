"""`torch.Generator("cuda")`: a generator of the host's under the device's name."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate import devices

_real = torch.Generator


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


def check(generator: Any, device: Any, args: tuple[Any, ...]) -> None:
    """Raise what torch raises where numbers are to be drawn on one kind of device by a generator of another."""
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
    # Each device draws from the host's default generator: see `cuda/random.py`.
    torch.cuda.default_generators = (torch.default_generator,) * devices.count()  # type: ignore[assignment]
    torch.Generator = Generator  # type: ignore[misc]
