"""What is known of each gradient scaler, held weakly, and the totals of those that were made at one place."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torchvet.probes.internals.simulated import numbers
from torchvet.recording.records.base import Place
from torchvet.recording.records.scaling import FaultKind, ScalingUse

# A gradient is made and used within a few updates; more scales would grow with the run.
_KEPT = 64
"""Scales that are remembered by their number."""


@dataclass
class Update:
    """An `update` that went through: where, and which optimizers had been stepped or divided since the one before."""

    place: Place | None
    stepped: frozenset[int]
    divided: frozenset[int]


@dataclass
class ScalerState:
    """One scaler. Its scales are numbered by its updates: `generation` is the number of the one in force."""

    number: int
    ref: weakref.ref[Any]
    use: ScalingUse
    generation: int = 0
    scales: dict[int, float] = field(default_factory=dict)
    updates: dict[int, Update] = field(default_factory=dict)
    stepped: set[int] = field(default_factory=set)
    divided: set[int] = field(default_factory=set)
    places: dict[str, Place | None] = field(default_factory=dict)
    """Where each of its methods was called last."""
    too_early: dict[int, Place | None] = field(default_factory=dict)
    """Optimizers whose `unscale_` found nothing to divide, since the last update."""
    asked: int = -1
    """The generation in which the program asked for the scale."""
    reads: list[tuple[FaultKind, Place | None, Place | None]] = field(default_factory=list)
    """Numbers made of scaled values in this generation, with the line and the backward's: a program that asks for the
    scale, before or after, divides them by it."""
    settled: bool = False
    succeeds: bool = False
    restored: bool = False
    optimizers: Counter[int] = field(default_factory=Counter)
    """How often it has stepped each, by identity."""
    skipped_now: bool = False
    unknown_now: bool = False
    unskipped: int = 0
    """Updates since the last that followed a skip or made the scale larger."""
    run: int = 0
    looks: int = 0
    pending: Any = None
    """Of fused optimizers on a device: what tells of skips, unread."""

    @property
    def scaler(self) -> Any:
        """The scaler, or None."""
        return self.ref()

    def read(self) -> float | None:
        """The scale in force. On a device this waits for it."""
        scaler = self.ref()
        scale = getattr(scaler, "_scale", None)
        if scale is None:
            # torch makes the tensor of the scale at the first loss.
            return getattr(scaler, "_init_scale", None)
        return float(numbers(scale).item())

    def on_device(self) -> bool:
        """Whether reading its scale makes a device wait."""
        scale = getattr(self.ref(), "_scale", None)
        return scale is not None and numbers(scale).device.type != "cpu"

    def note_scale(self) -> float | None:
        """Remember the scale in force under its number, where that makes nobody wait."""
        if self.on_device():
            return self.scales.get(self.generation)
        return self.keep(self.read())

    def keep(self, value: float | None) -> float | None:
        """Remember the scale in force."""
        if value is not None:
            self.scales[self.generation] = value
            self.scales.pop(self.generation - _KEPT, None)
            self.use.scale = value
            self.use.lowest = value if self.use.lowest is None else min(self.use.lowest, value)
        return value

    def scale(self) -> float | None:
        """The scale in force, as far as it is known."""
        return self.scales.get(self.generation, self.use.scale)

    def stepped_with(self, optimizer: int, skipped: bool | None) -> None:
        """`step` has returned; whether the optimizer's own step was skipped, where that is known."""
        use = self.use
        use.steps += 1
        self.stepped.add(optimizer)
        self.optimizers[optimizer] += 1
        if skipped is None:
            use.unknown += 1
            self.unknown_now = True
        elif not skipped:
            self.settled = True
        else:
            use.skipped += 1
            self.skipped_now = True
            # Skips while the scale is still being found are how dynamic scaling works.
            use.early += not self.settled
            use.relearned += not self.settled and self.succeeds

    def updated(self, place: Place | None) -> None:
        """`update` has returned: another scale is in force, or the same under another number."""
        use = self.use
        use.updates += 1
        self.run = self.run + 1 if self.skipped_now else 0
        use.trailing, use.longest = self.run, max(use.longest, self.run)
        worked_out = self._worked_out()
        self.skipped_now = self.unknown_now = False
        generation, self.generation = self.generation, self.generation + 1
        update, before = Update(place, frozenset(self.stepped), frozenset(self.divided)), self.updates.get(generation)
        # One object for all that are alike: the samples of the heap would take 64 new ones for growth.
        self.updates[self.generation] = before if before == update else update
        self.updates.pop(self.generation - _KEPT, None)
        self.stepped.clear()
        self.divided.clear()
        self.too_early.clear()
        # Worked out by the scaler's own rules: reading it would make the host wait at each update.
        if self.on_device():
            self.keep(worked_out)
        else:
            self.note_scale()

    def _worked_out(self) -> float | None:
        """The scale after the update under way, without reading it: None where that one, or a skip, is not known."""
        scale, scaler = self.scales.get(self.generation), self.scaler
        if scale is None or scaler is None or self.unknown_now:
            return None
        if self.skipped_now:
            self.unskipped = 0
            return scale * self.use.backoff
        self.unskipped += 1
        if self.unskipped < self.use.interval:
            return scale
        self.unskipped = 0
        return float(scale * scaler._growth_factor)


class Scalers:
    """All scalers of a session."""

    def __init__(self) -> None:
        self._states: weakref.WeakKeyDictionary[Any, ScalerState] = weakref.WeakKeyDictionary()
        self._uses: dict[tuple[Any, ...], ScalingUse] = {}
        self._recent: weakref.ref[ScalerState] | None = None
        self._made = 0
        self._last: dict[int, tuple[int, int]] = {}
        """For each optimizer the use and the number of the scaler that stepped it last."""
        self.by_number: weakref.WeakValueDictionary[int, ScalerState] = weakref.WeakValueDictionary()

    def __bool__(self) -> bool:
        return bool(self._made)

    def made(self, scaler: Any, asked: bool, place: Place | None) -> ScalerState:
        """A scaler was constructed."""
        enabled, name, device = bool(scaler._enabled), type(scaler).__name__, str(getattr(scaler, "_device", ""))
        key = (place, enabled, name)
        use = self._uses.get(key)
        if use is None:
            use = self._uses[key] = ScalingUse(
                id=len(self._uses), name=name, place=place, device=device, enabled=enabled, asked=asked, made=0
            )
        use.made += 1
        if enabled:
            use.initial, use.backoff = float(scaler._init_scale), float(scaler._backoff_factor)
            use.interval = int(scaler._growth_interval)
        self._made += 1
        state = ScalerState(self._made, weakref.ref(scaler), use)
        self._states[scaler] = self.by_number[self._made] = state
        return state

    def of(self, scaler: Any) -> ScalerState:
        """What is known of a scaler; one that was made before anybody looked begins here."""
        recent = self._recent() if self._recent is not None else None
        # Most programs have one scaler, which is asked for several times a step.
        if recent is not None and recent.ref() is scaler:
            return recent
        state = self._states.get(scaler)
        if state is None:
            state = self.made(scaler, True, None)
        self._recent = weakref.ref(state)
        return state

    def succession(self, state: ScalerState, optimizer: int) -> None:
        """A scaler steps an optimizer: is it one after another that was made at the same place?"""
        before = self._last.get(optimizer)
        mine = (state.use.id, state.number)
        # Made at the same place with a higher number: the program makes its scaler anew.
        follows = before is not None and before[0] == mine[0] and before[1] < mine[1]
        if follows and not state.succeeds and not state.restored:
            state.succeeds = True
            state.use.replaced += 1
        if before != mine:
            self._last[optimizer] = mine

    def live(self) -> list[ScalerState]:
        """Those that are still alive."""
        return list(self._states.values())

    def uses(self) -> Iterator[ScalingUse]:
        """The running totals, one for each place where scalers are made."""
        yield from self._uses.values()
