"""What torch asks of the module of a backend, and where it lists which tensors it knows."""

from __future__ import annotations

import torch

from torchvet.simulate import devices
from torchvet.simulate.tensors import SimulatedTensor


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
        """Random numbers of devices are drawn from the host's generator: see `generators.py`."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """As CUDA."""
        return [torch.float16, torch.bfloat16, torch.float32]

    def get_rng_state(self, device: object = None) -> torch.Tensor:
        """The host's."""
        return torch.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: object = None) -> None:
        """The host's."""
        torch.default_generator.set_state(state)


def let_optimizers_know() -> None:
    """Optimizers and gradient clipping take their multi-tensor ways only for types that they list."""
    from torch.optim.optimizer import _foreach_supported_types as of_optimizers
    from torch.utils._foreach_utils import _foreach_supported_types as of_clipping

    for known in (of_optimizers, of_clipping):
        if SimulatedTensor not in known:
            known.append(SimulatedTensor)
