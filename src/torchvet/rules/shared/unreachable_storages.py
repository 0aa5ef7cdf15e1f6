"""Findings about storages that live on although no name leads to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torchvet.analysis import growth_of
from torchvet.recording import records
from torchvet.rules.kit import Findings, Holder, Location, Measured, RankRecording, Recording, Rule, grading, size
from torchvet.rules.shared import exhaustion, growth_rule, peaks

_WORTH_SAYING = 0.05
"""Share of all growth below which what no name reaches is a remainder of the search and no finding."""

_MOSTLY = 0.9
"""Share of what lives on from which on what no name reaches is nearly all of it."""
_ENOUGH_WINDOWS = 3
_LEAST_HELD = 64 * 1024
"""Bytes of garbage between collections that are nobody's trouble, however small the program."""

_NAMELESS = {
    "cycle": "a reference cycle",
    "ctx": "a custom Function's ctx",
    "native": "an autograd graph that nothing names",
}


def stranger_findings(
    rule: Rule,
    recording: Recording,
    kind: Literal["cycle", "ctx", "native"],
    cause: str,
    advice: str,
    location: Location | None = None,
    owner: str = "",
) -> Findings:
    """One finding a rank where storages without a name live on in this way. A cycle's are the collector's to free:
    they are graded by what is held between its runs; what only C++ holds is never freed and is graded as growth. Of
    that, only what has the `owner`."""
    for rank in recording.ranks:
        census = _searched(rank, kind, owner)
        if census is None:
            continue
        # What C++ holds stays until the end, and so the last look has all of it.
        rate = growth_of(rank).unreached if kind == "native" else garbage_rate(rank)
        if max(growth_of(rank).unreached, rate) < _WORTH_SAYING * growth_of(rank).measured:
            continue
        # Every program has some garbage.
        if kind != "native" and held_between_collections(rank, rate) < _LEAST_HELD:
            continue
        who = [s for s in census.strangers if _is_of(s, kind, owner)]
        names = names_of(who)
        name = names[0] if names else _NAMELESS[kind]
        yield rule.observed(
            rank,
            severity=_grade(rank, recording, rate, kind == "native"),
            message=f"{name} keeps {size(rate)} more alive every step, and no name leads "
            f"there{_until(rank, kind, rate)}",
            place=location or _location(kind, who, census, recording),
            cause=cause,
            advice=advice,
            related=[growth_rule.allocated(s) for s in census.unreached_sites[:3]],
            holder=Holder(name=name, kind=kind, path=names),
            measured=Measured(
                bytes_per_step=rate,
                # Two ways to look: storages that no name reaches, and what the collector would free.
                bytes=max(census.unreached, census.garbage),
                share=_share(rank, rate),
                exhausted_at_step=exhaustion.exhaustion_of(rank, recording).step_for(rate)
                if kind == "native"
                else None,
            ),
        )


def _is_of(stranger: records.base.Stranger, kind: str, owner: str) -> bool:
    return stranger.kind == kind and (kind != "native" or stranger.owner == owner)


def _searched(rank: RankRecording, kind: str, owner: str) -> records.base.Census | None:
    """The last census, taken while the program's names were there, that found somebody of this kind."""
    from torchvet.analysis.growth import usable_censuses

    found = _with_garbage(rank, (*rank.since_restart(records.base.Census), *usable_censuses(rank)))
    # The usable ones stand last, so they come first here.
    return next((c for c in reversed(found) if any(_is_of(s, kind, owner) for s in c.strangers)), None)


def _with_garbage(rank: RankRecording, looks: Iterable[records.base.Census]) -> list[records.base.Census]:
    """The looks that came upon something without a name. A cycle that only the last look sees, when the program was
    over, died with the variables of `main()`: no step makes such cycles."""
    unseen = _is_clean_before_the_end(rank)
    found = [c for c in looks if c.unreached or c.garbage]
    return [c for c in found if not (c.final and unseen and not _collector_frees(rank, c))]


def _is_clean_before_the_end(rank: RankRecording) -> bool:
    """Whether looks at the running program found nothing without a name. One that was cut short has found nothing, and
    shows that there were names to go through."""
    before = [c for c in rank.since_restart(records.base.Census) if not (c.final or c.amid)]
    enough = len(before) > 1 or (bool(before) and _leaves_nothing(rank))
    return enough and not any(c.unreached or c.garbage for c in before)


def _collector_frees(rank: RankRecording, last: records.base.Census) -> bool:
    """Whether the collector was seen to free a good part of such garbage in the steps that were watched: a few bytes of
    other cycles (an exception's frame) say nothing of it."""
    from torchvet.analysis.steps import steps_between

    use = rank.last(records.training.CollectorUse)
    rate = last.garbage / max(1, steps_between(rank, 0, last.tick)[1])
    return use is not None and use.freed > 0 and use.freed / max(1, use.sampled) >= _WORTH_SAYING * rate


def _leaves_nothing(rank: RankRecording) -> bool:
    """Whether of the steps that were looked at no storage has outlived the next looks."""
    seen = [s for s in rank.all(records.base.Survivors) if not s.final and s.steps]
    return len({s.window for s in seen}) >= _ENOUGH_WINDOWS and not any(s.bytes for s in seen)


def names_of(who: list[records.base.Stranger]) -> list[str]:
    """What holds, as a person would say it, each once."""
    return list(dict.fromkeys(_name_of(s) for s in who if s.owner))


def _name_of(stranger: records.base.Stranger) -> str:
    if stranger.attribute is None:
        return stranger.owner
    return f"{stranger.owner}{'(): ' if stranger.variable else '.'}{stranger.attribute}"


def garbage_rate(rank: RankRecording) -> float:
    """Bytes a step that end up in cycles: sampled storages show only themselves; what was there at a look, and what
    collections freed, is all there was."""
    # Each sees only a part, and none more than there is.
    return max(growth_of(rank).unreached, _born_as_garbage(rank), _made(rank), _freed(rank))


def _made(rank: RankRecording) -> float:
    """By the garbage that was there at a look into it: collections may have freed some before."""
    from torchvet.analysis.steps import steps_between

    looks = [c for c in _with_garbage(rank, rank.since_restart(records.base.Census)) if c.garbage]
    return max((c.garbage / max(1, steps_between(rank, 0, c.tick)[1]) for c in looks), default=0.0)


def _freed(rank: RankRecording) -> float:
    from torchvet.analysis.steps import steps_between

    use, program = rank.last(records.training.CollectorUse), rank.program
    # On a device the heap shows none of the tensors.
    if use is None or not use.heap_freed or use.until <= use.since or (program is not None and program.device != "cpu"):
        return 0.0
    return use.heap_freed / max(1, steps_between(rank, use.since, use.until)[1])


def _born_as_garbage(rank: RankRecording) -> float:
    """Bytes per step that outlived their step at the first look, less what names hold: later looks come after the
    collector has been."""
    from statistics import median  # drags in fractions and decimals, which no check of source needs

    first: dict[int, records.base.Survivors] = {}
    for record in rank.all(records.base.Survivors):
        # The first look at each window.
        first.setdefault(record.window, record)
    rates = [s.bytes / s.steps for s in first.values() if s.steps]
    return max(0.0, median(rates) - growth_of(rank).explained) if rates else 0.0


def held_between_collections(rank: RankRecording, rate: float) -> float:
    """Bytes that garbage holds at most: the rate times the steps that the oldest freed (or living) garbage lasted."""
    use = rank.last(records.training.CollectorUse)
    outcome = rank.last(records.training.Outcome)
    ticks = outcome.ticks if outcome is not None else 0
    # Where no collection freed anything, garbage stays until the run ends. One that made the heap smaller has freed
    # some, though none of sampled steps, which is then no habit of the steps.
    longest = max(use.longest, _oldest(rank)) if use is not None and (use.freed or use.heap_freed) else ticks
    return rate * max(1, longest)


def _oldest(rank: RankRecording) -> int:
    """Steps that garbage of sampled steps was seen to live, where garbage is most of what lives on: a collection may
    have freed that of one step at once, and have left the rest for the whole run."""
    growth = growth_of(rank)
    if growth.unreached < _MOSTLY * growth.measured:
        return 0
    ends = {w.id: w.last for w in rank.since_restart(records.base.Window)}
    # The last look comes after the end, where nothing was made any more.
    alive = [s for s in rank.since_restart(records.base.Survivors) if s.bytes and not s.final]
    return max((s.tick - ends.get(s.window, s.tick) for s in alive), default=0)


def _share(rank: RankRecording, rate: float) -> float:
    held = held_between_collections(rank, rate)
    return held / (held + peaks.peak_of(rank)) if held else 0.0


def _grade(
    rank: RankRecording, recording: Recording, rate: float, for_good: bool
) -> Literal["error", "warning", "info"]:
    if not for_good:
        return grading.of_share(_share(rank, rate))
    forecast = exhaustion.exhaustion_of(rank, recording)
    return grading.of_growth(forecast.now, forecast.step_for(rate))


def _until(rank: RankRecording, kind: str, rate: float) -> str:
    if kind == "native":
        return "; nothing frees it"
    held = size(held_between_collections(rank, rate))
    return f"; the cyclic collector frees it some time later ({held} held in between)"


def _location(
    kind: str, who: list[records.base.Stranger], census: records.base.Census, recording: Recording
) -> Location | None:
    """The line that closes the cycle, else the one that allocates: of what C++ holds no line of Python closes it."""
    closing = stranger_location(who, recording) if kind != "native" else None
    return closing or growth_rule.location_of(growth_rule.first_place(census.unreached_sites))


def stranger_location(who: list[records.base.Stranger], recording: Recording) -> Location | None:
    """The line that closes the cycle: the closure's, or the one that stores into the attribute."""
    for stranger in who:
        if stranger.attribute is None or stranger.path is None:
            continue
        name = stranger.attribute if stranger.variable else f"self.{stranger.attribute}"
        # A closure's variable by its own name, an attribute as its methods write it.
        stores = recording.index.stores(name, stranger.owner, stranger.path, [stranger.path])
        if stores:
            return growth_rule.location_of(stores[0])
    known = ((s.path, s.line, s.owner) for s in who)
    return next((Location(path=path, line=line, function=owner) for path, line, owner in known if path and line), None)
