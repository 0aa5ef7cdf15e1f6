"""Works out what a finished window shows: the peak, what it was made of, what stayed bound from the step before."""

from __future__ import annotations

import sys
import types
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes import frames, graphs, heap
from torchvet.probes.containers import tensors_in
from torchvet.probes.known import KnownMemory
from torchvet.probes.ledger import Birth, Ledger, place_of_line, sum_by_site
from torchvet.recording.records import SiteBytes, StepKind, Window
from torchvet.recording.training_records import StaleAtPeak, ZeroedInPlace

_aten = torch.ops.aten
_ZEROING = {
    _aten.zero_.default: 0,
    _aten._foreach_zero_.default: 0,
    _aten.fill_.Scalar: 0,
}
_ADDING = {_aten.add_.Tensor, _aten._foreach_add_.List, _aten.copy_.default}


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
    carry: set[int] = field(default_factory=set)
    """Keys of the storages born in the window's earlier steps that the last boundary found alive."""
    read: dict[int, set[int]] = field(default_factory=dict)
    names: dict[int, dict[int, str]] = field(default_factory=dict)
    """By boundary passed: the variable that each storage still hung from when the next step began its work."""
    graph_names: dict[int, dict[int, str]] = field(default_factory=dict)
    """The same for what those variables' autograd graphs saved."""
    zeroed: list[_Zeroing] = field(default_factory=list)
    gradients: dict[int, int] = field(default_factory=dict)
    pause: float = 0.0


@dataclass
class _Zeroing:
    """A gradient zeroed in place: from event `start` until something is added to it again it held only zeros."""

    key: int
    nbytes: int
    start: int
    line: Any
    end: int | None = None


def open_window(number: int, tick: int, kind: StepKind, length: int, known: KnownMemory, ledger: Ledger,
                now: float) -> OpenWindow:  # fmt: skip
    """Start noting. Gradients that exist are adopted, so that their release is seen."""
    window = OpenWindow(number, tick, kind, now, length)
    gradient_bytes = 0
    stored = known.storages()
    ledger.known = set(stored)
    for key, (category, size) in stored.items():
        if category == "gradients":
            window.gradients[key] = size
            gradient_bytes += size
        else:
            window.baseline[category] = window.baseline.get(category, 0) + size
    ledger.forget_window()
    for gradient in known.gradients():
        ledger.adopt(gradient)
    ledger.on_in_place = _watch_gradients(window, ledger)
    return window


def _watch_gradients(window: OpenWindow, ledger: Ledger) -> Any:
    def note(func: Any, args: tuple[Any, ...]) -> None:
        if func in _ZEROING:
            if func is _aten.fill_.Scalar and args[1] != 0:
                return
            for tensor in _targets(args):
                key = tensor.untyped_storage()._cdata
                birth = ledger.live.get(key)
                if key in window.gradients or (birth is not None and birth.phase == "backward"):
                    size = tensor.untyped_storage().nbytes()
                    line = ledger.line()
                    window.zeroed.append(_Zeroing(key, size, len(ledger.events), line))
        elif window.zeroed and func in _ADDING:
            for tensor in _targets(args):
                key = tensor.untyped_storage()._cdata
                for zeroing in window.zeroed:
                    if zeroing.key == key and zeroing.end is None:
                        zeroing.end = len(ledger.events)

    return note


def _targets(args: tuple[Any, ...]) -> Iterable[torch.Tensor]:
    first = args[0]
    items = first if isinstance(first, (list, tuple)) else (first,)
    return [t for t in items if isinstance(t, torch.Tensor) and t.layout is torch.strided]


def pass_boundary(window: OpenWindow, ledger: Ledger, kind: StepKind) -> None:
    """A step ended inside the window."""
    window.ticks.append(len(ledger.events))
    window.kinds[kind] += 1
    window.carry = set(ledger.live)
    ledger.read = None


def next_forward_begins(window: OpenWindow, ledger: Ledger) -> None:
    """The step after a boundary starts its work: what is still bound now and not read again is stale."""
    if not window.ticks or ledger.read is not None:
        return
    ledger.read = window.read.setdefault(len(window.ticks), set())
    names = window.names.setdefault(len(window.ticks), {})
    graph_names = window.graph_names.setdefault(len(window.ticks), {})
    ledger.paused = True
    seen: set[object] = set()
    try:
        for name, tensor in _bound_tensors():
            # A loss that nobody has deleted is every loop's; some pin a buffer of the size of their input (mse_loss).
            for storage in graphs.storages_of(tensor) if tensor.ndim else ():
                if storage._cdata in window.carry:
                    names.setdefault(storage._cdata, name)
            if tensor.grad_fn is not None:
                reach = graphs.walk([tensor.grad_fn], seen, set(), lambda: False)
                for key in reach.saved:
                    if key in window.carry:
                        graph_names.setdefault(key, name)
    finally:
        ledger.paused = False


def _bound_tensors() -> list[tuple[str, torch.Tensor]]:
    """Tensors that plain variables of the running user code are bound to (tuples included)."""
    found: list[tuple[str, torch.Tensor]] = []
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        if frames.owner(frame.f_code.co_filename) in (frames.USER, frames.INSTALLED):
            for name, value in (heap.frame_locals(frame) or {}).items():
                found.extend((name, t) for t in tensors_in(value, 3))
        frame = frame.f_back
    return found


def close_window(window: OpenWindow, tick: int, ledger: Ledger, known: KnownMemory, now: float) -> list[Any]:
    """Replay the events for the peak and what was part of it. Returns the records to write."""
    ledger.on_in_place = None
    ledger.read = None
    stored = known.storages()
    gradient_births = {id(ledger.live[k]) for k, (c, _) in stored.items() if c == "gradients" and k in ledger.live}
    live = 0
    peak, at = 0, 0
    for index, (_, change) in enumerate(ledger.events):
        live += change
        if live > peak:
            peak, at = live, index
    alive = _alive_at(ledger, at)
    categories = dict(window.baseline)
    for birth in alive:
        name = _category(birth, gradient_births)
        categories[name] = categories.get(name, 0) + birth.nbytes
    total = sum(categories.values())
    records: list[Any] = [
        Window(
            id=window.id, first=window.first + 1, last=tick, kind=window.kind,
            born=sum(b.nbytes for b in ledger.births if b.op != "adopted"), peak=total, categories=categories,
            sites=sum_by_site((b for b in alive if b.op != "adopted"), 10), seconds=now - window.started,
        )
    ]  # fmt: skip
    records.extend(_zeroed_record(window, ledger, peak, total))
    stale = _stale_record(window, ledger, at, total, tick, gradient_births)
    if stale is not None:
        records.append(stale)
    return records


def _alive_at(ledger: Ledger, event: int) -> list[Birth]:
    return [b for b in ledger.births if b.event <= event and (b.died is None or b.died > event)]


def _category(birth: Birth, gradient_births: set[int]) -> str:
    if birth.op == "adopted" or id(birth) in gradient_births:
        return "gradients"
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
        changes[zeroing.end or 0] += zeroing.nbytes
    live, without = 0, 0
    for index, (_, change) in enumerate(ledger.events):
        live += change + changes.get(index, 0)
        without = max(without, live)
    place = place_of_line(complete[-1].line)
    if place is None:
        return []
    size = sum(z.nbytes for z in {z.key: z for z in complete}.values())
    return [ZeroedInPlace(place=place, bytes=size, peak=total, saving=max(0, peak - without), calls=len(complete))]


def _stale_record(window: OpenWindow, ledger: Ledger, at: int, total: int, tick: int,
                  gradient_births: set[int]) -> StaleAtPeak | None:  # fmt: skip
    """Storages born before the boundary that the peak lies behind, dead before the window's end, never read again."""
    step = sum(1 for t in window.ticks if t <= at)
    if not step or step not in window.names:
        return None
    boundary = window.ticks[step - 1]
    read = window.read.get(step, set())
    stale: list[tuple[str, Birth]] = []
    graph = 0
    names_of, by_graph = window.names[step], window.graph_names[step]
    for birth in _alive_at(ledger, at):
        if birth.event >= boundary or birth.died is None or birth.key in read or id(birth) in gradient_births:
            continue
        if birth.op == "adopted" or birth.phase in ("data", "optimizer"):
            continue
        name = names_of.get(birth.key) or by_graph.get(birth.key)
        if name is not None:
            stale.append((name, birth))
            graph += birth.nbytes if birth.key in by_graph else 0
    if not stale:
        return None
    sums: dict[str, int] = defaultdict(int)
    for name, birth in stale:
        sums[name] += birth.nbytes
    names = sorted(sums, key=lambda n: -sums[n])
    sites: list[SiteBytes] = sum_by_site((b for _, b in stale), 4)
    return StaleAtPeak(
        tick=tick, kind=window.kind, bytes=sum(sums.values()), peak=total, names=names,
        name_bytes=[sums[n] for n in names], with_graph=graph, place=sites[0].site.place, sites=sites,
    )  # fmt: skip
