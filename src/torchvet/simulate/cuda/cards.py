"""Which cards are there and what they can do. The names are `torch.cuda`'s; so are the signatures."""

from __future__ import annotations

import uuid
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


is_initialized = _is_compiled = is_available


def init() -> None:
    """Nothing to do."""


# torch's own code calls it before each use of a device.
_lazy_init = init


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
        # -1 changes nothing, as in torch.
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


class _CudaDeviceProperties:
    """What CUDA says of a card, under its names. Sizes in bytes, clocks in kHz, the bus in bits."""

    def __init__(self, card: Card, index: int) -> None:
        self.name, self.total_memory = card.name, card.total_memory
        self.major, self.minor = card.capability
        self.multi_processor_count = card.processors
        self.is_integrated = self.is_multi_gpu_board = 0
        self.warp_size, self.max_threads_per_block = 32, 1024
        self.max_threads_per_multi_processor = _THREADS.get(card.capability, 2048)
        self.regs_per_multiprocessor = 65536
        self.shared_memory_per_block = 49152
        self.shared_memory_per_multiprocessor = _SHARED.get(card.capability, 98304)
        self.shared_memory_per_block_optin = min(self.shared_memory_per_multiprocessor - 1024, 232448)
        self.L2_cache_size = _L2.get(card.name, 40 << 20)
        # An A100's, for every card: nothing here goes by time.
        self.clock_rate, self.memory_clock_rate, self.memory_bus_width = 1_410_000, 1_215_000, 5120
        self.pci_bus_id, self.pci_device_id, self.pci_domain_id = index + 1, 0, 0
        self.uuid = uuid.UUID(int=index)
        self.gcnArchName = card.name

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536}
_SHARED = {(7, 5): 65536, (8, 0): 167936, (8, 6): 102400, (8, 9): 102400, (9, 0): 233472}
"""Per multiprocessor, by capability: CUDA C++ Programming Guide, compute capabilities."""
_L2 = {"NVIDIA H200": 60 << 20, "NVIDIA H100 80GB HBM3": 50 << 20, "Tesla T4": 4 << 20, "NVIDIA A10G": 6 << 20}


def get_device_properties(device: Any = None) -> Any:
    """What CUDA says of the card."""
    if isinstance(device, int) and not 0 <= device < devices.count():
        # torch's own error and words.
        raise AssertionError("Invalid device id")
    return _CudaDeviceProperties(_card[0], devices.index_of(device))


def get_arch_list() -> list[str]:
    """The card's alone."""
    return ["sm_{}{}".format(*_card[0].capability)]


def get_gencode_flags() -> str:
    """The card's alone."""
    major, minor = _card[0].capability
    return f"-gencode compute=compute_{major}{minor},code=sm_{major}{minor}"


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """As CUDA answers: emulation counts unless told otherwise."""
    return including_emulation or _card[0].bfloat16


def is_tf32_supported() -> bool:
    """From capability 8.0 on."""
    return _card[0].capability >= (8, 0)


_sync_debug = [0]


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Kept, not acted upon."""
    names = {"default": 0, "warn": 1, "error": 2}
    if isinstance(debug_mode, str) and debug_mode not in names:
        raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
    _sync_debug[0] = names[debug_mode] if isinstance(debug_mode, str) else debug_mode


def get_sync_debug_mode() -> int:
    """0 default, 1 warn, 2 error."""
    return _sync_debug[0]


def current_blas_handle() -> int:
    """There is none; 0 is what a program may pass on."""
    return 0


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Between two that are there."""
    return devices.index_of(device) != devices.index_of(peer_device)


ANSWERS = (
    "is_available", "init", "_lazy_init", "is_initialized", "device_count", "current_device", "set_device", "device",
    "device_of", "get_device_name", "get_device_capability", "get_device_properties", "get_arch_list",
    "get_gencode_flags", "set_sync_debug_mode", "get_sync_debug_mode", "_is_compiled", "current_blas_handle",
    "is_bf16_supported", "is_tf32_supported", "can_device_access_peer", "_exchange_device", "_maybe_exchange_device",
)  # fmt: skip
