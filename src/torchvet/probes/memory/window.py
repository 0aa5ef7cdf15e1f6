"""Works out what a finished window shows: the peak, what it was made of, what stayed bound from the step before."""

from __future__ import annotations

import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from torchvet.probes.base.kit import Place, StepKind, frames, graphs, overloads
from torchvet.probes.base.ledger import Birth, Ledger, place_of_line, sum_by_site
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.objects.bound_names import bound_above, bound_tensors
from torchvet.probes.precision import autocast_peaks
from torchvet.recording.records.base import Window
from torchvet.recording.records.training import StaleAtPeak, ZeroedInPlace

_aten = torch.ops.aten
_ZEROING = overloads("zero_ _foreach_zero_ fill_.Scalar")
_ADDING = overloads("add_.Tensor _foreach_add_.List copy_")


@dataclass
class OpenWindow:
    """A window while it is open. `baseline` is the known memory at its start by category, in bytes."""

    id: int
    first: int
    kind: StepKind
    started: float
    length: int
    baseline: dict[str, int] = field(default_factory=dict)
    kinds: dict[StepKind, int] = field(default_factory=lambda: defaultdict(int))
    ticks: list[int] = field(default_factory=list)
    """Event counts at the boundaries passed."""
    horizons: dict[int, int] = field(default_factory=dict)
    """By number of boundaries passed since the window opened (at one): the event count when the next step began its
    work. What was born before is of the step before."""
    read: dict[int, set[Birth]] = field(default_factory=dict)
    names: dict[int, dict[int, str]] = field(default_factory=dict)
    """By boundary passed: the variable that each storage still hung from when the next step began its work."""
    graph_names: dict[int, dict[int, str]] = field(default_factory=dict)
    """The same for what those variables' autograd graphs saved."""
    bound: dict[str, Place] = field(default_factory=dict)
    """By such a variable's name: the innermost function that has it, at the line that it was at."""
    zeroed: list[_Zeroing] = field(default_factory=list)
    born: set[Birth] = field(default_factory=set)
    """What backward passes of the window left in parameters."""


@dataclass
class _Zeroing:
    """A gradient zeroed in place: from event `start` until something is added to it again it held only zeros."""

    key: int
    nbytes: int
    start: int
    line: Any
    end: int | None = None


def open_window(
    number: int, tick: int, kind: StepKind, length: int, known: KnownMemory, ledger: Ledger, now: float
) -> OpenWindow:
    """Start noting. Gradients that exist are adopted, so that their release is seen."""
    window = OpenWindow(number, tick, kind, now, length)
    stored = known.storages()
    # Parameters and the like are read by nearly every operator, and are in the baseline already.
    ledger.known = set(stored)
    for category, size in stored.values():
        if category != "gradients":
            window.baseline[category] = window.baseline.get(category, 0) + size
    # Before gradients are adopted: what is adopted belongs to this window's events.
    ledger.forget_window()
    ledger.read = None
    for gradient in known.gradients():
        ledger.adopt(gradient)
    ledger.on_in_place = _watch_gradients(window, ledger)
    return window


def _watch_gradients(window: OpenWindow, ledger: Ledger) -> Any:
    def note(func: Any, args: tuple[Any, ...]) -> None:
        # `fill_` with another number than 0 is no clearing.
        if func in _ZEROING and not (func is _aten.fill_.Scalar and args[1] != 0):
            window.zeroed += [z for s in _targets(args) if (z := _zeroing(s, ledger)) is not None]
        # torch's accumulation into an existing gradient is an `add_`; until then it held only zeros.
        elif window.zeroed and func in _ADDING:
            keys = {storage._cdata for storage in _targets(args)}
            for zeroing in window.zeroed:
                if zeroing.end is None and zeroing.key in keys:
                    zeroing.end = len(ledger.events)

    return note


def _zeroing(storage: torch.UntypedStorage, ledger: Ledger) -> _Zeroing | None:
    """A storage is set to zero: None where it is no gradient's."""
    birth = ledger.live.get(storage._cdata)
    # Neither adopted when the window opened, nor made by a backward pass of it. Not by the key alone: another storage
    # may have come to lie where a gradient was.
    if birth is None or birth.phase != "backward":
        return None
    return _Zeroing(storage._cdata, storage.nbytes(), len(ledger.events), ledger.line())


def _targets(args: tuple[Any, ...]) -> Iterable[torch.UntypedStorage]:
    first = args[0]
    items = first if isinstance(first, (list, tuple)) else (first,)
    return [t.untyped_storage() for t in items if isinstance(t, torch.Tensor) and t.layout is torch.strided]


def note_gradients(window: OpenWindow, ledger: Ledger, known: KnownMemory) -> None:
    """The gradients that parameters have now are gradients for as long as they live."""
    for gradient in known.gradients():
        for storage in graphs.storages_of(gradient):
            birth = ledger.live.get(storage._cdata)
            if birth is not None:
                window.born.add(birth)


def pass_boundary(window: OpenWindow, ledger: Ledger, kind: StepKind) -> None:
    """A step ended inside the window."""
    window.ticks.append(len(ledger.events))
    window.kinds[kind] += 1
    ledger.read = None


def next_forward_begins(window: OpenWindow, ledger: Ledger, late: graphs.Late = graphs.never) -> None:
    """The step after a boundary starts its work: what is still bound now and not read again is stale.

    That includes what was made for a log or a plot after the optimizer's step, and not what this step has made before
    its first forward pass: inputs, targets. Graphs are followed until it is `late`.
    """
    # Only the first forward pass of a step is its beginning.
    if ledger.read is not None:
        return
    # The births that this window, or an earlier one, has seen: others are no candidates.
    carry = set(ledger.live)
    window.horizons[len(window.ticks)] = len(ledger.events)
    ledger.read = window.read.setdefault(len(window.ticks), set())
    names = window.names.setdefault(len(window.ticks), {})
    graph_names = window.graph_names.setdefault(len(window.ticks), {})
    seen: graphs.Seen = set()
    since = window.ticks[-1] if window.ticks else 0
    fresh = {key for key, birth in ledger.live.copy().items() if birth.event >= since}
    above: dict[types.FrameType, set[str]] = {}
    with ledger.quiet():
        for name, tensor, frame in bound_tensors():
            if frame not in above:
                above[frame] = bound_above(frame) if fresh else set()
            # What was made since the boundary and is bound above the pass is this step's own: its inputs and targets.
            old = carry - fresh if name in above[frame] else carry
            # A loss that nobody has deleted is every loop's; some pin a buffer of the size of their input (mse_loss).
            direct = {storage._cdata for storage in graphs.storages_of(tensor)} if tensor.ndim else set()
            _name(window, names, direct & old, name, frame)
            if tensor.grad_fn is not None and not late():
                reach = graphs.walk([tensor.grad_fn], seen, set(), late)
                _name(window, graph_names, reach.saved.keys() & old, name, frame)


def _name(window: OpenWindow, names: dict[int, str], keys: set[int], name: str, frame: types.FrameType) -> None:
    """Note which storages a variable of a function holds, unless another variable was there first."""
    for key in keys:
        # Innermost frames come first, and give the nearer name.
        names.setdefault(key, name)
        window.bound.setdefault(name, frames.place_of(frame))


def close_window(window: OpenWindow, tick: int, ledger: Ledger, known: KnownMemory, now: float) -> list[Any]:
    """Replay the events for the peak and what was part of it. Returns the records to write."""
    ledger.on_in_place = None
    # Reads between a boundary and the next forward pass (a log, a plot) do not make anything needed.
    ledger.read = None
    stored = known.storages()
    # Those that are still there; what the program has freed was noted at each boundary.
    note_gradients(window, ledger, known)
    births = ledger.live.copy()  # storages die meanwhile, when Python collects garbage or on other threads
    lasting = {births[k]: c for k, (c, _) in stored.items() if k in births}
    # Gradients that the step has freed since would pass for temporaries of the backward pass.
    lasting |= dict.fromkeys(window.born, "gradients")
    gradient_births = {id(b) for b, c in lasting.items() if c == "gradients"}
    peak, at = _peak(ledger)
    alive = _alive_at(ledger, at)
    categories = dict(window.baseline)
    for birth in alive:
        name = _category(birth, lasting)
        categories[name] = categories.get(name, 0) + birth.nbytes
    total = sum(categories.values())
    # Adopted gradients were there before.
    born = sum(b.nbytes for b in ledger.births if b.op != "adopted")
    record = Window(id=window.id, first=window.first + 1, last=tick, kind=window.kind, born=born, peak=total)
    record.categories, record.seconds = categories, now - window.started
    record.sites = sum_by_site((b for b in alive if b.op != "adopted"), 10)
    records: list[Any] = [record]
    records.extend(_zeroed_record(window, ledger, peak, total))
    stale = _stale_record(window, ledger, (peak, at), total, tick, gradient_births)
    if stale is not None:
        records.append(stale)
    # Replayed like stale storages: what the peak would be without the copies that autocast made.
    changes = autocast_peaks.without(ledger)
    if changes:
        records.append(autocast_peaks.record(alive, tick, total, total - peak + _peak(ledger, changes)[0]))
    return records


def _peak(ledger: Ledger, changes: Mapping[int, int] = MappingProxyType({})) -> tuple[int, int]:
    """The most bytes alive in the window above its baseline, and the event they were reached at.

    `changes` are bytes to add at events: what the window would have been had something else been done.
    """
    live, peak, at = 0, 0, 0
    for index, (_, change) in enumerate(ledger.events):
        live += change + changes.get(index, 0)
        if live > peak:
            peak, at = live, index
    return peak, at


def _alive_at(ledger: Ledger, event: int) -> list[Birth]:
    # `died` is an index into the same events: a death at the peak's own event is after it.
    return [b for b in ledger.births if b.event <= event and (b.died is None or b.died > event)]


def _category(birth: Birth, lasting: Mapping[Birth, str]) -> str:
    # Only gradients are adopted; see `open_window`.
    if birth.op == "adopted":
        return "gradients"
    if birth in lasting:
        return lasting[birth]
    if birth.phase == "data":
        return "inputs"
    if birth.phase == "optimizer":
        return "optimizer temporaries"
    return "activations" if birth.phase == "forward" else "backward temporaries"


def _zeroed_record(window: OpenWindow, ledger: Ledger, peak: int, total: int) -> list[ZeroedInPlace]:
    """What dropping gradients instead of zeroing them would have taken off the peak, by replay."""
    complete = [z for z in window.zeroed if z.end is not None]
    if not complete:
        return []
    changes: dict[int, int] = defaultdict(int)
    for zeroing in complete:
        changes[zeroing.start] -= zeroing.nbytes
        # Added again where the program adds to it: a gradient that is dropped is made anew there.
        changes[zeroing.end or 0] += zeroing.nbytes
    without, _ = _peak(ledger, changes)
    place = place_of_line(complete[-1].line)
    if place is None:
        return []
    # A gradient that each step zeroes counts once.
    size = sum(z.nbytes for z in {z.key: z for z in complete}.values())
    return [ZeroedInPlace(place=place, bytes=size, peak=total, saving=max(0, peak - without), calls=len(complete))]


def _stale_record(
    window: OpenWindow, ledger: Ledger, top: tuple[int, int], total: int, tick: int, gradient_births: set[int]
) -> StaleAtPeak | None:
    """What the step before the one that peaks left bound and nobody read again.

    What dropping it in time would save is replayed for all the window's steps: another moment may be nearly as high.
    """
    peak, at = top
    # The number of boundaries before the peak is the number of the step that peaks.
    step = sum(1 for t in window.ticks if t <= at)
    end = len(ledger.events)
    stale = _stale_by_step(window, ledger, gradient_births)
    at_peak = [(n, b) for n, b in stale.get(step, ()) if window.horizons[step] <= at < _died(b, end)]
    if not at_peak:
        return None
    sums: Counter[str] = Counter()
    for name, birth in at_peak:
        sums[name] += birth.nbytes
    names, sizes = map(list, zip(*sums.most_common(), strict=True))
    record = StaleAtPeak(tick=tick, kind=window.kind, bytes=sum(sizes), peak=total, names=names, name_bytes=sizes)
    record.saving = peak - _peak(ledger, _if_dropped(window, stale, end))[0]
    record.with_graph = sum(b.nbytes for _, b in at_peak if b.key in window.graph_names[step])
    record.sites = sum_by_site((b for _, b in at_peak), 4)
    record.place, record.bound = record.sites[0].site.place, window.bound.get(names[0])
    return record


def _stale_by_step(window: OpenWindow, ledger: Ledger, gradient_births: set[int]) -> dict[int, list[tuple[str, Birth]]]:
    """For each step whose forward pass has begun: the storages that it found bound, never read, and saw freed."""
    stale: dict[int, list[tuple[str, Birth]]] = {}
    habit: set[tuple[str, Any]] = set()
    for begun in sorted(window.horizons):
        # What the last step has not freed yet goes the way of its like, which earlier steps saw die.
        left = _left_bound(window, ledger, begun, gradient_births)
        stale[begun] = [(n, b) for n, b in left if b.died is not None or (n, b.user) in habit]
        habit.update((n, b.user) for n, b in stale[begun])
    return stale


def _if_dropped(window: OpenWindow, stale: Mapping[int, list[tuple[str, Birth]]], end: int) -> dict[int, int]:
    """The changes to the events, had each step's stale storages died when its forward pass began."""
    changes: dict[int, int] = defaultdict(int)
    for step, left in stale.items():
        for _, birth in left:
            changes[window.horizons[step]] -= birth.nbytes
            changes[_died(birth, end)] += birth.nbytes
    return changes


def _died(birth: Birth, end: int) -> int:
    return end if birth.died is None else birth.died


def _left_bound(window: OpenWindow, ledger: Ledger, step: int, gradient_births: set[int]) -> list[tuple[str, Birth]]:
    """Storages, with the names they hung from, that were there when a step began and that it did not read."""
    read, names, graph_names = window.read[step], window.names[step], window.graph_names[step]
    found: list[tuple[str, Birth]] = []
    for birth in _alive_at(ledger, window.horizons[step] - 1):
        if birth in read or id(birth) in gradient_births:
            continue
        # Batches and the optimizer's own are not what a loop's variable should have dropped.
        if birth.op == "adopted" or birth.phase in ("data", "optimizer"):
            continue
        name = names.get(birth.key) or graph_names.get(birth.key)
        if name is not None:
            found.append((name, birth))
    return found
