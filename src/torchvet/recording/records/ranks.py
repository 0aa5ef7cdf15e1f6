"""What a process writes down because it is one of several that train together."""

from __future__ import annotations

import msgspec

from torchvet.recording.records.base import Place, Record


class Member(Record):
    """This process is one of a group of `world_size`: its rank in the group and on its host. `restart` counts how
    often an elastic launcher has started the group anew; `backend` is empty until the process has joined."""

    rank: int
    world_size: int
    host: str
    local_rank: int | None = None
    restart: int = 0
    backend: str = ""


class Standstill(Record):
    """The process has not moved for so many seconds, after `tick` step boundaries: the program's line, and the function
    of torch's that it calls there. `waits` says that this function waits for other ranks."""

    tick: int
    seconds: float
    place: Place | None = None
    call: str = ""
    waits: bool = False


class ChildEnd(Record):
    """A process that this one has started has ended: its exit status, or -N where signal N killed it."""

    pid: int
    status: int


class Replica(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One parameter that other ranks may have as well, by digests of its bits: after a step; `before` it (the first
    only), and its gradient's. None is unknown. DistributedDataParallel keeps a `wrapped` one equal on all ranks; of a
    `sharded` one each rank has another part."""

    name: str
    shape: tuple[int, ...]
    before: int | None = None
    gradient: int | None = None
    after: int | None = None
    wrapped: bool = False
    sharded: bool = False


class Replicas(Record):
    """The parameters of the `optimizer`-th optimizer around its step number `step`, with its learning rates and the
    line of the step."""

    optimizer: int
    step: int
    parameters: list[Replica]
    rates: list[float] = []
    place: Place | None = None


class Batch(Record):
    """The digest of the `number`-th training batch that loaders gave, and the line that asked for it."""

    number: int
    digest: int
    place: Place | None = None
