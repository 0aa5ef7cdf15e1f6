"""Records about what a program reads from files while it trains, and what it writes to them."""

from __future__ import annotations

import re
from typing import Literal

from torchvet.recording.records.base import Place, Record

Container = Literal["npz", "zip", "npy", "torch", "json"]
"""A member of NumPy's archive, of a zip file, an array's file, a file for `torch.load`, a text of JSON."""


class ReadAgain(Record):
    """A call on the line `place`, reached from `callers` (innermost first), that reads whole members of files: `again`
    of `reads` were of what it had read before in the same pass over a loader or, outside of loaders, just before.

    The latter took `seconds`, in so many `steps`; of `workers` of loaders `watched` are all their seconds together.
    The `members` have `bytes` bytes; one of them is called `name`. `in_loader` says that a loader asked for it.
    """

    id: int
    place: Place
    callers: list[Place]
    what: Container
    name: str
    reads: int = 0
    again: int = 0
    members: int = 0
    bytes: int = 0
    seconds: float = 0.0
    steps: int = 0
    workers: int = 0
    watched: float = 0.0
    in_loader: bool = True


class WrittenAgain(Record):
    """A call on the line `place`, reached from `callers` (innermost first), that opens files to write them anew:
    `files` of them `writes` times. Of the versions `grew` were larger than the one before, and `read` were read by the
    program.

    All versions have `bytes` bytes, the last ones of each file `last_bytes`. One of the files is called `name`.
    """

    id: int
    place: Place
    callers: list[Place]
    name: str
    files: int = 0
    writes: int = 0
    grew: int = 0
    read: int = 0
    bytes: int = 0
    last_bytes: int = 0


class MovedApart(Record):
    """A function that was called on two pictures of a sample, at the lines `first` and `second`, in so many `samples`
    that were followed. In `compared` of them it is known how each picture was moved, in `apart` they were moved unlike,
    in `both` of these the first one was moved. In `strangers` the two were of one kind and did not show the same. In
    `kinds` of those apart they were of two, and in `matched` of these they said most of each other as they lay.
    `drew` names the generators that it drew from, `example` says how it moved the two in one sample."""

    first: Place
    second: Place
    function: str
    dataset: str
    samples: int = 0
    compared: int = 0
    apart: int = 0
    both: int = 0
    strangers: int = 0
    kinds: int = 0
    matched: int = 0
    drew: str = ""
    example: list[str] = []


class WorkerDraws(Record):
    """A random generator in the `worker`-th of a loader's `workers`, in the `epoch`-th of the loader's loops that were
    followed, for its first batches.

    `states` are digests of where the generator was: before the first batch, after it, and so on. `drew` says of each
    batch whether it has drawn, and is None where it was seeded anew or that is not known. `items` are digests of the
    indices that were asked for, `data` (of iterable data sets only) of what was given. `seed` is what the loader has
    drawn for its workers.

    The generator is that of a library, or one that the data set or a function `kept`: as an `attribute` of the class
    `owner`, or as a name of a function or its module. `keeper` is a line of that class or function. `made` is the line
    that made the loader, `starts` the function that it calls in each worker. `trained` says that backward passes
    followed most of its batches.
    """

    loader: int
    epoch: int
    worker: int
    workers: int
    name: str
    kept: bool = False
    owner: str = ""
    attribute: str = ""
    keeper: Place | None = None
    made: Place | None = None
    starts: Place | None = None
    seed: int = 0
    iterable: bool = False
    states: list[str] = []
    drew: list[bool | None] = []
    items: list[str] = []
    data: list[str] = []
    trained: bool = False


SET_APART = re.compile(r"transform|augment|^(is_)?(train|training|eval|test|mode|phase|split)$")
"""Attributes of a data set that differ between training and evaluation. What else is set, as a name, may be meant for
all parts of a split."""


class SharedParts(Record):
    """On the line `place` a data set was split. Its `attribute` was set to something else after that, and `parts` of
    the split were read with it, and with nothing else. `had` says that it was something before."""

    place: Place
    attribute: str
    parts: int
    had: bool = True
