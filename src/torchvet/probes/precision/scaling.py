"""Watches gradient scalers as the state machines that they are: scale, `unscale_`, step, update."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, After, Before, Host, Optimizer, Record, Watcher, around, frames
from torchvet.probes.internals.patching import replace
from torchvet.probes.precision import loss_marks
from torchvet.probes.precision.gradient_calls import GradientCalls
from torchvet.probes.precision.scaled_gradients import Part
from torchvet.probes.precision.scaler_calls import ScalerCalls, Scene
from torchvet.probes.precision.scaler_states import ScalerState
from torchvet.probes.precision.scaling_faults import Faults

_WHAT = "gradient scalers"
_METHODS = ("scale", "unscale_", "step", "update", "load_state_dict", "get_scale")

Watched = tuple[tuple[Any, ...], After] | None


class ScalerWatcher(Watcher):
    """Gradient scalers."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._scene = Scene(self._trained)
        self._faults = Faults(self._scene.scalers, self._scene.gradients)
        self._scaler_calls = ScalerCalls(self._scene, self._faults)
        self._gradient_calls = GradientCalls(self._scene, self._faults)
        self._wrapped: set[type] = set()
        self._parts: list[Part] | None = None
        self.ignored = EVERY_STEP
        """Until there is a scaler."""

    def _trained(self) -> dict[int, torch.Tensor]:
        owners = self.host.known.live_optimizers()
        return {id(p): p for optimizer in owners for group in optimizer.param_groups for p in group["params"]}

    # Wrapping ---------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Wrap scalers, clipping, clearing and schedulers."""
        from torch.amp.grad_scaler import GradScaler
        from torch.nn import utils
        from torch.nn.utils import clip_grad
        from torch.optim import lr_scheduler

        aten = torch.ops.aten
        packets = (aten._local_scalar_dense, aten.linalg_vector_norm, aten.norm, aten._foreach_norm)
        overloads = [getattr(p, name) for p in packets for name in p.overloads()]  # type: ignore[no-untyped-call]
        self.host.hear(overloads, self._number_made)
        self._tap(GradScaler, "__init__", self._made)
        self._wrap_class(GradScaler)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self._tap(clip_grad, name, functools.partial(self._clip, name))
            # `torch.nn.utils.clip_grad_norm_` is what programs call, `clip_grad.clip_grad_norm_` where it
            # is written.
            replace(self._undo, utils, name, vars(clip_grad)[name])  # the same function in another module
        for owner in (Optimizer, torch.nn.Module):
            self._tap(owner, "zero_grad", self._clear)
        for kind in vars(lr_scheduler).values():
            follows = isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler)
            # Each class that brings its own `step`. ReduceLROnPlateau is stepped by epochs with a loss,
            # skipped steps or not.
            if follows and "step" in vars(kind) and kind is not lr_scheduler.ReduceLROnPlateau:
                self._tap(kind, "step", self._schedule)

    def _tap(self, owner: Any, name: str, before: Before) -> None:
        self.replace(owner, name, lambda original: around(original, before))

    def _wrap_class(self, kind: type) -> None:
        """Wrap the methods that a class of scalers brings itself."""
        if kind not in self._wrapped and kind is not object:
            self._wrapped.add(kind)
            for name in _METHODS:
                if name in vars(kind):
                    self._tap(kind, name, functools.partial(self._method, name))

    def _made(self, args: Any, kwargs: Any) -> Watched:
        def after(_: Any, error: BaseException | None) -> None:
            if error is None:
                with self.host.looking(_WHAT):
                    # A subclass may override a method that was wrapped in its base.
                    for kind in type(args[0]).__mro__:
                        self._wrap_class(kind)
                    self._scene.scalers.made(args[0], _asked(args, kwargs), frames.user_place())
                    self.heed()

        return (args, after) if self.host.active else None

    def _method(self, name: str, args: Any, kwargs: Any) -> Watched:
        """A method of a scaler is called. Of those that it calls itself only `unscale_` within `step` counts."""
        inside, scaler = self._scene.inside, args[0]
        # `step` calls `unscale_`, and `scale` of a list calls itself: what torch does within is no act of the
        # program's.
        if not self.host.active or (inside and not (name == "unscale_" and inside == ["step"])):
            return None
        # Past `around`'s wrapper to its caller.
        if frames.owner(sys._getframe(2).f_code.co_filename) == frames.OWN:
            return None  # another watcher asks for the scale
        self.heed()
        inside.append(name)
        self._scene.backwards = 0
        done: list[Callable[[Any], None]] = []
        try:
            done.append(getattr(self._scaler_calls, name)(scaler, args[1:], kwargs))
        except Exception as failure:
            self._failed(failure)

        def after(result: Any, error: BaseException | None) -> None:
            with self.host.looking(_WHAT):
                if error is None:
                    for one in done:
                        one(result)
                elif len(inside) == 1:
                    self._scaler_calls.refused(scaler, name, args[1:], kwargs, error)
            # By value: calls within may have ended in another order after an exception.
            inside.remove(name)

        return args, after

    def _failed(self, failure: Exception) -> None:
        """Record a failure of something too small to be accounted for."""
        with self.host.looking(_WHAT):
            raise failure

    def _clip(self, name: str, args: Any, kwargs: Any) -> Watched:
        limit = "max_norm" if "norm" in name else "clip_value"
        # Without a scaler a clip is none of this probe's matter.
        if not self._scene.scalers or not self.host.active or not args or (len(args) < 2 and limit not in kwargs):
            return None
        done: list[Callable[[Any], None]] = []
        # Where the look fails, the call gets what the program gave.
        given = args
        # Norms that clipping takes itself are not numbers of the program's.
        self._scene.inside.append("clip")
        with self.host.looking(_WHAT):
            value = args[1] if len(args) > 1 else kwargs[limit]
            parameters, one = self._gradient_calls.clip(args[0], value, "value" in name)
            given = (parameters, *args[1:])
            done.append(one)

        def after(result: Any, error: BaseException | None) -> None:
            with self.host.looking(_WHAT):
                for one in done if error is None else ():
                    one(result)
            self._scene.inside.remove("clip")

        return given, after

    def _clear(self, args: Any, kwargs: Any) -> Watched:
        def after(_: Any, error: BaseException | None) -> None:
            try:
                self._scene.gradients.cleared(args[0], frames.user_place)
            except Exception as failure:
                self._failed(failure)

        return (args, after) if self._scene.scalers and self.host.active else None

    def _schedule(self, args: Any, kwargs: Any) -> Watched:
        inside = self._scene.inside
        if not self._scene.attempts or "schedule" in inside or not self.host.active:
            return None
        inside.append("schedule")
        with self.host.looking(_WHAT):
            self._gradient_calls.scheduled(getattr(args[0], "optimizer", None))
        return args, lambda _, error: inside.remove("schedule")

    # Events ---------------------------------------------------------------------------------------------------------

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        if self._scene.scalers:
            self._scene.gradients.of(optimizer)

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """See `Watcher`. Within a backward (checkpointing) another may run, which adds nothing of its own."""
        scene = self._scene
        if not scene.scalers or is_grad:
            return
        scene.backwards += 1
        if scene.backwards > 1:
            return
        for optimizer in self.host.known.live_optimizers():
            scene.gradients.of(optimizer)
        scene.gradients.check()
        place = frames.user_place()
        marks = loss_marks.marks_of(tensors)
        self._parts = [Part(mark, place) for mark in marks]
        # A part of the loss that was not scaled.
        if None in marks:
            scene.plain = place
            # The program has asked for the scale and then multiplied.
            if loss_marks.multiplied(tensors) and any(s.asked == s.generation for s in scene.scalers.live()):
                self._parts = None  # somebody may have scaled it by hand

    def backward_ended(self, is_grad: bool) -> None:
        """See `Watcher`."""
        scene = self._scene
        if is_grad or not scene.backwards:
            return
        # Counted down: checkpointing's passes end within the outer one.
        scene.backwards -= 1
        if scene.backwards:
            return
        if self._parts is None:
            scene.gradients.doubt()
        else:
            scene.gradients.add(self._parts)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        self._scene.fired = True
        self._faults.optimizer_steps += 1
        # Steps through a scaler are judged there.
        if self._scene.scalers and "step" not in self._scene.inside:
            self._scene.gradients.check()
            self._faults.stepped_directly(optimizer, frames.user_place())

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """See `Watcher`."""
        if self._scene.scalers and "step" not in self._scene.inside:
            self._scene.gradients.spend(optimizer)

    def _number_made(self, operator: Any, args: Any, _kwargs: Any, _result: Any) -> None:
        """In a sampled step a number is made of tensors. What scalers and clipping do is no affair of the program's."""
        if self._scene.scalers and not self._scene.inside:
            self._gradient_calls.read(operator, args)

    def finish(self, how: str, error: BaseException | None) -> None:
        """See `Watcher`. No update follows what was read last."""
        for state in self._scene.scalers.live():
            self._faults.settle_reads(state)

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return self._records()

    def _records(self) -> Iterator[Record]:
        for state in self._scene.scalers.live():
            if state.use.enabled:
                state.keep(state.read())
            # Only here, after windows and at the end, does anybody wait for the device.
            if state.pending is not None:
                _read_pending(state)
        yield from self._scene.scalers.uses()
        if self._scene.empty is not None:
            yield self._scene.empty
        yield from self._faults.records()


def _read_pending(state: ScalerState) -> None:
    """What fused optimizers on a device have skipped until now."""
    total, run, longest = (int(float(value)) for value in state.pending)
    use = state.use
    use.skipped, use.unknown, use.trailing, use.longest = total, 0, run, max(use.longest, longest)


def _asked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a scaler was asked to be enabled: `enabled` comes last, and is True if not given."""
    return bool(kwargs.get("enabled", args[-1] if isinstance(args[-1], bool) else True))
