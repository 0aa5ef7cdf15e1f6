"""Finds out which rank this process is: from its environment, or from the process group that it has joined."""

from __future__ import annotations

import os
import socket

import torch

from torchvet.probes.base.kit import Host, StepKind, Watcher
from torchvet.recording.records.ranks import Member


class Membership(Watcher):
    """Which rank this process is."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._written: Member | None = None

    def install(self) -> None:
        """A launcher says it in variables, before the process has joined a group."""
        rank, world = _number("RANK"), _number("WORLD_SIZE")
        # A launcher with one process sets the variables as well.
        if rank is not None and world is not None and world > 1:
            self._write(rank, world, "")
        self._ask()

    def settle(self, tick: int, kind: StepKind) -> None:
        """A program may say it only as it joins (`init_process_group(rank=...)`)."""
        self._ask()

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
