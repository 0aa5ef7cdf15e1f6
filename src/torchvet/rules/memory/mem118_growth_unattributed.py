"""MEM118: memory grows from step to step and no name explains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.amounts import count
from torchvet.finding import Finding, Holder, Measured, Severity
from torchvet.recording.growth import searched, usable_censuses
from torchvet.recording.records import Census, SiteBytes, Survivors
from torchvet.recording.training_records import CollectorUse
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.growth_rule import allocated, first_place
from torchvet.rules.share_rule import observed, peak_of
from torchvet.rules.strangers import names_of
from torchvet.rules.witnesses import (
    Witness,
    allocator,
    nodes,
    room_in,
    sampled_thresholds,
    shapes_change,
    windows_followed,
    without_a_name,
)

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


class GrowthUnattributed(Rule):
    """Memory grows from step to step and no name explains it."""

    code = "MEM118"
    name = "growth-unattributed"
    summary = "Memory grows from step to step and no name explains it"
    severity = "warning"

    what = (
        "Storages made in one step are alive many steps later although no Python name leads to them, or the heap "
        "(the device's memory on a GPU) grows by a steady amount per step while no tensor does. What holds them is "
        "out of reach of a search by names: a C++ object, a C iterator, an array or a bytes object that is no "
        "tensor, a library's own cache."
    )
    why = (
        "It ends the run like any other leak. Two measures stand behind it: storages of sampled steps are followed "
        "one by one, and the allocator's count is sampled over the whole run. Where they disagree the finding says "
        "so and is only a note."
    )
    when_not = (
        "A cache that fills and stops, a sawtooth that falls again, a jump (a first evaluation, a first checkpoint) "
        "and a heap that varies by more than it grows are not reported. Growth that another finding names is that "
        "finding's. A heap that grows by less than memory bears for a million steps (32 kB per step at the most), "
        "while no tensor does, is a note and leaves the verdict open: a container of fixed size that still fills "
        "looks the same. Where shapes change from step to step, libraries keep a compiled kernel for each new shape: "
        "that growth is a note."
    )
    proof = (
        "torch 2.13.0, CPU. The example keeps 65,536 bytes per step that are no tensor: the heap grew by 66.1 kB per "
        "step (stretches of the later half: 65.9 to 66.2 kB), and no storage lived on; with only the last kept it grew "
        "by 0.4 kB. Of 87 healthy programs 83 grew by less than 2.5 kB per step in malloc's part of it; the others "
        "ran 12 and 20 steps, or met ever new lengths (83 and 95 kB of compiled kernels and caches per step)."
    )
    remedy = (
        "Look at the line that allocates, where one is given, for what its result is handed to: a queue, a thread, "
        "a C extension, a hook. Where no tensor grows, look for what is kept once a step and is no tensor: NumPy "
        "arrays, bytes, figures, log records, a library's cache. `tracemalloc` names the line of Python objects, "
        "memray that of native ones."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(128, 256), nn.Linear(256, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
packed = []
for step in range(80):
    x = torch.randn(64, 128)
    hidden = torch.relu(encoder(x))
    loss = nn.functional.mse_loss(head(hidden), x.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    packed.append(hidden.detach().numpy().tobytes())
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(128, 256), nn.Linear(256, 1)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
packed = []
for step in range(80):
    x = torch.randn(64, 128)
    hidden = torch.relu(encoder(x))
    loss = nn.functional.mse_loss(head(hidden), x.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    packed = [hidden.detach().numpy().tobytes()]
    if step % 20 == 19:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """One finding a rank: of storages without a name, where names were searched, else of an allocator that grows
        while storages do not."""
        for rank in recording.ranks:
            counted = allocator(rank)
            rate = without_a_name(rank)
            if rate and any(c.complete for c in rank.all(Census)):
                yield self._of_storages(rank, counted, rate)
            elif counted.state == "grows" and (counted.measured or 0.0) > _BESIDE * counted.explained:
                yield self._of_allocator(rank, counted)

    def _of_storages(self, rank: RankRecording, counted: Witness, rate: float) -> Finding:
        seen = None if counted.high is None else max(0.0, counted.high + rank.growth.unreached)
        disagree = counted.state != "not seen" and seen is not None and seen < rate / 2
        sites = _surviving(rank)
        part = "" if rate >= 0.95 * rank.growth.measured else f" of {words.size(rank.growth.measured)}"
        cut = _cut_short(rank)
        early = "; the search for names ended early and has not come to what holds them"
        message = f"storages of {words.size(rate)}{part} per step live on"
        message += early if cut is not None else " and no name leads to them"
        if disagree and seen is not None:
            message += f", but the {counted.name} grows by at most {words.size(seen)}: the two measures disagree"
        end = self._end(rank, rate)
        sure = _borne_out(rank, counted, rate) and not disagree
        severity: Severity = self._grade(rank, rate) if sure else "info"
        if cut is not None and severity == "error":
            severity = "warning"
        return observed(
            self, rank, severity=severity, place=first_place(sites),
            message=message,
            cause=f"{_kind(rank)}. Ruled out: {_ruled_out(rank)}",
            advice="look at what the result of this line is handed to: a queue, a thread, a C extension, a hook or an "
            "iterator outlives the step and keeps it",
            measured=self._measured(rank, rate, end), related=[allocated(s) for s in sites[:3]], holder=_holder(rank),
        )  # fmt: skip

    def _of_allocator(self, rank: RankRecording, counted: Witness) -> Finding:
        rate = counted.measured or 0.0
        likely, sure = _likely(rank, counted)
        end = self._end(rank, rate) if sure else None
        between = f"between {words.size(counted.low or 0.0)} and {words.size(counted.high or 0.0)}"
        return observed(
            self, rank, severity=self._grade(rank, rate) if sure else "info", place=None,
            message=f"the {counted.name} grows by {words.size(rate)} per step ({between}) more than tensors do",
            cause=f"{likely}. Ruled out: {_ruled_out(rank)}",
            advice="look for what is kept once a step and is no tensor (NumPy arrays, bytes, figures, log records, a "
            "library's cache): `tracemalloc` names the line of Python objects, memray that of native ones",
            measured=self._measured(rank, rate, end),
        )  # fmt: skip

    def _grade(self, rank: RankRecording, rate: float) -> Severity:
        return grading.of_growth(rank.ticks, self._end(rank, rate))

    @staticmethod
    def _end(rank: RankRecording, rate: float) -> int | None:
        room = room_in(rank)
        return None if room is None or rate <= 0 else int(rank.ticks + max(0, room - peak_of(rank)) / rate)

    @staticmethod
    def _measured(rank: RankRecording, rate: float, end: int | None) -> Measured:
        return Measured(bytes_per_step=rate, steps=rank.ticks, exhausted_at_step=end)


def _borne_out(rank: RankRecording, counted: Witness, rate: float) -> bool:
    """Whether an allocator speaks for the growth as well, or more than the storages of two sampled stretches, of more
    bytes than an allocator shows: what a library makes once, as for the buckets of DistributedDataParallel, may fall
    into each stretch."""
    small, large = sampled_thresholds(rank)
    if rate <= small:
        return False  # whatever else an allocator shows
    allocated = counted.low is not None and counted.low + rank.growth.unreached >= rate / 2
    return counted.state == "grows" or allocated or (windows_followed(rank) > _STRETCHES and rate > large)


_STRETCHES = 2
_BESIDE = 2.0
"""Times what names explain of an allocator's growth that the rest must be: each tensor costs more than it shows."""
_STEADY = 0.5
"""The least share of its rate that the lower end of the interval has where growth is steady."""


def _likely(rank: RankRecording, counted: Witness) -> tuple[str, bool]:
    """What grows in an allocator while no tensor does, and whether it is sure to go on growing. A few kilobytes of a
    heap may be anybody's: a container of fixed size that fills, a library's pool, torchvet's own records."""
    _, large = sampled_thresholds(rank)
    rate = counted.measured or 0.0
    steady = (counted.low or 0.0) >= _STEADY * rate and (counted.name == "device memory" or rate > large)
    if nodes(rank, counted).state == "grows":
        return "autograd graphs get longer from step to step and no name leads to their end", steady
    if shapes_change(rank):
        return "shapes change from step to step, and libraries keep a compiled kernel for each new one", False
    what = "arrays, bytes, objects of Python or of a library"
    return f"something that is no tensor is kept from step to step: {what}", steady


def _surviving(rank: RankRecording) -> list[SiteBytes]:
    """Where the storages were made that live on, the largest first: those without a name where they are known."""
    census = searched(rank)
    if census is not None and census.unreached_sites:
        return census.unreached_sites
    latest: dict[int, Survivors] = {}
    for record in rank.since_restart(Survivors):
        if not record.final or record.window not in latest:
            latest[record.window] = record
    total: Counter[int] = Counter()
    by_site = [s for record in latest.values() for s in record.sites]
    sites = list(dict.fromkeys(s.site for s in by_site))
    for one in by_site:
        total[sites.index(one.site)] += one.bytes
    storages = Counter({i: sum(s.storages for s in by_site if s.site == site) for i, site in enumerate(sites)})
    return [SiteBytes(site=sites[i], bytes=held, storages=storages[i]) for i, held in total.most_common()]


def _holder(rank: RankRecording) -> Holder | None:
    """What the search came upon in the place of a name: a kind of graph node, a hook."""
    census = searched(rank)
    names = names_of([s for s in census.strangers if s.kind == "native"]) if census is not None else []
    return Holder(name=names[0], kind="native", path=names) if names else None


def _cut_short(rank: RankRecording) -> Census | None:
    """The last of the searches that growth is told by that ran out of time."""
    return next((c for c in reversed(usable_censuses(rank)) if not c.complete), None)


def _kind(rank: RankRecording) -> str:
    """What kind of holder is likely, by what the search for names came upon."""
    # What a search that was cut short has not reached looks as if only C++ had it.
    cut = _cut_short(rank)
    if cut is not None:
        return f"the search for names was ended after {cut.seconds:.1f} s and may have missed their holder"
    kinds = {s.kind for c in rank.all(Census) for s in c.strangers}
    if "native" in kinds:
        return "no Python object holds them: they are owned by C++ (an autograd graph, a library's object)"
    if kinds & {"cycle", "ctx"}:
        return "they hang in reference cycles that Python's collector has not freed"
    return "something that Python's names do not lead to holds them: an iterator, a thread, a C extension or C++"


def _ruled_out(rank: RankRecording) -> str:
    """What was looked at and does not hold it."""
    looks = [c for c in rank.all(Census) if c.complete]
    found = ["parameters, gradients, optimizer state"]
    if looks:
        names = max(len(c.holdings) for c in looks)
        found.append(
            f"{count(names, 'name')} with tensors and their autograd graphs ({count(len(looks), 'search', 'searches')})"
        )
    else:
        found.append(f"storages of {count(windows_followed(rank), 'sampled stretch', 'sampled stretches')} that died")
    use = rank.last(CollectorUse)
    if use is not None and use.collections:
        found.append(f"garbage that the cyclic collector frees ({count(use.collections, 'collection')})")
    return "; ".join(found)
