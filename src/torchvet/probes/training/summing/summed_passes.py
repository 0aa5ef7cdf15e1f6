"""Follows the backward passes of a step: whose gradients add up, and whether anything divides by their number."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import (
    EVERY_STEP,
    After,
    Before,
    Host,
    Optimizer,
    Place,
    Watcher,
    around,
    graphs,
    user_lines,
)
from torchvet.probes.internals import graph_teardown, private
from torchvet.probes.internals.finite import numeric
from torchvet.probes.internals.patching import replace
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.training.summing import trainers
from torchvet.probes.training.summing.factors import Factors, judged
from torchvet.probes.training.summing.used_up import UsedUpIterators
from torchvet.recording.records.passes import SummedPasses, UsedUpIterator

_MOST_MEASURED = 8
"""Passes of one place in a step that are measured; the others are counted."""
_MOST_STEPS = 16
"""Steps that are judged for each place."""
_MOST_WAYS = 64
_MOST_AROUND = 6
_MOST_NODES = 4096
"""Nodes that are gone through for a parameter that a pass reaches."""
_WHAT = "whether gradients of several passes are averaged"

Way = tuple[tuple[int, int], ...]
"""The program's lines that led to a pass, as code objects' identities and instructions."""
Mark = tuple[int, int] | None
"""A gradient's tensor and how often it was written to: the same as long as nobody has changed it."""


@dataclass
class _Passes:
    """The passes from one place since its optimizer's last step."""

    witness: weakref.ref[torch.Tensor]
    """A parameter that they reach. Its gradient shows whether all add to it, and nothing else changes it."""
    mark: Mark = None
    count: int = 0
    seen: list[Factors] = field(default_factory=list)
    whole: bool = True
    """Whether these are all passes, and nothing but they and clipping has changed the gradients."""

    def holds(self) -> bool:
        """Whether the gradient is as it was left."""
        self.whole = self.whole and self.mark == _mark(self.witness())
        return self.whole


class SummedPassesProbe(Watcher):
    """Whether gradients of several passes are averaged."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._records: dict[Way, SummedPasses] = {}
        self._counts: dict[Way, Counter[int]] = {}
        self._step: dict[Way, _Passes] = {}
        self._under_way: tuple[_Passes, Factors | None] | None = None
        self._batches: Counter[int] = Counter()
        self._taken: dict[int, Counter[int]] = {}
        """By optimizer: the batches of each loader until its last step."""
        self._clips: list[tuple[Any, float]] = []
        """Since the last step: the norm that was found, and what it was clipped to."""
        self._used_up = UsedUpIterators(host)
        self._scaled: set[int] = set()
        self._stepping = self._sampled = False
        self._thread = 0

    def install(self) -> None:
        """Hear of what changes gradients between the passes and the step, and of scales, which are no weights."""
        from torch.amp.grad_scaler import GradScaler
        from torch.nn import utils
        from torch.nn.utils import clip_grad

        for owner, name, before in (
            (clip_grad, "clip_grad_norm_", functools.partial(self._clip, "clip_grad_norm_")),
            (clip_grad, "clip_grad_value_", functools.partial(self._clip, "clip_grad_value_")),
            (GradScaler, "unscale_", self._unscale),
            (GradScaler, "scale", self._scale),
        ):
            self._around(owner, name, before)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            replace(self._undo, utils, name, vars(clip_grad)[name])  # the same function in another module

    def _around(self, owner: Any, name: str, before: Before) -> None:
        self.replace(owner, name, lambda original: around(original, before))

    # Passes -----------------------------------------------------------------------------------------------------

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """A pass begins."""
        self._begin_stretch()
        # A checkpointed part's own pass is a part of the one that runs, and `autograd.grad` adds to no gradient.
        if is_grad or private.graph_task() != -1 or self._elsewhere():
            return
        roots = graphs.roots_of(tensors)
        way = tuple((id(code), instruction) for _, code, instruction in self.host.way)
        # A step is followed to its end, and none is begun that is not sampled. A closure's passes are the optimizer's.
        follows = (self._step or self.host.sampling) and not self._stepping
        if not follows or not roots or not way or not graphs.followed():
            return
        passes = self._step.get(way) or self._first(way, roots)
        if passes is None:
            return
        self._note_loss(self._records[way])
        passes.count += 1
        measured = passes.holds() and passes.count <= _MOST_MEASURED
        self._under_way = passes, Factors(roots, self._scaled) if measured else None

    def _begin_stretch(self) -> None:
        """Steps are sampled again: what was seen before is of other steps."""
        sampled, self._sampled = self._sampled, self.host.sampling
        if self._sampled and not sampled:
            self.restarted()

    def restarted(self) -> None:
        """Steps are counted anew."""
        self._step.clear()
        self._batches.clear()
        self._taken.clear()
        self._scaled.clear()
        self._clips.clear()
        self._under_way = None

    def _elsewhere(self) -> bool:
        """Whether another thread's passes are being followed."""
        if not self._step:
            self._thread = threading.get_ident()
        return self._thread != threading.get_ident()

    def _first(self, way: Way, roots: list[Any]) -> _Passes | None:
        """The first pass from a place: its gradients are to be the first, or those of the passes that are followed."""
        record = self._records.get(way)
        if record is None and len(self._records) >= _MOST_WAYS:
            return None
        if record is None:
            record = self._records[way] = self._record()
        if record.summed + record.averaged + record.unclear >= _MOST_STEPS:
            return None
        witness = _leaf_below(roots)
        if witness is None:
            return None
        passes = _Passes(weakref.ref(witness), _mark(witness))
        followed = any(one.holds() and one.witness() is witness for one in self._step.values())
        passes.whole = followed or _is_empty(gradient_of(witness))
        self._step[way] = passes
        return passes

    def _record(self) -> SummedPasses:
        frame = sys._getframe(2)
        lines = user_lines(frame, _MOST_AROUND) or [Place("", 0, "")]
        record = SummedPasses(id=len(self._records), place=lines[0], around=lines[1:])
        trainer = (trainers.variables(frame) or {}).get("self")
        if trainer is not None:
            record.trainer, record.loss_from, record.loss_at = trainers.loss_source(trainer)
        return record

    def _note_loss(self, record: SummedPasses) -> None:
        # Only of operators that were heard is the line known.
        if record.trainer and record.made is None and self.host.sampling:
            # The Trainer's own variable: what goes backward has been through accelerate, which divides by 1.
            loss = (trainers.variables(sys._getframe(2)) or {}).get("loss")
            record.made = self.host.made_at(loss) if isinstance(loss, torch.Tensor) else None

    def backward_failed(self) -> None:
        """The pass raised."""
        self._pass_over(whole=False)

    def backward_ended(self, is_grad: bool) -> None:
        """A pass is over: it has added to the gradients."""
        if not is_grad and private.graph_task() == -1 and not self._elsewhere():
            self._pass_over(whole=True)

    def _pass_over(self, whole: bool) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            passes, factors = under_way
            if factors is not None:
                factors.ended()
                passes.seen.append(factors)
            # Another network's pass leaves it as it was.
            passes.whole = passes.whole and whole and passes.mark != _mark(passes.witness())
        self._mark_all()

    def _mark_all(self) -> None:
        for passes in self._step.values():
            passes.mark = _mark(passes.witness())

    # Steps ------------------------------------------------------------------------------------------------------

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """A loader gave a batch."""
        self._begin_stretch()
        self._batches[id(iterator)] += 1

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """The gradients are used."""
        self._stepping = True
        if not self._step or self._elsewhere():
            return
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for way in [way for way, passes in self._step.items() if id(passes.witness()) in own]:
            passes = self._step.pop(way)
            if passes.holds():
                self._judge(way, passes, optimizer)
        self._clips.clear()
        self._scaled.clear()

    def _judge(self, way: Way, passes: _Passes, optimizer: Optimizer) -> None:
        verdict, factors = judged(passes.count, [one.read() for one in passes.seen])
        record, counts = self._records[way], self._counts.setdefault(way, Counter())
        # A single pass has nothing to be averaged.
        if passes.count < 2 or not record.place.path:
            return
        setattr(record, verdict, getattr(record, verdict) + 1)
        if verdict != "summed":
            return
        counts[passes.count] += 1
        record.passes, record.factors = counts.most_common(1)[0][0], factors
        record.optimizer = type(optimizer).__name__
        before = self._taken.get(id(optimizer), Counter())
        record.batches += any(got - before[loader] == passes.count for loader, got in self._batches.items())
        clipped = [_number(norm) / limit for norm, limit in self._clips if limit > 0]
        record.clipped += any(over > 1 for over in clipped)
        record.clipped_anyway += any(over / passes.count > 1 for over in clipped)

    def optimizer_ended(self, optimizer: Optimizer) -> None:
        """The step is over."""
        self._stepping = False
        self._taken[id(optimizer)] = self._batches.copy()

    def totals(self, tick: int) -> Iterable[SummedPasses | UsedUpIterator]:
        """Those of places with several passes in a step, and of what clip functions found used up."""
        summed = (one for one in self._records.values() if one.summed or one.averaged or one.unclear)
        return [*summed, *self._used_up.records()]

    # What changes gradients ---------------------------------------------------------------------------------------

    def _allowed(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], After] | None:
        """A call may change the gradients of the passes that are followed."""
        if not self._step or not self.host.active or self._elsewhere():
            return None
        for passes in self._step.values():
            passes.holds()

        def after(result: Any, error: BaseException | None) -> None:
            with self.host.looking(_WHAT):
                self._mark_all()

        return args, after

    def _unscale(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], After] | None:
        return self._allowed(args)

    def _clip(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], After] | None:
        if self.host.active and self.host.sampling:
            with self.host.looking(_WHAT):
                self._used_up.given(name, args[0] if args else kwargs.get("parameters"))
        allowed = self._allowed(args)
        if allowed is None:
            return None

        def after(result: Any, error: BaseException | None) -> None:
            limit = kwargs.get("max_norm", args[1] if len(args) > 1 else None)
            # `clip_grad_value_` returns nothing: which elements it has cut is not known.
            if isinstance(result, torch.Tensor) and isinstance(limit, (int, float)):
                self._clips.append((result, float(limit)))
            allowed[1](result, error)

        return args, after

    def _scale(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], After] | None:
        if not self.host.active or not (self._step or self.host.sampling):
            return None
        self._begin_stretch()

        def after(result: Any, error: BaseException | None) -> None:
            # A scaler that is switched off gives back what it was given.
            if isinstance(result, torch.Tensor) and result.grad_fn is not None and result is not args[1]:
                self._scaled.add(result.grad_fn._sequence_nr())

        return args, after


def _mark(parameter: torch.Tensor | None) -> Mark:
    gradient = gradient_of(parameter) if parameter is not None else None
    return (gradient._cdata, gradient._version) if gradient is not None else None


def _is_empty(gradient: torch.Tensor | None) -> bool:
    """Whether a gradient is not there yet, or has been set to zero."""
    return gradient is None or (numeric(gradient) and not bool(numbers(gradient.detach()).any()))


def _leaf_below(roots: list[Any]) -> torch.Tensor | None:
    """A parameter that a pass reaches, if no hook of the program's changes its gradient."""
    waiting = [*roots]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if graphs.name_of(node) == graphs.ACCUMULATE:
            leaf: torch.Tensor = node.variable
            hooked = leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None)
            return None if hooked else leaf
        waiting += graph_teardown.nodes_below(node)
    return None


def _number(norm: torch.Tensor) -> float:
    return float(numbers(norm.detach()))
