"""What a run writes down, one type per line of a rank's file: facts only, no judgement.

Sizes are bytes, times are seconds since the program started, ticks count step boundaries from 1 in the order they
were passed. A field that could not be known is None. Every record is one JSON object with its type under `"k"`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

StepKind = Literal["training", "backward", "evaluation", "forward", "manual"]
"""What marked the boundary: an optimizer step, a backward call, a loader batch or a forward pass without backward,
a top-level forward pass where nothing else was seen, or the program's own `watch.step()`."""


class Record(msgspec.Struct, kw_only=True, tag_field="k", tag=str.lower, omit_defaults=True):
    """Base of every line."""


NODE_BYTES = 400
"""Host bytes of an autograd graph's node, roughly and at the least: about 1,550 B per Linear layer, which makes three
or four (torch 2.13.0, measured)."""


class Place(msgspec.Struct, frozen=True):
    """A line in a source file and the function that it belongs to."""

    path: str
    line: int
    function: str


class Site(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a kind of storage comes from: operator, result shape and dtype, module path, source line.

    `place` is the nearest line of the user's own code, `inner` the nearest line outside torch where that differs
    (an installed package). `phase` says whether the storage was born in the forward or the backward pass.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    phase: Literal["forward", "backward", "optimizer", "data"] = "forward"
    module: str | None = None
    place: Place | None = None
    inner: Place | None = None


class SiteBytes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Storages of one site: how many bytes in how many storages."""

    site: Site
    bytes: int
    storages: int = 1


class Program(Record):
    """What ran, where, and the memory limit that forecasts go by. `simulated` names the GPU that was not there,
    `simulated_by` has the options of the command line that asked for it.

    `memory_outside` bytes of a device were not this process's tensors' to have: the driver's, other programs'.
    `address_space` is the limit on the process's virtual memory; 0 where there is none.
    """

    argv: list[str]
    path: str
    cwd: str
    python: str
    torch: str
    device: str
    started: float
    pid: int
    rank: int | None = None
    world_size: int | None = None
    memory_limit: int = 0
    memory_limit_source: str = "unknown"
    memory_outside: int = 0
    address_space: int = 0
    user_roots: list[str] = []
    simulated: str | None = None
    simulated_by: list[str] = []


LARGEST_SOURCE = 400_000
"""Bytes of a file's text beyond which it is not kept, and characters beyond which one that was is not read."""


class Source(Record):
    """The text of one of the user's files that facts point into, so that a report can be rendered elsewhere. `module`
    is the name under which the process has imported it; empty where that is not known."""

    path: str
    text: str
    module: str = ""


class Step(Record):
    """A boundary that was passed, or `count` of them since the last record in a long run.

    `phases` sums the seconds of data, forward, backward, optimizer and other since the last record.
    """

    n: int
    kind: StepKind
    t: float
    count: int = 1
    phases: dict[str, float] = {}
    allocated: int | None = None
    reserved: int | None = None


class Window(Record):
    """A run of consecutive steps in which every new storage was noted.

    `peak` is the highest sum of live bytes within, known memory included, `categories` its parts, `sites` the largest
    of them. `born` sums every storage born.
    """

    id: int
    first: int
    last: int
    kind: StepKind
    born: int
    peak: int
    categories: dict[str, int] = {}
    sites: list[SiteBytes] = []
    seconds: float = 0.0


class Survivors(Record):
    """How much of a window's storages (known categories left out) was alive at a later boundary; `steps` is the divisor
    of a rate per step, 0 for a window that ended within one. `final` says that it was counted after the program's end,
    when the variables of its functions were gone."""

    window: int
    tick: int
    steps: int
    bytes: int
    storages: int
    sites: list[SiteBytes] = []
    final: bool = False


class Holding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name from a Python root and the tensor memory reached through it, every storage counted once per census.

    `name` is what a person would write (`trainer.stats.losses`), `path` leads there hop by hop, `scope` is the module
    or function that the root lives in. `direct` bytes belong to tensors reached by reference, `graph` bytes to what
    their autograd graphs saved, over `nodes` graph nodes. `idle` of the direct ones are parameters, gradients and
    optimizer state of models that are not trained, or not any more. `visible` sums the bytes that the tensors show
    (elements times size), less than `direct` where views pin larger storages. `capacity` is the greatest number of
    items that the container can have, where it has such a limit. `carried` says that the graph of this name's value at
    the previous census hangs below its value now, `carrier_ops` name the operators on the ways there, and `updated` is
    the line that changes it in place, if one does. `via` lists the special hops (`hook`, `cache`, `exception`, `ctx`,
    `iterator`, `queue`, `grad`, `frame`, `closure`); `below` are those on the way to the most of what a container of
    many holds. `item_type` is the type of its last item, `item_kind` tells functions and modules, `inner_types` are the
    types of the last items of that item and so on, while they are lists, deques or dicts. Many threads that run one
    function are one name of the kind `thread`: `place` is the line that most of them are at, `parts` name what keeps
    the most.
    """

    name: str
    kind: str
    path: list[str]
    scope: str
    place: Place | None = None
    container: str = ""
    items: int = 0
    length: int | None = None
    capacity: int | None = None
    tensors: int = 0
    direct: int = 0
    idle: int = 0
    visible: int = 0
    graph: int = 0
    ctx: int = 0
    nodes: int = 0
    carried: bool = False
    carrier_ops: list[str] = []
    updated: Place | None = None
    via: list[str] = []
    sites: list[SiteBytes] = []
    called_from: Place | None = None
    on_module: bool = False
    key_type: str | None = None
    item_type: str | None = None
    item_kind: Literal["function", "module"] | None = None
    inner_types: list[str] = []
    parts: list[str] = []
    below: list[str] = []
    files: list[str] = []

    @property
    def where(self) -> tuple[str, str, str, list[str]]:
        """Name, scope, file and further files, as the source index asks for them."""
        return self.name, self.scope, self.place.path if self.place else "", self.files


SAVED_HOOKS = "saved_tensors_hooks"
"""The owner of what a graph's node keeps because a hook for saved tensors has handed back the tensor itself."""


class Stranger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What keeps a storage alive that no name leads to: an attribute (or a closure) in a garbage cycle, among them a
    custom Function's `ctx`; or only C++. Where it is a `variable` of the function `owner`, `attribute` is its name.
    Where the owner is `SAVED_HOOKS`, `attribute` names the node, and the place is that of the hook that unpacks."""

    kind: Literal["cycle", "ctx", "native"]
    owner: str = ""
    attribute: str | None = None
    path: str | None = None
    line: int | None = None
    variable: bool = False


class Census(Record):
    """Every tensor byte that Python names reach, by name, at one boundary.

    `categories` are the known ones (parameters, buffers, gradients, optimizer state); `idle` of these bytes belong to
    models that are not trained, or not any more, and count for names as well. `renewed` is the tick at which the newest
    optimizer was made. `unreached` are storages of sampled steps that are alive although no name leads to them;
    `complete` is false when the time budget ended first. `garbage` bytes of all storages, sampled or not, are held by
    reference cycles only, where that was looked into.

    `amid` numbers the evaluation in whose middle it was taken, after `passes` forward passes whose graph was still
    alive; of the `kind` training, the step, after `passes` backward calls. 0 for a census at a boundary. A negative
    one numbers the evaluation in which memory rose, of which `passes` batches were over.
    """

    tick: int
    kind: StepKind
    seconds: float
    complete: bool
    total: int
    categories: dict[str, int] = {}
    idle: int = 0
    renewed: int = 0
    holdings: list[Holding] = []
    unreached: int = 0
    unreached_sites: list[SiteBytes] = []
    strangers: list[Stranger] = []
    garbage: int = 0
    final: bool = False
    amid: int = 0
    passes: int = 0
