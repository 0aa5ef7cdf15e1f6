"""What keeps a growing name within limits: its own capacity, code that empties it, a loop that it dies with or that
ends, a dataset whose items it is kept by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvet.analysis.growth_series import CONTAINERS
from torchvet.formatting import count, size
from torchvet.rules.kit import Growth, RankRecording, Recording, Store, records

if TYPE_CHECKING:
    from torchvet.analysis.trend import Sizes
    from torchvet.source.stores import Limit, Removal


_LATER, _LESS, _FLAT = 24, 0.5, 0.05
"""Steps over which memory must not have risen, so that a name takes in no more: no program warms up for so long (see
`witnesses`). By so much of what it took in each step memory may have risen at the most, and in the middle."""
_STEPS_A_TURN = 4
"""Steps for each item that was stored, at least, where items come by epochs or trainings."""


@dataclass(frozen=True)
class Bound:
    """A limit in words, and in bytes where it can be worked out."""

    text: str
    bytes: int | None = None
    sure: bool = True
    """Whether it is known to come in time: not where the program says that there is a limit and not which."""


def bound_of(growth: Growth, recording: Recording) -> Bound | None:
    """The tightest limit that is known; None when there is none."""
    if growth.dropped_at is not None:
        # The text may tell how much more it comes to until then.
        emptied = _removal(growth, recording)
        released = Bound(f"it was released by step {growth.dropped_at:,}", growth.bytes)
        return emptied if emptied is not None and emptied.bytes is not None else released
    # What the run shows comes before what the text says, and a limit of the type before any statement.
    return (
        _capacity(growth)
        or _ended(growth, recording)
        or _history(growth, recording)
        or _slots(growth)
        or _loop(growth, recording)
        or _call(growth, recording)
        or _stored(growth, recording)
        or _removal(growth, recording)
        or _slows(growth)
    )


def _capacity(growth: Growth) -> Bound | None:
    holding = growth.holding
    if holding.capacity is None:
        return None
    # Without a length one item a step is the best guess.
    each = growth.bytes / holding.length if holding.length else growth.bytes_per_step
    return Bound(f"its type holds at most {holding.capacity:,} items", int(each * holding.capacity))


def _ended(growth: Growth, recording: Recording) -> Bound | None:
    """What grew while names were searched, and memory is flat after that: a cache that the first epoch has filled.
    Searches of many tensors come to their share of the time early in a run."""
    from torchvet.analysis.memory_series import per_step  # `check` reads no recording

    rank = next((r for r in recording.ranks if r.rank == growth.rank), recording.ranks[0])
    sizes = _memory_of(growth, rank) if growth.kind in ("training", "backward", "manual") else []
    trend, ticks = per_step(rank, sizes)
    if trend is None or trend.first < growth.last_tick or trend.half < _LATER:
        return None
    # What falls hides what grows beside it, as a queue that is worked off.
    flat = abs(trend.rate) * ticks < _FLAT * growth.bytes_per_step
    if not flat or trend.high * ticks >= _LESS * growth.bytes_per_step:
        return None
    # No size: something else may have given back as much as it took, and a verdict must not rest on this.
    return Bound(f"it may have ended: memory has not risen since step {trend.first:,}")


def _memory_of(growth: Growth, rank: RankRecording) -> Sizes:
    """The memory that a name's storages lie in; nothing where they lie in several."""
    from torchvet.analysis.memory_series import device_sizes, heap_sizes

    # Without a site: on the device where there is one, as most are.
    sites = [one.site.device for one in growth.holding.sites] or [rank.program.device if rank.program else "cpu"]
    devices = {device.partition(":")[0] for device in sites}
    if len(devices) > 1:
        return []
    return heap_sizes(rank) if devices == {"cpu"} else device_sizes(rank)


def _slows(growth: Growth) -> Bound | None:
    if growth.slows is None:
        return None
    before, now = map(size, growth.slows)
    return Bound(f"it gets ever slower, from {before} per step to {now}: it may be filling up", sure=False)


def history_of(growth: Growth, recording: Recording) -> records.optimizers.OptimizerUse | None:
    """The optimizer whose history of its last steps grows, where it has an end that is not yet behind it."""
    if not is_history(growth):
        return None
    uses = [u for r in recording.ranks[:1] for u in r.latest(records.optimizers.OptimizerUse, "id") if u.history]
    most = max(growth.holding.sites, key=lambda s: s.bytes)
    uses = [u for u in uses if _may_be_of(u, growth, most)]
    # Of several that may be meant the one that holds most: what is told is not exceeded.
    return max(uses, key=lambda u: u.history_bytes, default=None)


_ABOVE, _OUTLIVED = 1.1, 1.5
"""Times the bytes that an optimizer should keep, above which it keeps more than that (numbers lie beside the vectors);
times the steps, above which what still grows has no such end (looks do not come at its turns)."""


def _may_be_of(use: records.optimizers.OptimizerUse, growth: Growth, most: records.base.SiteBytes) -> bool:
    if growth.bytes > _ABOVE * use.history_bytes:
        return False
    # torch's L-BFGS keeps vectors of all its parameters.
    if use.history_known:
        return most.bytes // most.storages == use.history_bytes // (2 * use.history)
    # Of others only a number is known, by its name: what has outlived it is not limited by it.
    return min(growth.last_step, use.steps) <= _OUTLIVED * use.history


def is_history(growth: Growth) -> bool:
    """Whether what grows is state of an optimizer, which its own step makes."""
    sites = growth.holding.sites
    made = sum(s.bytes for s in sites if s.site.phase == "optimizer")
    return ".state" in growth.holding.path and made > 0.5 * sum(s.bytes for s in sites)


def _history(growth: Growth, recording: Recording) -> Bound | None:
    use = history_of(growth, recording)
    if use is None:
        return None
    ends = "it is full" if use.history_known else f"if {use.name} heeds its `history_size`, it is full"
    text = f"{ends} after {count(use.history, 'update')}{' (`history_size`)' if use.history_known else ''}"
    return Bound(f"{text}, with {size(use.history_bytes)}", use.history_bytes, sure=use.history_known)


def _slots(growth: Growth) -> Bound | None:
    """A list made at its full length, whose places are taken one by one."""
    holding = growth.holding
    length, taken = holding.length, holding.items
    # What has items that are containers grows in these, and so may a dict, of which the last item alone is known.
    if (
        holding.container != "list"
        or length is None
        or length != growth.length_before
        or not 0 < taken < length
        or holding.item_type in CONTAINERS
    ):
        return None
    return Bound(f"it has {length:,} places, of which {taken:,} are taken", int(growth.bytes / taken * length))


def _stored(growth: Growth, recording: Recording) -> Bound | None:
    """What the statement that stores says itself."""
    stores = recording.index.stores(*growth.holding.where)
    # A store in a loop is what makes it grow; any other counts only where there is none.
    stores = [s for s in stores if s.in_loop] or stores
    if not stores:
        return None
    return _turns(growth, stores, recording) or _dataset(growth, stores, recording)


def _turns(growth: Growth, stores: list[Store], recording: Recording) -> Bound | None:
    """One store in each turn of a loop whose turns are whole epochs or trainings: the loop ends before memory does."""
    added = _added(growth)
    # An item at each step is none for each epoch, whatever loop is around.
    if len(stores) > 1 or (added is not None and not 0 < added <= growth.steps / _STEPS_A_TURN):
        return None
    found = recording.index.turns_around(stores[0])
    if found is not None:
        turns, line = found
        bound = f"the loop in line {line} has {turns:,} turns"
        if added is not None and added <= turns:
            # What each item has taken so far, for the turns to come.
            return Bound(bound, growth.bytes + growth.bytes * (turns - added) // (growth.holding.length or 1))
        if added is None and growth.last_step >= _STEPS_A_TURN * turns:
            # How many turns it took to come to this is not known: one at the least.
            return Bound(bound, growth.bytes * turns)
    of_trainings = recording.index.of_trainings(stores[0]) if added is not None else None
    if of_trainings is not None:
        return Bound(f"one for each training: the loop in line {of_trainings} makes the model anew")
    return None


def _added(growth: Growth) -> int | None:
    """How many items have come in between the first and the last look; None where they were not counted."""
    length, before = growth.holding.length, growth.length_before
    # 0 items now: it was emptied in between, and the difference says nothing.
    return length - before if length and before is not None else None


def _dataset(growth: Growth, stores: list[Store], recording: Recording) -> Bound | None:
    """A dataset's cache by index, as long as its first epoch has not passed."""
    # Another store may keep under any key.
    if not all(recording.index.is_keyed_by_index(s) for s in stores) or _outlived_an_epoch(growth, recording):
        return None
    lengths = [b.length for r in recording.ranks for b in r.all(records.training.LoopBound)]
    most = int(growth.bytes_per_step * max(lengths)) if lengths else None
    return Bound("it is full when every item of the dataset has been read", most, sure=most is not None)


def _loop(growth: Growth, recording: Recording) -> Bound | None:
    """A plain local of the function that runs a loop over a loader of known length, made anew for each run of it.

    Only where that function is called again and again, or only evaluates: the loop in a `main()` is the whole program.
    """
    holding = growth.holding
    name, scope, path, _ = growth.holding.where
    # An attribute outlives its function.
    if len(holding.path) != 1 or not (growth.kind == "evaluation" or _called_in_loop(growth, recording)):
        return None
    # The last record of a loop has its final length.
    for loop in {b.place: b for r in recording.ranks for b in r.all(records.training.LoopBound)}.values():
        if loop.place.path != path or not scope.endswith(f".{loop.place.function}"):
            continue
        # It has outlived one run of the loop, so it is not made anew for each.
        if growth.last_tick - growth.first_tick > loop.length:
            continue
        if recording.index.loop_bound(loop.place.function, path, name, loop.place.line):
            size = int(growth.bytes_per_step * loop.length)
            return Bound(f"it dies with the loop in line {loop.place.line} ({loop.length:,} batches)", size)
    return None


def _call(growth: Growth, recording: Recording) -> Bound | None:
    """What a library gathers for a call that evaluates, over a loader of known length: predictions that it returns.

    The names are the library's alone: what the program's own object keeps outlives the call.
    """
    holding, caller = growth.holding, growth.holding.called_from
    if growth.kind != "evaluation" or caller is None or holding.files or not of_a_library(holding):
        return None
    loops = (b for r in recording.ranks for b in r.all(records.training.LoopBound))
    # One call may go over several loaders.
    length = max((b.length for b in loops if (b.place.path, b.place.line) == (caller.path, caller.line)), default=0)
    # It has outlived one call, so it is not made anew for each.
    if growth.last_tick - growth.first_tick > length:
        return None
    most = max(growth.bytes, int(growth.bytes_per_step * length))
    return Bound(f"the call in line {caller.line} goes over {count(length, 'batch', 'batches')}", most)


def of_a_library(holding: records.base.Holding) -> bool:
    """Whether a name's first variable is one of a library's function."""
    from torchvet.snapshots.places import is_library

    return holding.place is not None and is_library(holding.place.path)


def _called_in_loop(growth: Growth, recording: Recording) -> bool:
    caller = growth.holding.called_from
    return caller is not None and recording.index.enclosing_loop(caller.path, caller.line) is not None


def _removal(growth: Growth, recording: Recording) -> Bound | None:
    """Code that takes something out again or makes it anew, where the text says how often, and the run does not show
    that it comes to nothing: what grew on all the same, at every step, is not bounded by it."""
    found = [
        b
        for limit in recording.index.limits(*growth.holding.where, steps=_steps(recording))
        if (b := _limited(growth, limit, recording)) is not None
    ]
    known = [b for b in found if b.bytes is not None]
    # Of several limits the tightest holds.
    return min(known, key=lambda b: b.bytes or 0) if known else next(iter(found), None)


def _steps(recording: Recording) -> list[tuple[str, int]]:
    """Lines of the loops whose turns are steps."""
    optimizers = [
        u.step_place
        for r in recording.ranks
        for u in r.all(records.optimizers.OptimizerUse)
        if u.step_place is not None
    ]
    loops = [b.place for r in recording.ranks for b in r.all(records.training.LoopBound)]
    return list(dict.fromkeys((p.path, p.line) for p in [*optimizers, *loops]))


def _limited(growth: Growth, limit: Limit, recording: Recording) -> Bound | None:
    occasion, line = limit.occasion, limit.removal.line
    if occasion.items is not None:
        held = growth.holding.length
        each = growth.bytes / held if held else growth.bytes_per_step
        # It already holds more than the line would leave; one more may be stored before the line takes one out.
        # Then it is no limit, or one of something else.
        if (held or 0) > occasion.items + 1:
            return None
        return Bound(f"line {line} keeps it to {occasion.items:,} items", max(growth.bytes, int(each * occasion.items)))
    if occasion.outer:
        return _emptied_outside(growth, limit, recording)
    # It ran, and the name grew on all the same.
    if _too_slow(limit.removal, recording):
        return None
    if occasion.turns is not None:
        # It has outlived the turns after which the line should have emptied it.
        # Half as much again, as looks do not come at its turns.
        if growth.last_step - growth.first_tick > 1.5 * occasion.turns:
            return None
        most = max(growth.bytes, int(growth.bytes_per_step * occasion.turns))
        return Bound(f"line {line} empties it every {occasion.turns:,} steps", most)
    if occasion.always and limit.removal.kind in _ONE_BY_ONE:
        return None
    return Bound(f"line {line} limits it, at a size that is not known", sure=False)


_ONE_BY_ONE = ("del", "pop", "popleft", "remove", "get")
"""Removals of one item. Where something else than the program calls for one, whatever is left was never asked for: what
has grown on all the while is not limited by it, as it may be by a reset."""


def _emptied_outside(growth: Growth, limit: Limit, recording: Recording) -> Bound | None:
    """What is emptied once the loop that stores has ended: by an epoch of the length that the loader or the text
    states, unless the growth has outlived that."""
    lengths = [b.length for r in recording.ranks for b in r.all(records.training.LoopBound)]
    # A loader's length counts before the text's: it is what was run.
    longest = max(lengths, default=limit.turns)
    line = limit.removal.line
    if longest is None:
        return Bound(f"line {line} empties it between epochs, of which this run has seen no end", sure=False)
    steps = longest * limit.occasion.rounds
    if growth.last_tick - growth.first_tick > 1.5 * steps:
        return None
    most = max(growth.bytes, int(growth.bytes_per_step * steps))
    return Bound(f"line {line} empties it between epochs, after {steps:,} steps", most)


def _too_slow(removal: Removal, recording: Recording) -> bool:
    """Whether what grew all the while did so although a line ran that takes something out."""
    seen = {
        n
        for rank in recording.ranks
        for ran in rank.all(records.training.Ran)
        if ran.path == removal.path
        for n in ran.lines
    }
    return recording.index.reached(removal.path, seen, removal.line)


def _outlived_an_epoch(growth: Growth, recording: Recording) -> bool:
    lengths = [b.length for r in recording.ranks for b in r.all(records.training.LoopBound)]
    return bool(lengths) and growth.last_tick - growth.first_tick > 1.5 * max(lengths)
