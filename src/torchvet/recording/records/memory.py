"""Records about device memory: the allocator's history, cached segments given back, what autocast costs at the peak,
attention that is written out, losses over all pairs, and graphs that are carried from pass to pass."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records.base import Place, Record, SiteBytes


class MemoryHistory(Record):
    """The history of a device's allocations, left at the end of a run in torch's schema for memory snapshots."""

    snapshot: str


class DevicePeak(Record):
    """The most bytes of tensors that a device's allocator has held: running totals. Where it had held as much before it
    was watched, `bytes` is only a bound, and `exact` is false."""

    device: int
    bytes: int
    exact: bool = True


class CacheEmptied(Record):
    """Calls of `empty_cache()` from one line: running totals.

    `given` bytes went back to the driver, in `segments` segments where the allocator counts them; `again` of the bytes
    had been taken from the driver again by the next call. `steps` of `of_steps` had a call.
    """

    place: Place
    calls: int = 0
    steps: int = 0
    of_steps: int = 0
    given: int = 0
    segments: int = 0
    again: int = 0


class AutocastPeak(Record):
    """A window's peak with autocast, and what it would have been without, by replay: all bytes.

    Without autocast there are no copies in another precision, and what was computed in half takes twice the bytes.
    `copies` of parameters and `halves` of other tensors in half were alive at the peak. `place` is the line that made
    most of the copies.
    """

    tick: int
    peak: int
    without: int
    copies: int
    halves: int
    dtype: str
    place: Place | None = None


class AttentionMatrix(Record):
    """Attention that is written out: a softmax over the last dimension of a matrix product, of one line and shape.

    Sampled calls; `applied` counts matrix products that read the weights, `elsewhere` other operators that do, `kept`
    the weights that were still there when their step had ended.
    """

    place: Place
    shape: tuple[int, ...]
    calls: int = 0
    applied: int = 0
    elsewhere: int = 0
    kept: int = 0


class HeldObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Python objects that a data set, an `owner`, keeps under a name: `items` in a container of type `kind`, of `bytes`
    bytes in all by a sample. `copied` is the share of their pages that a worker has for itself, by a sample of items at
    the last look, the mean of all workers; None where the system does not say so."""

    name: str
    owner: str
    kind: str
    items: int
    bytes: int
    copied: float | None = None


class WorkerMemory(Record):
    """Memory that the workers of one iterator over a loader do not share with any process (`Private_Dirty`), in bytes:
    the sum over `workers` after so many `batches`. The objects are those of its data set before the first batch."""

    id: int
    place: Place | None
    workers: int
    batches: list[int] = []
    private: list[int] = []
    held: list[HeldObjects] = []


class EvaluationPeak(Record):
    """A forward pass outside training on many times the rows of a training step's batch, from one line: the most bytes
    alive in it, of which `known` are parameters, buffers and optimizer state, and what was alive then. `graph`:
    gradients were on. `batches` passes of as many rows followed each other in one evaluation."""

    place: Place
    module: str
    rows: int
    training_rows: int = 0
    bytes: int = 0
    known: int = 0
    graph: bool = False
    batches: int = 1
    sites: list[SiteBytes] = []


class PairTable(Record):
    """A column of a model's predictions against a row of as many targets, from one line: sampled calls.

    `shapes` as a person would write them, `bytes` of one table; `reduced` calls were averaged or summed to one number.
    With `rows` it is a measure of so many samples: nothing is learned from it. In `fits` other calls of the line two
    tensors had one shape, or somebody wanted the table; where there were no others, `shapes` is empty.
    """

    place: Place
    operator: str
    shapes: str
    bytes: int
    rows: int = 0
    calls: int = 0
    reduced: int = 0
    fits: int = 0


class CarriedName(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A name whose value hangs on the graph of an earlier pass when a backward failed for it.

    `name`, `kind`, `scope` and `files` as in `Holding`, `place` being the root's; `container` is that of several
    tensors, empty for one. Names of one value have one `number`. `old`: its value was made in an earlier pass, and this
    pass has used it; else it was computed in this pass from what was. `ops` are the operators that have used
    what was carried.
    """

    name: str
    kind: str
    scope: str
    path: list[str]
    place: Place
    files: list[str] = []
    container: str = ""
    number: int = 0
    old: bool = False
    ops: list[str] = []


class ObjectLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line, or a call in it, by which Python objects live on: so many bytes more in each step."""

    place: Place
    bytes: float


class ObjectLines(Record):
    """What lived on of Python's own allocations in the steps from the boundary `first` to `last`, in which they were
    traced: `bytes` a step in all, and the lines with the most. Beside them `storages`, the bytes a step by which the
    host's storages of all tensors that the collector knows have risen: on any thread, whoever holds them. `collected`:
    the cyclic collector looked through all objects meanwhile, so that what lived on is no garbage. `profiler` is the
    line that has made a profiler of torch's, if one was on."""

    first: int
    last: int
    bytes: float
    storages: float = 0.0
    collected: bool = False
    profiler: Place | None = None
    lines: list[ObjectLine] = []


class CarriedGraph(Record):
    """The program ended in a backward at `place` that went into the graph of an earlier pass of the same line.

    `why`: what that graph saved was `freed` by the pass before, or `changed` since, in place. `passes` counts the
    passes of the line that succeeded. `names` lead into that graph, the oldest first.
    """

    place: Place
    why: Literal["freed", "changed"]
    message: str
    passes: int
    names: list[CarriedName] = []


class Pile(Record):
    """Memory that the backward `calls` of a step left behind, evenly, until the step ended: `per_call` bytes each,
    `bytes` from a third of them on. `place` is the line of the last call."""

    place: Place
    calls: int
    bytes: int
    per_call: float
