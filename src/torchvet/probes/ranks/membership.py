"""Finds out which rank this process is: from its environment, or from the process group that it has joined."""

from __future__ import annotations

import os
import platform
import socket
import sys

import torch

from torchvet.probes.base.kit import Host, StepKind, Watcher
from torchvet.recording.records.ranks import Member, Surroundings

_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("NCCL_ALGO", "NCCL_PROTO", "TORCH_DISTRIBUTED_DEBUG", "PYTHONHASHSEED", "PYTHONOPTIMIZE"),
)
"""Variables that change results or speed. Those that name a rank, a host or its network differ by design."""
_LIBRARIES = ("torch", "numpy")


class Membership(Watcher):
    """Which rank this process is, and what it runs with."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._written: Member | None = None
        self._surroundings: Surroundings | None = None

    def install(self) -> None:
        """A launcher says it in variables, before the process has joined a group."""
        rank, world = _number("RANK"), _number("WORLD_SIZE")
        # A launcher with one process sets the variables as well.
        if rank is not None and world is not None and world > 1:
            self._write(rank, world, "")
            self._describe(None)
        self._ask()

    def settle(self, tick: int, kind: StepKind) -> None:
        """A program may say it only as it joins (`init_process_group(rank=...)`). It has seeded torch by its first
        step; later seeds may be those of steps or of files."""
        self._ask()
        if self._written is not None and (self._surroundings is None or self._surroundings.seed is None):
            self._describe(torch.initial_seed())

    def finish(self, how: str, error: BaseException | None) -> None:
        """See `settle`."""
        self._ask()

    def _ask(self) -> None:
        # With a backend it is the group's own word, which is final.
        if self._written is not None and self._written.backend:
            return
        distributed = torch.distributed
        if has_joined():
            self._write(distributed.get_rank(), distributed.get_world_size(), distributed.get_backend())

    def _describe(self, seed: int | None) -> None:
        modules = [(name, sys.modules[name]) for name in _LIBRARIES if name in sys.modules]
        versions = {name: str(getattr(module, "__version__", "")) for name, module in modules}
        self._surroundings = Surroundings(
            versions={"Python": platform.python_version(), **versions},
            variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
            seed=seed,
        )
        self.host.write(self._surroundings)

    def _write(self, rank: int, world: int, backend: str) -> None:
        self._written = Member(
            rank=rank,
            world_size=world,
            host=socket.gethostname(),
            local_rank=_number("LOCAL_RANK"),
            restart=_number("TORCHELASTIC_RESTART_COUNT") or 0,
            backend=backend,
        )
        self.host.write(self._written)


def has_joined() -> bool:
    """Whether this process is in a group with others."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def is_launched() -> bool:
    """Whether a launcher has said that there are other ranks."""
    return (_number("WORLD_SIZE") or 1) > 1


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    # A variable of the user's own may have any text.
    return int(text) if text.isdecimal() else None
