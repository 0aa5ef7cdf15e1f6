"""What a process writes down because it is one of several that train together."""

from __future__ import annotations

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
