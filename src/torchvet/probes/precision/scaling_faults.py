"""Judges by arithmetic what is stepped on: is every part of a gradient divided as often as it was multiplied?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from torchvet.probes.internals.simulated import numbers
from torchvet.probes.precision.loss_marks import Mark
from torchvet.probes.precision.scaled_gradients import Clip, Gradients, Part, Witness
from torchvet.probes.precision.scaler_states import Scalers, ScalerState, Update
from torchvet.recording.records.base import Place
from torchvet.recording.records.scaling import FaultKind, ScalingFault

_MOST = 200
"""Kinds of faults by place that are kept."""


class Verdict(NamedTuple):
    """What was wrong with gradients: the line to blame, the other that belongs to it, and by which factor what was
    stepped on was too large, where that is known."""

    kind: FaultKind
    place: Place | None
    other: Place | None = None
    factor: float | None = None


class Faults:
    """The faults seen, as running totals."""

    def __init__(self, scalers: Scalers, gradients: Gradients) -> None:
        self._scalers = scalers
        self._gradients = gradients
        self._found: dict[tuple[FaultKind, Place | None], ScalingFault] = {}
        self._refused_at: dict[Place | None, int] = {}
        self.optimizer_steps = 0
        """Steps of all optimizers so far."""

    def records(self) -> Iterator[ScalingFault]:
        """The running totals."""
        uses = {use.id: use for use in self._scalers.uses()}
        for fault in self._found.values():
            use = uses.get(fault.scaler)
            fault.steps, fault.updates = (use.steps, use.updates) if use is not None else (0, 0)
            if fault.kind == "refused":
                fault.after = self.optimizer_steps - self._refused_at[fault.place]
            yield fault

    def note(self, verdict: Verdict, state: ScalerState | None, applied: bool = True) -> ScalingFault:
        """One more of a kind at a place; `applied` says whether the optimizer stepped on it."""
        kind, place, other, factor = verdict
        fault = self._found.get((kind, place))
        if fault is None:
            fault = ScalingFault(kind=kind, scaler=state.use.id if state else -1, place=place, other=other)
            if len(self._found) < _MOST:
                self._found[kind, place] = fault
        fault.count += 1
        # What the scaler skipped did no harm, and shows the same mistake.
        fault.applied += applied
        if state is not None and state.scale() is not None:
            fault.scale = state.scale()
        if factor is not None and applied:
            fault.changed += factor != 1.0
            fault.first = factor if fault.count == 1 else fault.first
            # The worst is the one furthest from 1, whether too large or too small.
            if fault.factor is None or abs(_bits(factor)) > abs(_bits(fault.factor)):
                fault.factor = factor
        return fault

    def refused(self, state: ScalerState, method: str, error: BaseException, at: Verdict) -> None:
        """torch has raised. Whether that ended the training shows later: by what waits, and by what steps."""
        fault = self.note(at, state, applied=False)
        fault.method, fault.error = method, f"{type(error).__name__}: {str(error)[:200]}"
        fault.waiting = any(w.waits() for w in self._gradients.all())
        self._refused_at[at.place] = self.optimizer_steps

    def settle_reads(self, state: ScalerState) -> None:
        """A scale is about to give way: what was read under it is a fault, unless the program asked for the scale."""
        # A program that asks for the scale divides what it logs.
        if state.asked != state.generation:
            for read in state.reads:
                self.note(Verdict(*read), state)
        state.reads.clear()

    def stepped(self, state: ScalerState, optimizer: Any, place: Place | None, applied: bool) -> None:
        """A scaler has stepped an optimizer, or has skipped the step."""
        # Many witnesses share a part: one fault for all.
        judged: set[Any] = set()
        for witness in _unlike(self._gradients.of(optimizer)):
            for part in witness.fresh:
                verdict = self._judge(state, part, witness, optimizer, place) if part not in judged else None
                judged.add(part)
                if verdict is not None:
                    self.note(verdict, state, applied)
            for clip in witness.clips:
                if clip not in judged:
                    judged.add(clip)
                    self._clipped(state, clip, applied)

    def stepped_directly(self, optimizer: Any, place: Place | None) -> None:
        """An optimizer steps past every scaler."""
        parts = (part for witness in _unlike(self._gradients.of(optimizer)) for part in witness.fresh)
        for part in dict.fromkeys(parts):
            state = self._scalers.by_number.get(part.mark.scaler) if part.mark is not None else None
            if part.mark is not None and part.power > 0:
                factor = _to_the(self._scale_of(part.mark.scaler, part.mark.generation), part.power)
                fault = self.note(Verdict("applied-scaled", place, part.place, factor), state)
                fault.through = state.optimizers[id(optimizer)] if state is not None else 0
            # Divided by `unscale_` and stepped on by hand: nobody has checked for infinities.
            elif part.mark is not None and part.power == 0 and part.divided:
                fault = self.note(Verdict("applied-unchecked", place, part.divided[-1].place), state)
                fault.changed += state is not None and bool(found_infinity(state, optimizer))

    def _judge(
        self, state: ScalerState, part: Part, witness: Witness, optimizer: Any, place: Place | None
    ) -> Verdict | None:
        """What is wrong with a part of a gradient that a scaler steps on at a place: None where it was multiplied as
        often as it was divided, by the same scale."""
        mark, power, divided = part.mark, part.power, part.divided
        too_large = _to_the(self._scale_of(state.number, state.generation), power)
        # A loss that nobody scaled, in gradients that the scaler divides.
        if mark is None:
            return Verdict("not-scaled", part.place, place, too_large) if power < 0 else None
        # Before the powers are compared: two scalers may divide as often as they multiply and yet be wrong.
        if any(d.scaler != mark.scaler for d in divided):
            own = self._scale_of(state.number, state.generation)
            factor = _ratio(self._scale_of(mark.scaler, mark.generation), own)
            return Verdict("other-scaler", part.place, place, factor)
        if power > 0:
            return _undivided(state, part, mark, optimizer, too_large)
        if power < 0:
            return self._divided_again(state, part, witness, optimizer, place)
        # Multiplied and divided by different scales.
        if divided and divided[0].generation != mark.generation:
            return self._updated_between(state, mark, divided[0].generation, witness, place)
        return None

    def _divided_again(
        self, state: ScalerState, part: Part, witness: Witness, optimizer: Any, place: Place | None
    ) -> Verdict:
        """Divided twice: for two optimizer objects, or because an update made the scaler forget the first time."""
        first, last = part.divided[0], part.divided[-1]
        factor = _ratio(1.0, self._scale_of(state.number, last.generation))
        if first.generation == last.generation:
            return Verdict("divided-twice", first.place, last.place, factor)
        if _spans(witness, first.generation):
            return Verdict("scale-changed", _line_of(state.updates.get(first.generation + 1), place), place, factor)
        # The update that began the generation of the second division: it made the scaler forget the first.
        update = state.updates.get(last.generation)
        # `update` after another optimizer's step, where one at the end of all was meant.
        others = update is not None and bool(update.stepped - {id(optimizer)})
        kind: FaultKind = "update-between" if others else "update-before-step"
        return Verdict(kind, _line_of(update, place), place, factor)

    def _updated_between(
        self, state: ScalerState, mark: Mark, divided: int, witness: Witness, place: Place | None
    ) -> Verdict:
        """Multiplied by one scale and divided by a later one, that of the generation `divided`."""
        factor = _ratio(self._scale_of(mark.scaler, mark.generation), self._scale_of(state.number, divided))
        generations = {p.mark.generation for p in witness.fresh if p.mark is not None}
        kind: FaultKind = "scale-changed" if len(generations) > 1 else "update-between"
        return Verdict(kind, _line_of(state.updates.get(mark.generation + 1), place), place, factor)

    def _clipped(self, state: ScalerState, clip: Clip, applied: bool) -> None:
        fault = self.note(Verdict("clipped-while-scaled", clip.place, state.places.get("step")), state, applied)
        fault.limit, fault.scale = clip.limit, clip.scale or fault.scale
        if clip.norm is not None and math.isfinite(clip.norm):
            fault.norm = max(fault.norm or 0.0, clip.norm)
            fault.looked += 1
            # Only where the scaled norm exceeds the limit did clipping change anything.
            fault.bit += clip.norm > clip.limit
            fault.needed += clip.norm / (clip.scale or 1.0) > clip.limit

    def _scale_of(self, scaler: int, generation: int) -> float | None:
        state = self._scalers.by_number.get(scaler)
        return None if state is None else state.scales.get(generation, state.use.scale)


def _undivided(state: ScalerState, part: Part, mark: Mark, optimizer: Any, factor: float | None) -> Verdict:
    if mark.power > 1:
        return Verdict("scaled-twice", mark.place, part.place, factor)
    if id(optimizer) in state.too_early:
        return Verdict("unscaled-too-early", state.too_early[id(optimizer)], part.place, factor)
    return Verdict("added-after-unscale", part.place, state.places.get("unscale_"), factor)


def _line_of(update: Update | None, otherwise: Place | None) -> Place | None:
    return update.place if update is not None else otherwise


def _unlike(witnesses: list[Witness]) -> list[Witness]:
    """Of those that share their parts and clips one each; those of which nothing is known are skipped."""
    # Reversed, so that of those alike the first witness stays.
    return list({(id(w.parts), id(w.clips)): w for w in reversed(witnesses) if not w.unknown}.values())


def found_infinity(state: ScalerState, optimizer: Any) -> bool | None:
    """Whether the scaler's own check found a gradient that is not finite; None where it has not looked.

    On a device this waits for it.
    """
    states = getattr(state.scaler, "_per_optimizer_states", None)
    found = states.get(id(optimizer), {}).get("found_inf_per_device", {}) if states is not None else {}
    return any(bool(numbers(value).item()) for value in found.values()) if found else None


def _spans(witness: Witness, generation: int) -> bool:
    """Whether backward passes before and after an update have gone into one gradient."""
    return any(part.mark is not None and part.mark.generation > generation for part in witness.fresh)


def _to_the(scale: float | None, power: int) -> float | None:
    return None if scale is None or not 0 < scale < math.inf else float(scale**power)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _bits(factor: float) -> float:
    # Anything not positive and finite counts as furthest from 1.
    return math.log2(factor) if 0 < factor < math.inf else 999.0
