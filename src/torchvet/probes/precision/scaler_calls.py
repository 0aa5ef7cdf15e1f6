"""What each method of a gradient scaler means for gradients, told before and after torch does it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Place, frames
from torchvet.probes.precision import loss_marks
from torchvet.probes.precision.loss_marks import Mark
from torchvet.probes.precision.scaled_gradients import Division, Gradients
from torchvet.probes.precision.scaler_states import Scalers, ScalerState
from torchvet.probes.precision.scaling_faults import Faults, Verdict, found_infinity
from torchvet.recording.records.scaling import EmptyStep

# An assertion's text in torch's `grad_scaler.py`; there is no class for it.
EMPTY = "No inf checks were recorded for this optimizer"
"""What torch says where no parameter of an optimizer has a gradient."""
LOOKS = 8
"""Losses and steps of a scaler that is off that are looked at; on a device also other looks that wait for it."""
SMALL = 1 << 20
"""Elements of a gradient that are looked at one by one."""

Done = Callable[[Any], None]


@dataclass
class Scene:
    """What the parts of the scaler probe share."""

    trained: Callable[[], dict[int, torch.Tensor]]
    """The parameters of all optimizers, by identity."""
    scalers: Scalers = field(default_factory=Scalers)
    gradients: Gradients = field(default_factory=Gradients)
    inside: list[str] = field(default_factory=list)
    """Methods that are running, outermost first."""
    backwards: int = 0
    """Backward passes that are running."""
    fired: bool = False
    """Whether an optimizer has begun a step since a scaler's began."""
    losses: deque[tuple[weakref.ref[torch.Tensor], int]] = field(default_factory=lambda: deque(maxlen=8))
    """The last scaled losses, with the scaler's number."""
    plain: Place | None = None
    """The last backward of a loss that was not scaled."""
    updated: int = 0
    """Backward passes before a scaler's last update."""
    empty: EmptyStep | None = None
    """The last step that was refused for want of any gradient."""
    attempts: dict[int, list[int]] = field(default_factory=dict)
    """For each optimizer the steps through a scaler since its scheduler's last, and how many were skipped."""


class ScalerCalls:
    """Handlers named like the scaler's methods. Each is called before the method and returns what to do after it."""

    def __init__(self, scene: Scene, faults: Faults) -> None:
        self._scene = scene
        self._scalers, self._gradients, self._faults = scene.scalers, scene.gradients, faults

    def scale(self, scaler: Any, args: Any, kwargs: Any) -> Done:
        """Multiplies a loss, or several."""
        outputs = args[0] if args else kwargs.get("outputs")
        state = self._scalers.of(scaler)
        # A scaler that is off beside float16 results loses small gradients: that is all it can be blamed for.
        if not scaler._enabled:
            if state.use.half is not True and state.looks < LOOKS:
                state.looks += 1
                state.use.half = loss_marks.holds_half(outputs)
            return _nothing

        def done(result: Any) -> None:
            state.note_scale()
            # A loss that was scaled before is now scaled twice.
            before = [m for m in loss_marks.marks_of(outputs) if m is not None and m.scaler == state.number]
            power = 1 + max((m.power for m in before), default=0)
            place = state.places["scale"] = frames.user_place()
            loss_marks.mark(result, Mark(state.number, power, state.generation, place))
            self._scene.losses.extend((weakref.ref(t), state.number) for t in loss_marks.tensors_in(result))

        return done

    def unscale_(self, scaler: Any, args: Any, kwargs: Any) -> Done:
        """Divides an optimizer's gradients; called by the program, or by `step`."""
        if not scaler._enabled:
            return _nothing
        optimizer = args[0] if args else kwargs["optimizer"]
        state, place = self._scalers.of(scaler), frames.user_place()
        # Called by the program itself, and not from within `step`.
        if self._scene.inside == ["unscale_"]:
            self._gradients.check()
            # There is nothing to divide yet: backward comes after it.
            if not any(w.fresh or w.unknown for w in self._gradients.of(optimizer)):
                state.too_early[id(optimizer)] = place

        def done(_: Any) -> None:
            if self._scene.inside == ["unscale_"]:
                state.places["unscale_"] = place
            self._divide(state, optimizer, place)

        return done

    def _divide(self, state: ScalerState, optimizer: Any, place: Place | None) -> None:
        state.divided.add(id(optimizer))
        self._gradients.divide(optimizer, Division(state.number, state.generation, id(optimizer), place))

    def step(self, scaler: Any, args: Any, kwargs: Any) -> Done:
        """Divides, unless that has been done, and steps the optimizer, unless something is not finite."""
        optimizer = args[0] if args else kwargs.get("optimizer")
        state = self._scalers.of(scaler)
        if not scaler._enabled:
            return lambda _: self._step_off(state, optimizer)
        place = frames.user_place()
        state.use.step_place = state.use.step_place or place
        # At the 1st, 2nd, 4th, 8th... step only: this goes through all parameters.
        if not state.use.steps & (state.use.steps + 1):
            state.use.half_parameters = state.use.half_parameters or _has_half_parameters(optimizer)
        # Private: such an optimizer divides and skips within its own kernel.
        fused = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        # Asked before the call, which may divide.
        divided = id(optimizer) in state.divided
        # Changes of the program's between `unscale_` and here must not pass for the scaler's.
        self._gradients.check()
        if len(args) > 1 or kwargs.keys() - {"optimizer"}:
            # A closure, or what the optimizer alone understands: what is stepped on is not known.
            for witness in self._gradients.of(optimizer):
                witness.unknown = True
        self._scene.fired = False

        def done(_: Any) -> None:
            state.places["step"] = place
            # The kernel divides: no `unscale_` is called for it.
            if fused and not divided:
                self._divide(state, optimizer, place)
            skipped = self._outcome(state, optimizer, fused)
            self._scalers.succession(state, id(optimizer))
            self._faults.stepped(state, optimizer, place, not skipped)
            state.stepped_with(id(optimizer), skipped)
            self._gradients.spend(optimizer)
            attempts = self._scene.attempts.setdefault(id(optimizer), [0, 0])
            attempts[0] += 1
            attempts[1] += bool(skipped)

        return done

    def _outcome(self, state: ScalerState, optimizer: Any, fused: bool) -> bool | None:
        """Whether the step was skipped. Fused optimizers on a device tell that without a wait only later."""
        # A scaler that skips does not call the optimizer, except a fused one, which skips within its kernel.
        # The optimizer's own hook was heard: it has stepped.
        if self._scene.fired and not fused:
            return False
        # On the host reading costs nothing.
        if not fused or not state.on_device():
            return found_infinity(state, optimizer)
        scaler = state.scaler
        found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()
        # Counted on the device: to read it at each step would make the host wait.
        now = torch.stack([value.to(scaler._scale.device) for value in found]).sum().clamp(max=1.0)
        total, run, longest = state.pending or (torch.zeros_like(now),) * 3
        # A count of skips in a row without a branch: 0 times whatever is 0.
        run = (run + now) * now
        state.pending = (total + now, run, torch.maximum(longest, run))
        return None

    def _step_off(self, state: ScalerState, optimizer: Any) -> None:
        """A scaler that is off steps as if it were not there; under fp16, how many gradients are zero?"""
        state.use.steps += 1
        state.use.step_place = state.use.step_place or frames.user_place()
        if state.use.half and state.use.steps <= LOOKS:
            found = [w.gradient() for w in self._gradients.of(optimizer)]
            looked = [g for g in found if g is not None and g.layout is torch.strided and 0 < g.numel() <= SMALL]
            if looked:
                share = sum(int((g == 0).sum()) for g in looked) / sum(g.numel() for g in looked)
                # The smallest share: zeros of a single step may be a dead layer.
                state.use.zeros = share if state.use.zeros is None else min(state.use.zeros, share)

    def update(self, scaler: Any, args: Any, kwargs: Any) -> Done:
        """Settles the scale by what was found, and forgets what was divided."""
        if not scaler._enabled:
            return _nothing
        state, place = self._scalers.of(scaler), frames.user_place()
        # `update(new_scale)`.
        state.unknown_now |= bool(args or kwargs)  # the program sets the scale

        def done(_: Any) -> None:
            self._faults.settle_reads(state)
            self._scene.updated = self._gradients.passes
            state.updated(place)

        return done

    def load_state_dict(self, scaler: Any, args: Any, kwargs: Any) -> Done:
        """Takes over what another scaler has learnt."""
        state = self._scalers.of(scaler)

        def done(_: Any) -> None:
            state.use.restored += 1
            # A restored scale is one that had settled: skips after it are no search for a scale.
            state.settled = state.restored = state.unknown_now = True

        return done

    def get_scale(self, scaler: Any, args: Any, kwargs: Any) -> Done:
        """Tells the program the scale: what it does with it is its own affair."""
        state = self._scalers.of(scaler)

        def done(result: Any) -> None:
            state.asked = state.generation
            if scaler._enabled:
                state.keep(float(result))

        return done

    def refused(self, scaler: Any, name: str, args: Any, kwargs: Any, error: BaseException) -> None:
        """torch has raised: a scaler says by its message what it refuses."""
        if not isinstance(error, (RuntimeError, AssertionError, ValueError)) or not _raised_by_scaler(error):
            return
        state = self._scalers.of(scaler)
        # `step` without any `scale` before: the backward whose loss was never scaled is the line to show.
        other = self._scene.plain if "_scale is None" in str(error) else state.places.get("step")
        if "already been called on this optimizer" in str(error):
            other = state.places.get("unscale_")
        place = frames.user_place()
        if place is not None and EMPTY in str(error):
            self._scene.empty = self._empty(state, args[0] if args else kwargs["optimizer"], place)
        self._faults.refused(state, name, error, Verdict("refused", place, other))

    def _empty(self, state: ScalerState, optimizer: Any, place: Place) -> EmptyStep:
        """What is known of an optimizer without any gradient. Its program is about to end: all parameters are seen."""
        mine = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        others = (p for key, p in self._scene.trained().items() if key not in mine)
        record = EmptyStep(place=place, optimizer=type(optimizer).__name__, parameters=len(mine), trainable=0)
        record.trainable = sum(p.requires_grad for p in mine.values())
        passes = self._gradients.passes
        record.passes, record.before = passes - self._scene.updated, state.optimizers[id(optimizer)]
        record.reached = sum(gradient_of(p) is not None for p in others)
        thrown = (where for at, where in (w.thrown for w in self._gradients.of(optimizer)) if at == passes)
        record.cleared = next(thrown, None)
        return record


def _has_half_parameters(optimizer: Any) -> bool:
    groups = getattr(optimizer, "param_groups", ())
    return any(p.dtype is torch.float16 for group in groups for p in group["params"])


def _nothing(_: Any) -> None:
    """After a call that means nothing."""


def _raised_by_scaler(error: BaseException) -> bool:
    """Whether an exception comes out of a scaler's own code, not out of the optimizer that it steps."""
    raising = frames.traceback_frames(error)
    # By the innermost frame: an optimizer's own error passes through `step` as well.
    return bool(raising) and "grad_scaler" in raising[-1].f_code.co_filename
