"""What a process writes down because it is one of several that train together."""

from __future__ import annotations

from typing import Literal

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


OwnPhase = Literal["data", "other", "backward", "optimizer"]
"""What a rank does of its own in a step: `other` is the forward pass and whatever stands between the rest."""


class WaitedAt(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line of the program at which a rank waited for others, for so many seconds a step."""

    place: Place
    seconds: float


class Arrivals(Record):
    """How long this rank has waited for the others, and what it took of its own: running totals.

    `steps` are the numbers of training steps, the same on all ranks that count alike; all lists run along with them, in
    seconds: what the training thread did of its `own`, for how long it `waited`, and for how long it was `delayed`,
    that is ready and without a core of the machine. Steps that torchvet itself has made longer are left out. `sizes`
    are the elements of the tensors that the model was called with, or those of the batches; empty where neither is
    known.
    """

    steps: list[int]
    waited: list[float]
    own: dict[OwnPhase, list[float]]
    delayed: list[float]
    sizes: list[int] = []
    lines: list[WaitedAt] = []
