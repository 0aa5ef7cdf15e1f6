"""Which cards are there and what they can do. The names are `torch.cuda`'s; so are the signatures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.cards import Card, card_of

_card = [card_of("24GiB")]


def use(card: Card) -> None:
    """All devices are this card."""
    _card[0] = card


def is_available() -> bool:
    """Yes."""
    return True


def init() -> None:
    """Nothing to do."""


_lazy_init = init


def is_initialized() -> bool:
    """Yes."""
    return True


def device_count() -> int:
    """How many are simulated."""
    return devices.count()


def current_device() -> int:
    """The thread's device."""
    return devices.current.index


def set_device(device: Any) -> None:
    """For the thread."""
    devices.current.index = devices.index_of(device)


def _exchange_device(index: int) -> int:
    before = devices.current.index
    if index >= 0:
        devices.current.index = devices.index_of(index)
    return before


_maybe_exchange_device = _exchange_device


class device:
    """`with torch.cuda.device(1):`."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _optional_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *error: object) -> None:
        devices.current.index = self.prev_idx


class device_of(device):
    """`with torch.cuda.device_of(x):`, which does nothing for what is on the host."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def _optional_index(device: Any) -> int:
    if isinstance(device, int):
        return device
    wanted = torch.device(device)
    return -1 if wanted.type == "cpu" else devices.index_of(wanted)


def get_device_name(device: Any = None) -> str:
    """The card's."""
    devices.index_of(device)
    return _card[0].name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The card's."""
    devices.index_of(device)
    return _card[0].capability


def get_device_properties(device: Any = None) -> Any:
    """What programs ask of it: name, memory in bytes, capability, processors, warp and cache sizes."""
    devices.index_of(device)
    card = _card[0]
    major, minor = card.capability
    return SimpleNamespace(
        name=card.name, total_memory=card.total_memory, major=major, minor=minor,
        multi_processor_count=card.processors, is_integrated=0, is_multi_gpu_board=0, warp_size=32,
        max_threads_per_multi_processor=2048 if major in (8, 9) and minor == 0 else 1536, regs_per_multiprocessor=65536,
        shared_memory_per_block=49152, gcnArchName=card.name,
    )  # fmt: skip


def get_arch_list() -> list[str]:
    """The card's alone."""
    return ["sm_{}{}".format(*_card[0].capability)]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """As CUDA answers: emulation counts unless told otherwise."""
    return including_emulation or _card[0].bfloat16


def is_tf32_supported() -> bool:
    """From capability 8.0 on."""
    return _card[0].capability >= (8, 0)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Between two that are there."""
    return devices.index_of(device) != devices.index_of(peer_device)


ANSWERS = (
    "is_available", "init", "_lazy_init", "is_initialized", "device_count", "current_device", "set_device", "device",
    "device_of", "get_device_name", "get_device_capability", "get_device_properties", "get_arch_list",
    "is_bf16_supported", "is_tf32_supported", "can_device_access_peer", "_exchange_device", "_maybe_exchange_device",
)  # fmt: skip
