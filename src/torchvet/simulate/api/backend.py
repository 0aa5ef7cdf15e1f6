"""What torch asks of the module of a backend, and where it lists which tensors it knows."""

from __future__ import annotations

import torch

from torchvet.simulate import devices
from torchvet.simulate.api import generators
from torchvet.simulate.tensors import SimulatedTensor, parameter_class


class Backend:
    """Stands for PrivateUse1 where torch looks for `torch.<backend>`."""

    def is_initialized(self) -> bool:
        """Always."""
        return True

    def is_available(self) -> bool:
        """Always."""
        return True

    def current_device(self) -> int:
        """The thread's."""
        return devices.current.index

    def device_count(self) -> int:
        """How many are simulated."""
        return devices.count()

    def set_device(self, device: object) -> None:
        """For the thread."""
        devices.current.index = devices.index_of(device)  # type: ignore[arg-type]

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """What only `torch.manual_seed` calls, which seeds the host's generator next."""
        generators.seeded_alike()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """As CUDA."""
        return [torch.float16, torch.bfloat16, torch.float32]

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        """Of the generator that the device draws from."""
        return generators.of(devices.index_of(device)).get_state()  # type: ignore[arg-type]

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        """Of the generator that the device draws from."""
        generators.of(devices.index_of(device)).set_state(state)  # type: ignore[arg-type]


def let_optimizers_know() -> None:
    """Optimizers and gradient clipping take their multi-tensor ways only for types that they list."""
    from torch.optim.optimizer import _foreach_supported_types as of_optimizers
    from torch.utils._foreach_utils import _foreach_supported_types as of_clipping

    for known in (of_optimizers, of_clipping):
        types: list[type] = known  # type: ignore[assignment]
        # In place: torch's modules hold these very lists.
        types += [t for t in (SimulatedTensor, parameter_class(torch.nn.Parameter)) if t not in known]
