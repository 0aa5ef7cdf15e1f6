"""What keeps memory that no name leads to: by the search for names, and by the steps in which objects were traced."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from torchvet.analysis.growth import usable_censuses
from torchvet.rules.kit import Holder, Place, RankRecording, Recording, Related, Rule, records, size
from torchvet.rules.shared import unreachable_storages, witnesses

_SHOWN = 3
_MOST = 0.5
"""The share of the heap's growth from which on what was traced accounts for it: blocks are rounded up, and some are
taken from memory that was there."""
_FIND = (
    "look for what is kept once a step and is no tensor (NumPy arrays, bytes, figures, log records, a library's "
    "cache): `tracemalloc` names the line of Python objects, memray that of native ones"
)
_FOLLOW = (
    "look at what the result of this line is stored in, and keep only what is needed, in something of fixed size; "
    "memray names the lines of native memory"
)
_STOP = (
    "stop the profiler after a few steps, or give it a schedule: "
    "`torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=3))` and `step()` in each step"
)


class Traced(NamedTuple):
    """What is known of a heap's growth besides its size; without a cause any is as likely as another. `sure`: what was
    traced accounts for most of it, and is no garbage that waits for the collector."""

    cause: str | None = None
    advice: str = _FIND
    place: Place | None = None
    related: tuple[Related, ...] = ()
    holder: Holder | None = None
    sure: bool = False


def traced(rank: RankRecording, counted: witnesses.Witness, recording: Recording) -> Traced:
    """What the steps show in which Python's objects were traced; nothing where there are none, or on a device."""
    objects = rank.last(records.memory.ObjectLines)
    # What Python's objects take is none of the device's.
    if objects is None or counted.name == "device memory":
        return Traced()
    rate = counted.measured or 0.0
    lines = _lines_in(recording, objects)
    place = lines[0][0] if lines else None
    beside = tuple(Rule.beside("allocated", f"{size(n)} per step of Python objects live on", at) for at, n in lines)
    advice = _FOLLOW if lines else _FIND
    live = "live on" if objects.collected else "live on, or wait for the cyclic collector"
    # Python's objects first: they have lines.
    if objects.bytes >= _MOST * rate:
        made = f"{size(objects.bytes)} per step of Python objects that these lines make {live}"
        return Traced(made, advice, place, beside, sure=objects.collected)
    # Tensors that were made where operators are not watched.
    if objects.storages >= _MOST * rate:
        who = "by another thread or as the parameters of models that nothing names"
        made = f"tensors with {size(objects.storages)} per step {live}, made {who}"
        return Traced(made, advice, place, (*outermost(rank), *beside), native_holder(rank), objects.collected)
    if objects.profiler is not None:
        on = "a profiler of torch's, made here, is on: it keeps an event for each operator until it is stopped"
        holder = Holder(name="torch.profiler", kind="native", path=["torch.profiler"])
        return Traced(on, _STOP, _within(recording, objects.profiler), (), holder)
    # A few bytes of Python may own native memory, and may be anything else: no line is the place of that growth.
    return Traced(None, advice, None, beside)


def _lines_in(recording: Recording, objects: records.memory.ObjectLines) -> list[tuple[Place, float]]:
    """The lines whose objects live on, with their functions, and bytes per step."""
    return [(_within(recording, one.place), one.bytes) for one in objects.lines[:_SHOWN]]


def _within(recording: Recording, place: Place) -> Place:
    """The place with its function, by the text."""
    span = recording.index.function_at(place.path, place.line)
    return msgspec.structs.replace(place, function=span.qualname) if span is not None else place


def _native(rank: RankRecording) -> list[records.base.Stranger]:
    """What the last search that came upon any named in the place of a name: a hook, a kind of graph node, a method."""
    looks = ([s for s in c.strangers if s.kind == "native" and s.owner] for c in reversed(usable_censuses(rank)))
    return next(filter(None, looks), [])


def native_holder(rank: RankRecording) -> Holder | None:
    """The same, as a finding's holder."""
    names = unreachable_storages.names_of(_native(rank))
    return Holder(name=names[0], kind="native", path=names) if names else None


def outermost(rank: RankRecording) -> list[Related]:
    """The outermost Python objects that lead to what no name does, with their lines where they are functions."""
    who = [s for s in _native(rank) if s.owner != records.base.SAVED_HOOKS]
    places = [records.base.Place(s.path, s.line, s.owner) if s.path and s.line else None for s in who]
    return [Rule.beside("leads to it", s.owner, place) for s, place in zip(who, places, strict=True)]
