"""What a process writes down because it is one of several that train together."""

from __future__ import annotations

from torchvet.recording.records.base import Record


class Member(Record):
    """This process is one of a group of `world_size`: its rank in the group and on its host. `restart` counts how
    often an elastic launcher has started the group anew; `backend` is empty until the process has joined."""

    rank: int
    world_size: int
    host: str
    local_rank: int | None = None
    restart: int = 0
    backend: str = ""
