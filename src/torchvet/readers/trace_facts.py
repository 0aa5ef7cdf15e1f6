"""What a trace says, summed up: some kilobytes a rank, however large its file. Rules and reports go by this alone.

Times are seconds; what is "per step" is the mean over the steps that were looked at.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Idle = Literal["input", "synchronisation", "launch", "host", "collector", "compile", "allocator", "device", "profiler"]
"""Why a device had nothing to do.

input: the host waited for the loader. synchronisation: the host had waited for the device and was not ahead any more.
launch: the host was dispatching operators, slower than the device works them off. host: it did something else, mostly
Python. collector, compile, allocator: Python's garbage collector, torch.compile, cudaMalloc and cudaFree. device: the
work was queued already (streams waiting for each other, launch latency). profiler: the profiler's own overhead.
"""
IDLE: tuple[Idle, ...] = get_args(Idle)
PHASES = ("data", "forward", "backward", "optimizer", "other")


class Where(msgspec.Struct, frozen=True):
    """A function of the user's, as a trace can name it; `exact` where `line` is the statement's, not the `def`'s."""

    function: str
    path: str = ""
    line: int = 0
    exact: bool = False


class Cost(msgspec.Struct):
    """Something that costs time, summed over the places that it comes from."""

    what: str
    seconds: float = 0.0
    """What a step would be shorter by at most, per step."""
    count: float = 0.0
    """Times per step."""
    duration: float = 0.0
    """How long it took itself, hidden or not, per step."""
    bytes: float = 0.0
    phase: str = ""
    where: Where | None = None


class StepApart(msgspec.Struct):
    """A step that is not like the others, and is in none of the figures; `why` is `first`, `long` or `last`.
    `most` is what took more than half of it, where the trace names that."""

    number: int
    seconds: float
    why: str
    most: str = ""


class Steps(msgspec.Struct):
    """The steps that were looked at; `found_by` says how, `known` whether there are any. All but `durations` is of the
    steady ones: `seconds` is their whole time divided by their number, `median` their median."""

    count: int
    seconds: float
    found_by: str
    durations: list[float] = []
    """Of all steps, on the host; their `numbers` are the profiler's own if it has any."""
    numbers: list[int] = []
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    """The shortest and the longest step; of ten and more, the tenth from below and from above in a hundred."""
    apart: list[StepApart] = []
    known: bool = True


class Gpu(msgspec.Struct):
    """One device's time in the steady steps. `busy_share` is the part in which anything ran; the rest is seconds per
    step."""

    device: str
    busy_share: float
    compute: float
    communication: float
    """While nothing but communication ran."""
    copies: float
    """While nothing but copies between host and device ran."""
    idle: dict[str, float]
    kernels: float
    """Per step."""
    mean_kernel: float
    tiny_share: float
    """Of the kernels, those shorter than 10 microseconds."""


class Collective(msgspec.Struct, array_like=True):
    """One collective of one step: when its kernel began after the step did, and how long it ran. In seconds."""

    step: int
    name: str
    start: float
    duration: float
    phase: str


class MemoryUse(msgspec.Struct):
    """What the allocator held, in bytes, from the profiler's memory events."""

    device: str
    peak: int
    reserved: int
    growth_per_step: float | None = None


class Note(msgspec.Struct, frozen=True):
    """Something that could not be looked at, or that makes figures doubtful."""

    check: str
    reason: str


class RankTrace(msgspec.Struct, kw_only=True):
    """One file's digest."""

    path: str
    rank: int | None = None
    world: int | None = None
    events: int = 0
    device_names: list[str] = []
    steps: Steps | None = None
    phases: dict[str, float] = {}
    """Seconds per step of the host's time."""
    gpu: Gpu | None = None
    syncs: list[Cost] = []
    transfers: list[Cost] = []
    loader: Cost | None = None
    collector: Cost | None = None
    compiling: Cost | None = None
    compiled_steps: list[bool] = []
    """For each step, whether something was compiled in it."""
    layouts: list[Cost] = []
    round_trips: list[Cost] = []
    element_loops: list[Cost] = []
    """Reads of single elements one after the other; looked for where no device is at work."""
    launches: dict[str, float] = {}
    """Idle time that dispatching causes, per phase."""
    recording_seconds: float = 0.0
    """Of that, what recording the operators takes by itself."""
    precision: dict[str, float] = {}
    """Shares of the time of matrix products and convolutions, by the arithmetic that they used."""
    misaligned: list[Cost] = []
    memory: list[MemoryUse] = []
    collectives: list[Collective] = []
    skewed: dict[str, float] = {}
    """Seconds per step that are this rank's own, for a comparison of ranks: compute, input, idle, host."""
    slowed: list[str] = []
    """The profiler's settings that slow the host down."""
    notes: list[Note] = []


class Trace:
    """The digests of one or more ranks."""

    def __init__(self, ranks: list[RankTrace]) -> None:
        self.ranks = ranks
