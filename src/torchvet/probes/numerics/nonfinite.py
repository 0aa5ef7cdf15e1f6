"""Watches losses and gradients for values that are not finite, and has the step that failed done again."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Optimizer, Place, Record, StepKind, Unchecked, Watcher, around, frames, tap
from torchvet.probes.internals.compiled_regions import REGIONS
from torchvet.probes.internals.finite import dense, is_finite, suspicious
from torchvet.probes.internals.simulated import numbers, simulated
from torchvet.probes.numerics.assigned_buffers import AssignedBuffers
from torchvet.probes.numerics.data_origins import BatchOrigin
from torchvet.probes.numerics.nonfinite_outputs import OutputWatch, Taken
from torchvet.probes.numerics.number_samples import NumberSampler
from torchvet.probes.numerics.online_nonfinite_search import LiveLook
from torchvet.probes.numerics.skipped_losses import ASKING, SkipWatch
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.replay.calls import Calls, Stack
from torchvet.probes.replay.keeping import Kept
from torchvet.probes.replay.loops import counters
from torchvet.probes.replay.operands import described
from torchvet.probes.replay.process import Failed, ask, room_for_twins, why_not
from torchvet.probes.replay.rehearsal import COUNTED, Answer, Failure, rehearse
from torchvet.probes.replay.sources import Symptom
from torchvet.recording.records.nonfinite import NonFinite, NonFiniteTotals

_MOST_REPLAYS = 4
_MOST_AT_ONE_PLACE = 2
_MOST_ATTEMPTS = 3
# Each operator of a replay is checked, in Python: tens of times slower than the step.
_LEAST_SECONDS, _TIMES = 10.0, 50
"""A replay may take this long, or so many times as long as the step."""
_MOST_SECONDS = 30.0
_WHAT = "the first value that is not finite"
_TAKEN = ("output", "number", "skipped")
"""Symptoms that a number shows which the program takes out of torch: no backward pass has to do with them."""
# GradScaler begins at 65,536 and halves at each skip.
_CALIBRATING = 3
"""Skips that a scaler needs to find its scale, in a row or at a scale that had not grown: not looked into."""


class NonFiniteWatcher(Watcher):
    """The first value that is not finite."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._kept = Kept()
        self._sure = True
        self._outputs = OutputWatch(host.known)
        self._skipped = SkipWatch()
        self._data = BatchOrigin(host)
        self._followed = -1
        self._calls = Calls()
        self._taken: Stack | None = None
        """Where a number was taken that is NaN."""
        self._numbers = 0
        """Numbers of finite outputs that were looked into."""
        self._live = LiveLook(host, self._data)
        self._samples = NumberSampler(host)
        self._assigned = AssignedBuffers(host)
        self._began = time.perf_counter()
        self._totals = NonFiniteTotals(tick=0)
        self._replays: dict[Place | None, int] = {}
        self._reasons: dict[str, int] = {}
        self._counted = 0
        self._only_grad = False
        self._losses: list[weakref.ref[torch.Tensor]] = []
        """On a device: those that are read with the gradients."""
        self._running: Optimizer | None = None
        self._bad_now = False
        self._spoiling = False
        self._spoilt = False
        """Whether an optimizer has stepped with gradients that were not finite: then, and from then on."""
        self._skips: dict[int, int] = {}
        """Skipped steps in a row, by optimizer."""
        self._unexplained: dict[int, tuple[float, int]] = {}
        """By optimizer the scale that its last skip led to, and how many skips came at such a scale again."""
        self._scaler: weakref.ref[Any] | None = None
        self._scaler_steps = False
        self.ignored = frozenset(["backward_ended"])

    def install(self) -> None:
        """Hear of what gradient scalers skip, and of numbers taken out of torch."""
        self.replace(torch.amp.GradScaler, "step", lambda original: around(original, self._scaler_begins))
        self.replace(
            torch.amp.GradScaler, "scale", tap(self.host, None, before=self._scales, after=self._samples.scaled)
        )
        self.host.hear([torch.ops.aten._local_scalar_dense.default], self._outputs.number_taken)
        self.host.hear(ASKING, self._skipped.asked)
        self._assigned.install()
        self._kept.take()

    # Events -----------------------------------------------------------------------------------------------------

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """A step's work starts here, as far as is known."""
        self._look_at_skipped(self.host.step)
        self._skipped.batch_got()
        self._data.batch_got(iterator, batch)
        self._step_starts()
        if self._live.wanted:
            self._live.batch_got(batch)

    def settle(self, tick: int, kind: StepKind) -> None:
        """The boundary that comes next is not only counted."""
        self._sure = True

    def boundary(self, tick: int, kind: StepKind) -> None:
        """Likewise. What was taken from a bad output is looked into here, outside of torch's operators."""
        if self._outputs.taken is not None:
            self._look_at_taken(tick)
        self._outputs.step_ends()
        if self._skipped.waits:
            self._look_at_skipped(tick)
        self._data.clear()
        self._step_starts()

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """Is what a model gives in evaluation finite?"""
        self._look_at_taken(self.host.step)
        self._outputs.ended(output)

    def wants_modules(self) -> bool:
        """See `Watcher`."""
        return self._outputs.wants_modules()

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Is the loss finite?"""
        self._skipped.used()
        if self._outputs.taken is not None:
            self._look_at_taken(self.host.step)
        if self._running is not None:
            # From here on the end of passes is heard: a closure's gradients are there only then.
            self.heed()
        self._only_grad = is_grad and not self._totals.checked
        stack = self.host.way
        self._calls.add(stack)
        if self._live.wanted:
            self._live.backward_starts(tuple([(code, instruction) for _, code, instruction in stack]))
        # The short way, without a list: this runs at each steady step.
        if tensors.__class__ is torch.Tensor and not (is_grad or tensors.is_cuda):
            # One loss on the host, as in nearly every step.
            if not is_finite(tensors):
                self._look_at_losses([tensors])
            turn = self._samples.losses
            turn.left -= 1
            if turn.left <= 0:
                self._samples.loss(tensors)
            return
        # `autograd.grad` of a field has outputs of many elements, none of which is a loss.
        given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors_in(tensors, 2)
        self._losses_go_back([t for t in given if t.numel() == 1 or not is_grad])

    def _losses_go_back(self, losses: list[torch.Tensor]) -> None:
        if losses and losses[0].is_cuda and not simulated():
            # To read them now would make the host wait: they are looked at with the gradients, if they live until then.
            self._losses = [weakref.ref(t) for t in losses if t.numel() == 1]
            return
        self._look_at_losses([t for t in losses if not is_finite(t)])
        self._samples.one_of(losses)

    def _look_at_losses(self, bad: list[torch.Tensor]) -> None:
        if bad:
            nan = any(bool(torch.isnan(t).any()) for t in bad)
            self._totals.nan_losses += nan
            # The scaler takes an infinite loss out by itself.
            if nan or not self._is_calibrating():
                self._failed("loss", bad)

    def _is_calibrating(self) -> bool:
        """Whether the scale is still too large: that makes a scaled loss infinite, but never NaN."""
        return self._at_work() is not None and max(self._skips.values(), default=0) < _CALIBRATING

    def backward_ended(self, is_grad: bool) -> None:
        """Within an optimizer's step (a closure) gradients are there only now."""
        if self._running is not None and not is_grad:
            self._look_at_gradients(_gradients(self._running))
        if self._live.engaged:
            self._live.advance()

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """Are the gradients finite?"""
        self._running = optimizer
        self._live.optimizing = True
        if not self._scaler_steps:
            # The step itself reads them next, on this thread: nothing more is risked.
            groups = optimizer.param_groups
            self._look_at_gradients([one for g in groups for p in g["params"] if (one := p.grad) is not None])

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """With gradients that were not finite the weights are lost."""
        self._running = None
        self._spoilt = self._spoilt or self._spoiling
        self._calls.optimized()
        self._live.optimizing = False
        if self._live.engaged:
            self._live.advance()

    def _step_starts(self) -> None:
        # Modules and generators hardly change: looking for new ones takes a walk over all names.
        if self.host.tick != self._followed and (self._followed < 8 or self.host.tick % 64 == 0):
            self._kept.follow(self.host.known.live_roots())
            if self.host.tick < 8 or self.host.tick % 512 == 0:
                self._kept.generators.follow(sys._getframe(2))
            self._followed = self.host.tick
        self._kept.take(self._sure)
        self._sure = False
        self._began = time.perf_counter()
        self._bad_now = False
        if self._live.engaged:
            self._live.advance()

    def _look_at_skipped(self, tick: int) -> None:
        """Did the step that ends leave out a loss that is NaN?"""
        asked = self._skipped.left_out()
        if asked is not None:
            self._taken = asked
            self._failed("skipped", [], tick)

    def _look_at_taken(self, tick: int) -> None:
        """Was a number of evaluation NaN? Here, outside of torch's operators, the step can be done again."""
        # Operators' listeners must not fork: here no operator runs.
        taken = self._outputs.look_due()
        if taken is None:
            return
        self._taken = taken.spots
        if taken.kind == "both":
            self._failed("output", [], tick)
        elif self._numbers < _MOST_REPLAYS:
            self._numbers += 1
            self._look_into(taken.kind, taken, tick)

    def _look_into(self, symptom: Symptom, taken: Taken, tick: int) -> None:
        """A number is NaN, of outputs that are finite: where only counts made it, it may be the rate of nothing. Or an
        output is, and nothing more is known."""
        reason = why_not()
        record, why = self._ask(symptom, tick, sys._getframe(2)) if reason is None else (None, reason)
        idle = record is None and why == COUNTED
        self._outputs.explained(taken, idle)
        if idle:
            return
        record = record or NonFinite(tick=tick, symptom=symptom, found="not-reproduced", note=why, place=taken.place)
        record.loop = counters(sys._getframe(2))
        self._data.explain(record, sys._getframe(2))
        self.host.write(record)

    def _look_at_gradients(self, gradients: list[torch.Tensor]) -> None:
        self._totals.checked += 1
        losses = [t for ref in self._losses if (t := ref()) is not None] if self._losses else []
        self._losses = []
        self._samples.one_of(losses)
        turn = self._samples.norms
        turn.left -= 1
        if turn.left <= 0:
            self._samples.norm(gradients)
        if not gradients or not suspicious([*gradients, *losses] if losses else gradients):
            return
        self._look_at_losses([t for t in losses if not is_finite(t)])
        if all(map(is_finite, dense(gradients))):
            return
        self._totals.stepped += 1
        self._spoiling = True
        if self._totals.first_stepped is None:
            self._totals.first_stepped = self.host.step
        self._failed("gradient", dense(gradients))

    def _scaler_begins(self, args: Any, kwargs: Any) -> Any:
        """A scaler steps an optimizer: it looks at the gradients itself."""
        scaler = args[0]
        self._scaler_steps = scaler.is_enabled()

        def after(_: Any, error: BaseException | None) -> None:
            self._scaler_steps = False
            if error is None and self.host.active and scaler.is_enabled():
                with self.host.looking(_WHAT):
                    self._scaler_stepped(scaler, args[1] if len(args) > 1 else kwargs["optimizer"])

        return args, after

    def _scales(self, scaler: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            self._scaler = weakref.ref(scaler)

    def _at_work(self) -> Any:
        """The scaler that scales the loss, if one does."""
        return self._scaler() if self._scaler is not None else None

    def _scale(self) -> float | None:
        """The loss scale, where a scaler is at work."""
        scaler = self._at_work()
        return float(scaler.get_scale()) if scaler is not None else None

    def _scaler_stepped(self, scaler: Any, optimizer: Optimizer) -> None:
        # Only between `step` and `update` does this say so: what `step` returns says nothing of a skip.
        # Private (`private.ATTRIBUTES`); reading it makes the host wait, as the scaler's own `step` did.
        found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        if not any(float(v) for v in found.values()):
            self._skips[id(optimizer)] = 0
            return
        self._totals.skipped += 1
        self._skips[id(optimizer)] = in_a_row = self._skips.get(id(optimizer), 0) + 1
        # Fewer are the search for a scale, or its probing after `growth_interval`.
        if max(in_a_row, self._again(scaler, id(optimizer), in_a_row == 1)) > _CALIBRATING:
            self._failed("gradient", dense(_gradients(optimizer)))

    def _again(self, scaler: Any, optimizer: int, alone: bool) -> int:
        """How many skips had no larger scale to explain them: steps had gone well at the same scale before."""
        scale = float(scaler.get_scale())
        settled, count = self._unexplained.get(optimizer, (0.0, 0))
        count += alone and scale <= settled
        # The scale that this skip leads to: steps go well there, or nothing is explained by the scale.
        self._unexplained[optimizer] = (scale * scaler.get_backoff_factor(), count)
        return count

    def _failed(self, symptom: Symptom, seen: list[torch.Tensor], tick: int | None = None) -> None:
        tick = self.host.step if tick is None else tick
        totals = self._totals
        totals.last_bad = tick
        if symptom == "loss":
            totals.losses += 1
            totals.first_loss = totals.first_loss or tick
        elif symptom == "output":
            totals.outputs += 1
        elif symptom == "skipped":
            totals.left_out += 1
        else:
            totals.gradients += 1
            totals.first_gradient = totals.first_gradient or tick
        first, self._bad_now = not self._bad_now, True
        place = frames.user_place(3)
        if self._live.wanted:
            bad = [t for t in map(numbers, seen) if not is_finite(t)]
            self._live.failed(symptom, bad, tick, self._scale(), totals.first_stepped)
            return
        # One look for each step; weights that are lost were explained by the step that lost them.
        if not first or self._lost():
            return
        if self._replays.get(place, 0) >= _MOST_AT_ONE_PLACE or sum(self._replays.values()) >= _MOST_REPLAYS:
            self._counted += 1
            return
        self._replays[place] = self._replays.get(place, 0) + 1
        self._replay(symptom, tick)

    def _lost(self) -> bool:
        """Whether all that could be said is that an earlier step has spoilt the weights."""
        return self._spoilt and any(not is_finite(numbers(p)) for p in self.host.known.parameters())

    def _replay(self, symptom: Symptom, tick: int) -> None:
        started = time.perf_counter()
        reason = why_not()
        record = None
        if reason is None:
            record, reason = self._ask(symptom, tick, sys._getframe(1))
        if record is None:
            record = self._bad_parameter(symptom, tick) or NonFinite(
                tick=tick, symptom=symptom, found="not-reproduced", note=reason, scale=self._scale()
            )
            record.place = frames.user_place(3)
        record.loop = counters(sys._getframe(1))
        if record.reason == "bad-parameter":
            record.since = max(1, tick - 1)
            if self._totals.first_stepped is None and tick > 1:
                record.note = f"its gradients were finite: the optimizer's step {tick - 1} made it"
        elif record.reason == "bad-buffer":
            self._assigned.explain(record, self._kept)
        self._data.explain(record, sys._getframe(1))
        record.replay_seconds = time.perf_counter() - started
        self.host.write(record)
        if record.found == "not-reproduced" and symptom not in _TAKEN:
            self._live.begin(record)
            self.heed()

    def _bad_parameter(self, symptom: Symptom, tick: int) -> NonFinite | None:
        """Without a replay all that can be seen is whether the step began with parameters that were lost already."""
        names = self.host.known.parameter_names()
        for parameter in self.host.known.parameters():
            if not is_finite(numbers(parameter)):
                self._spoilt = True
                record = NonFinite(tick=tick, symptom=symptom, found="input", reason="bad-parameter")
                record.scale, record.result = self._scale(), described(numbers(parameter), names.get(id(parameter)))
                return record
        return None

    def _ask(self, symptom: Symptom, tick: int, frame: Any) -> tuple[NonFinite | None, str]:
        failure = Failure(symptom, tick, frame, self._remembered(symptom), self.host.known, self._kept)
        failure.before, failure.batch, failure.scale = self._calls.before(), self._data.batch, self._scale()
        step = time.perf_counter() - self._began
        left = min(_MOST_SECONDS, max(_LEAST_SECONDS, _TIMES * step))
        reason, inexact = "", None
        # Each attempt replays from another place: the frame, or where a call that has returned came from.
        for attempt in range(_MOST_ATTEMPTS + max(0, len(failure.remembered) - 1)):
            started = time.perf_counter()
            try:
                text = ask(lambda attempt=attempt: rehearse(failure, attempt), left)  # type: ignore[misc]
            except Failed as error:
                return inexact, str(error)
            left -= time.perf_counter() - started
            if text.startswith(b"!"):
                return inexact, text[1:].decode(errors="replace")
            answer = msgspec.json.decode(text, type=Answer)
            reason = answer.reason or reason
            # The same number came out wrong: that is the failure, and no other.
            if answer.record is not None and answer.record.exact:
                self._widen(failure, answer.record, answer.number if symptom == "gradient" else 0, left)
                return answer.record, ""
            inexact = inexact or answer.record
            if not answer.more or left <= 0 or reason == COUNTED:
                break
        return inexact, reason

    def _widen(self, failure: Failure, record: NonFinite, attempt: int, seconds: float) -> None:
        """Where the operator fails in float64 too: would it with operands that were not rounded before?"""
        if record.found != "operator" or record.survives.get("float64") is not False or not room_for_twins():
            return
        dtypes = {o.dtype for o in (*record.operands, record.result, record.argument) if o is not None}
        wider = (torch.float32, torch.float64) if dtypes & {"float16", "bfloat16"} else (torch.float64,)
        for dtype in wider:
            started = time.perf_counter()
            try:
                text = ask(partial(rehearse, failure, attempt, dtype), seconds)
            except Failed:
                return
            seconds -= time.perf_counter() - started
            answer = Answer() if text.startswith(b"!") else msgspec.json.decode(text, type=Answer)
            if answer.whole is not None:
                record.whole[str(dtype).removeprefix("torch.")] = answer.whole
            if dtype is torch.float64 and record.scale is None and self._calls.one_since_step():
                record.wide_size = answer.size
            if seconds <= 0:
                return

    def _remembered(self, symptom: Symptom) -> list[Stack]:
        """From where the calls came that may have gone wrong, where they have returned."""
        if symptom in _TAKEN:
            return [self._taken] if self._taken is not None else []
        return [] if symptom == "loss" else self._calls.since_step()

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._samples.restart()

    def totals(self, tick: int) -> Iterable[Record]:
        """The running totals."""
        self._samples.write()
        totals = msgspec.structs.replace(
            self._totals,
            tick=tick,
            trailing=max(self._skips.values(), default=0),
            passes=self._outputs.passes,
            ruined=self._outputs.ruined,
            numbers=self._outputs.numbers,
            nan_numbers=self._outputs.nan_numbers,
            skipping=self._skipped.batches,
        )
        return [totals] if totals.last_bad is not None or totals.skipped or self._numbers else []

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's outlives it here."""
        self._live.finish()
        self._look_at_taken(self.host.tick)
        self._data.clear()
        self._kept = Kept()
        self._calls.clear()
        self._assigned.remove()

    def unchecked(self) -> Iterable[Unchecked]:
        """What was only counted, and what no operator shows."""
        if self._counted:
            yield Unchecked(
                check="further steps with values that are not finite",
                reason=f"{self._counted} were counted and not looked into: the first ones had been",
            )
        if self._replays and REGIONS.ran:
            yield Unchecked(
                check="operators inside torch.compile regions, where values are not finite",
                reason="compiled kernels are not seen into: a failed step is done again with the regions run eagerly, "
                "whose rounding may differ, and of steps that are looked at as they run only what is around them is",
            )
        if self._outputs.unheard:
            yield Unchecked(
                check="numbers that evaluation takes, whether they are NaN",
                reason="it ran in torch.inference_mode(), where operators cannot be heard; no_grad lets them",
            )
        if self._only_grad:
            reason = "no optimizer of torch's stepped on any: losses were looked at, gradients were not"
            yield Unchecked(check="gradients of torch.autograd.grad", reason=reason)


def _gradients(optimizer: Optimizer) -> list[torch.Tensor]:
    return [one for g in optimizer.param_groups for p in g["params"] if (one := gradient_of(p)) is not None]
