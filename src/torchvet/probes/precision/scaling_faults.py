"""Judges by arithmetic what is stepped on: is every part of a gradient divided as often as it was multiplied?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchvet.probes.precision.scaled_gradients import Clip, Gradients, Part, Witness
from torchvet.probes.precision.scaler_states import Scalers, ScalerState, Update
from torchvet.recording.records.base import Place
from torchvet.recording.records.scaling import FaultKind, ScalingFault

_MOST = 200
"""Kinds of mishaps by place that are kept."""


class Faults:
    """The mishaps seen, as running totals."""

    def __init__(self, scalers: Scalers, gradients: Gradients) -> None:
        self._scalers = scalers
        self._gradients = gradients
        self._found: dict[tuple[FaultKind, Place | None], ScalingFault] = {}
        self._refused_at: dict[Place | None, int] = {}
        self.optimizer_steps = 0
        """Steps of all optimizers so far."""

    def records(self) -> Iterator[ScalingFault]:
        """The running totals."""
        steps = {use.id: use.steps for use in self._scalers.uses()}
        for fault in self._found.values():
            fault.steps = steps.get(fault.scaler, 0)
            if fault.kind == "refused":
                fault.after = self.optimizer_steps - self._refused_at[fault.place]
            yield fault

    def note(
        self, kind: FaultKind, state: ScalerState | None, place: Place | None, other: Place | None = None,
        factor: float | None = None, applied: bool = True,
    ) -> ScalingFault:  # fmt: skip
        """One more of a kind at a place."""
        key = (kind, place)
        fault = self._found.get(key)
        if fault is None:
            fault = ScalingFault(kind=kind, scaler=state.use.id if state else -1, place=place, other=other)
            if len(self._found) < _MOST:
                self._found[key] = fault
        fault.count += 1
        fault.applied += applied
        if state is not None and state.scale() is not None:
            fault.scale = state.scale()
        if factor is not None and applied:
            fault.changed += factor != 1.0
            if fault.factor is None or abs(_bits(factor)) > abs(_bits(fault.factor)):
                fault.factor = factor
        return fault

    def refused(
        self, state: ScalerState, method: str, error: BaseException, place: Place | None, other: Place | None
    ) -> None:  # fmt: skip
        """torch has raised. Whether that ended the training shows later: by what waits, and by what steps."""
        fault = self.note("refused", state, place, other, applied=False)
        fault.method, fault.error = method, f"{type(error).__name__}: {str(error)[:200]}"
        fault.waiting = any(w.waits() for w in self._gradients.all())
        self._refused_at[place] = self.optimizer_steps

    def settle_reads(self, state: ScalerState) -> None:
        """A scale is about to give way: what was read under it is a mishap, unless the program asked for the scale."""
        if state.asked != state.generation:
            for kind, place, other in state.reads:
                self.note(kind, state, place, other)
        state.reads.clear()

    def stepped(self, state: ScalerState, optimizer: Any, place: Place | None, applied: bool) -> None:
        """A scaler has stepped an optimizer, or has left the step out."""
        told: set[Any] = set()
        for witness in _unlike(self._gradients.of(optimizer)):
            for part in witness.fresh:
                if part not in told:
                    told.add(part)
                    self._judge(state, part, witness, optimizer, place, applied)
            for clip in witness.clips:
                if clip not in told:
                    told.add(clip)
                    self._clipped(state, clip, applied)

    def stepped_directly(self, optimizer: Any, place: Place | None) -> None:
        """An optimizer steps past every scaler."""
        told: set[Any] = set()
        for witness in _unlike(self._gradients.of(optimizer)):
            for part in witness.fresh:
                if part.mark is not None and part not in told:
                    told.add(part)
                    self._applied(part, optimizer, place)

    def _applied(self, part: Part, optimizer: Any, place: Place | None) -> None:
        assert part.mark is not None
        state = self._scalers.by_number.get(part.mark.scaler)
        if part.power > 0:
            factor = _to_the(self._scale_of(part.mark.scaler, part.mark.generation), part.power)
            self.note("applied-scaled", state, place, part.place, factor)
        elif part.power == 0 and part.divided:
            fault = self.note("applied-unchecked", state, place, part.divided[-1].place)
            fault.changed += state is not None and bool(found_infinity(state, optimizer))

    def _judge(
        self, state: ScalerState, part: Part, witness: Witness, optimizer: Any, place: Place | None, applied: bool
    ) -> None:  # fmt: skip
        mark, power, divided = part.mark, part.power, part.divided
        own = self._scale_of(state.number, state.generation)
        if mark is None:
            if power < 0:
                self.note("not-scaled", state, part.place, place, _to_the(own, power), applied)
        elif any(d.scaler != mark.scaler for d in divided):
            factor = _ratio(self._scale_of(mark.scaler, mark.generation), own)
            self.note("other-scaler", state, part.place, place, factor, applied)
        elif power > 0 and mark.power > 1:
            self.note("scaled-twice", state, mark.place, part.place, _to_the(own, power), applied)
        elif power > 0:
            early = id(optimizer) in state.too_early
            kind: FaultKind = "unscaled-too-early" if early else "added-after-unscale"
            at = (state.too_early[id(optimizer)], part.place) if early else (part.place, state.places.get("unscale_"))
            self.note(kind, state, at[0], at[1], _to_the(own, power), applied)
        elif power < 0:
            self._divided_again(state, part, witness, optimizer, place, applied)
        elif divided and divided[0].generation != mark.generation:
            factor = _ratio(self._scale_of(mark.scaler, mark.generation),
                            self._scale_of(state.number, divided[0].generation))  # fmt: skip
            self._updated_between(state, mark.generation, divided[0].generation, witness, place, factor, applied)

    def _divided_again(
        self, state: ScalerState, part: Part, witness: Witness, optimizer: Any, place: Place | None, applied: bool
    ) -> None:  # fmt: skip
        """Divided twice: for two optimizer objects, or because an update made the scaler forget the first time."""
        first, last = part.divided[0], part.divided[-1]
        factor = _ratio(1.0, self._scale_of(state.number, last.generation))
        if first.generation == last.generation:
            self.note("divided-twice", state, first.place, last.place, factor, applied)
            return
        if _spans(witness, first.generation):
            update = state.updates.get(first.generation + 1)
            self.note("scale-changed", state, update.place if update else place, place, factor, applied)
            return
        update = state.updates.get(last.generation)
        others = update is not None and bool(update.stepped - {id(optimizer)})
        kind: FaultKind = "update-between" if others else "update-before-step"
        self.note(kind, state, update.place if update else place, place, factor, applied)

    def _updated_between(
        self, state: ScalerState, born: int, divided: int, witness: Witness, place: Place | None,
        factor: float | None, applied: bool,
    ) -> None:  # fmt: skip
        """Multiplied by one scale and divided by a later one."""
        update: Update | None = state.updates.get(born + 1)
        generations = {p.mark.generation for p in witness.fresh if p.mark is not None}
        kind: FaultKind = "scale-changed" if len(generations) > 1 else "update-between"
        fault = self.note(kind, state, update.place if update else place, place, factor, applied)
        if factor is None:
            fault.factor = fault.factor

    def _clipped(self, state: ScalerState, clip: Clip, applied: bool) -> None:
        fault = self.note("clipped-while-scaled", state, clip.place, state.places.get("step"), applied=applied)
        fault.limit, fault.scale = clip.limit, clip.scale or fault.scale
        if clip.norm is not None and math.isfinite(clip.norm):
            fault.norm = max(fault.norm or 0.0, clip.norm)
            fault.looked += 1
            fault.bit += clip.norm > clip.limit
            fault.needed += clip.norm / (clip.scale or 1.0) > clip.limit

    def _scale_of(self, scaler: int, generation: int) -> float | None:
        state = self._scalers.by_number.get(scaler)
        return None if state is None else state.scales.get(generation, state.use.scale)


def _unlike(witnesses: list[Witness]) -> list[Witness]:
    """Of those that share their parts and clips one each; those of which nothing is known left out."""
    return list({(id(w.parts), id(w.clips)): w for w in reversed(witnesses) if not w.unknown}.values())


def found_infinity(state: ScalerState, optimizer: Any) -> bool | None:
    """Whether the scaler's own check found a gradient that is not finite; None where it has not looked.

    On a device this waits for it.
    """
    states = getattr(state.scaler, "_per_optimizer_states", None)
    found = states.get(id(optimizer), {}).get("found_inf_per_device", {}) if states is not None else {}
    return any(bool(value.item()) for value in found.values()) if found else None


def _spans(witness: Witness, generation: int) -> bool:
    """Whether backward passes before and after an update have gone into one gradient."""
    return any(part.mark is not None and part.mark.generation > generation for part in witness.fresh)


def _to_the(scale: float | None, power: int) -> float | None:
    return None if scale is None or not 0 < scale < math.inf else float(scale**power)


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def _bits(factor: float) -> float:
    return math.log2(factor) if 0 < factor < math.inf else 999.0
