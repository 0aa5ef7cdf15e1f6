"""Does a failed step again, in a child, under the finite-check mode, and tells what came first."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any

import msgspec
import torch

from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.internals.compiled_regions import REGIONS
from torchvet.probes.internals.finite import is_finite, numeric
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.replay.building import END
from torchvet.probes.replay.calls import Stack
from torchvet.probes.replay.finite_mode import FiniteMode
from torchvet.probes.replay.keeping import Kept
from torchvet.probes.replay.lineage import Lineage
from torchvet.probes.replay.naming import Names
from torchvet.probes.replay.plans import Plan, plans
from torchvet.probes.replay.slicing import BATCH
from torchvet.probes.replay.sources import Source, Symptom, record_of, root_of
from torchvet.probes.replay.stage import Autocast, Modules, set_up
from torchvet.probes.replay.widened import Wide
from torchvet.recording.records.nonfinite import NonFinite

COUNTED = "no number that was taken is computed from parameters by floating point all the way"
"""Why NaN among counts is no fault: a rate of a class that no sample is of."""


@dataclass
class Failure:
    """What went wrong, and what there is to do it again with. `frame` is the program's, where the failure was seen."""

    symptom: Symptom
    tick: int
    frame: FrameType | None
    remembered: list[Stack]
    """Where backward was called from, or a number taken, where that has returned: each call that may have to do with
    it."""
    known: KnownMemory
    kept: Kept
    before: Stack = ()
    """The stack at the backward call of the step before."""
    batch: Any = None
    scale: float | None = None


# No `except Exception` of the program's may catch these two.
# Not an Exception: see the comment above.
class _Reached(BaseException):
    """The failure has shown again, in these tensors."""

    def __init__(self, bad: list[torch.Tensor], everything: list[torch.Tensor] | None = None) -> None:
        self.bad = bad
        self.all = bad if everything is None else everything
        """With those that are finite."""


class _End(BaseException):
    """The slice returned."""


class Answer(msgspec.Struct, kw_only=True):
    """What the child says: a record, or why there is none, and whether another attempt may do better."""

    record: NonFinite | None = None
    reason: str = ""
    more: bool = False
    number: int = 0
    """Which attempt it was."""
    whole: bool | None = None
    """Where the step ran in a wider dtype beside: whether what failed is finite there."""
    size: float | None = None
    """In that dtype the loss, or the norm of all gradients."""


def rehearse(failure: Failure, attempt: int, wider: torch.dtype | None = None) -> bytes:
    """Runs in the child."""
    return msgspec.json.encode(_Rehearsal(failure, wider).attempt(attempt))


class _Rehearsal:
    def __init__(self, failure: Failure, wider: torch.dtype | None = None) -> None:
        self._failure = failure
        self._wider = wider
        self._backward = failure.symptom == "gradient"
        self._outputs: list[torch.Tensor] = []
        """Of the last pass of an outermost module: what was NaN."""
        self._counted = False
        """Whether a number was NaN that is no matter of the parameters."""

    def attempt(self, number: int) -> Answer:
        """The `number`-th best plan."""
        failure = self._failure
        frame = failure.frame or sys._getframe(1)
        found, why = self._plans(frame)
        # All plans were tried.
        if number >= len(found):
            return Answer(reason=why if not found else "")
        plan = found[number]
        answer = self._run(plan)
        answer.more, answer.number = number + 1 < len(found), number
        return answer

    def _plans(self, frame: FrameType) -> tuple[list[Plan], str]:
        """Of several calls of backward the best plan of each in the order in which they ran, then the next best."""
        failure = self._failure
        why = ""
        found: list[tuple[int, int, Plan]] = []
        # The backward pass that failed may be one of several in the step: each call is a place to begin from.
        for order, remembered in enumerate(failure.remembered or [None]):
            # What is finite may have been rounded to it: in a wider dtype it is made anew, as for gradients.
            # Saved tensors of the graph are freed: gradients need a graph of their own.
            anew = self._backward or self._wider is not None
            mine, reason = plans(frame, remembered, failure.batch is not None, anew, failure.before)
            found += [(rank, order, plan) for rank, plan in enumerate(mine)]
            why = why or reason
        # The best plan of each call first: which of several calls failed is not known.
        return [plan for _, _, plan in sorted(found, key=lambda f: f[:2])], why

    def _run(self, plan: Plan) -> Answer:
        failure = self._failure
        mode, modules, autocast = self._prepared(plan)
        originals = {n: plan.before[n] for n in plan.written if n in plan.before}
        # First: what follows must not write to what the parent shares.
        set_up(failure.known, failure.batch, plan.names, self._backward)
        # The step may write to these in place; it is exact only if it makes them as they were.
        copies = {n: [t.detach().clone() for t in tensors_in(v, 2)] for n, v in originals.items()}
        modules.follow()
        autocast.follow(ExitStack())
        self._intercept()
        # After the hooks and before anything runs: their making draws no number.
        failure.kept.restore()
        generators = failure.kept.generators.restore([plan.names], failure.frame)
        lost = _put_in_place_of_lost(plan)
        reached = self._reached(plan)
        if isinstance(reached, str):
            eagerly = ", its torch.compile regions run eagerly" if REGIONS.ran else ""
            return Answer(reason=COUNTED if self._counted else reached + eagerly)
        # It is the same step only if it makes what the failed one has made.
        same = (_equal(copies[n], tensors_in(plan.names.get(n), 2)) for n in originals)
        exact = not plan.missing and all(same) and generators.same(mode.generators)
        if mode.wide is not None:
            whole = mode.wide.finite(reached.bad) if exact else None
            return Answer(whole=whole, size=mode.wide.size(reached.all) if whole else None)
        answer = self._tell(reached, exact, plan)
        _add_lost(answer, lost)
        return answer

    def _prepared(self, plan: Plan) -> tuple[FiniteMode, Modules, Autocast]:
        failure = self._failure
        self._names = Names(failure.known, plan.before, failure.batch, plan.missing)
        modules, autocast = Modules(failure.known), Autocast()
        mode = self._mode = FiniteMode(self._names.of, modules.path)
        mode.autocast = autocast.now
        mode.alone = True
        mode.wide = Wide(self._wider) if self._wider is not None else None
        if failure.symptom in ("output", "number", "skipped"):
            mode.taken = self._look_at_number
        if failure.symptom == "output":
            modules.given = self._look_at_output
        if failure.symptom == "number":
            mode.lineage = Lineage(failure.known.parameters())
        return mode, modules, autocast

    def _reached(self, plan: Plan) -> _Reached | str:
        """Run it. Gives where the failure showed again, or why it did not."""
        plan.names.update({END: _End, BATCH: self._failure.batch})
        try:
            with self._mode:
                # The program's own code in a copy of its frame's names, in a process that is thrown
                # away.
                exec(plan.code, plan.names)
        except _Reached as now:
            return now
        except _End:
            # Of an evaluation's number only its outputs remain.
            if self._outputs:
                return _Reached(self._outputs)
        except BaseException as error:
            # Whatever the program raises here it may not have raised there.
            return f"doing the step again failed: {type(error).__name__}: {error}"[:300]
        return "doing the step again gave finite values"

    def _intercept(self) -> None:
        backward, grad = torch.autograd.backward, torch.autograd.grad

        def replayed_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._look_at_loss(tensors)
            backward(tensors, *args, **kwargs)
            self._look_at_gradients()

        def replayed_grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._look_at_loss(outputs)
            return grad(outputs, *args, **kwargs)

        # Never taken back: this process ends with its answer.
        # Frames above this function are of the call and not of the pass.
        self._mode.backward_code = replayed_backward.__code__
        torch.autograd.backward = replayed_backward
        torch.autograd.grad = replayed_grad

    def _look_at_loss(self, tensors: Any) -> None:
        # Before the pass: a bad loss makes bad gradients, and comes first.
        bad = [t for t in tensors_in(tensors, 2) if not is_finite(t)]
        if bad:
            raise _Reached(bad)

    def _look_at_output(self, output: Any) -> None:
        self._outputs = [t for t in tensors_in(output, 2) if numeric(t) and bool(torch.isnan(t).any())]

    def _look_at_number(self, tensor: torch.Tensor) -> None:
        if not bool(torch.isnan(tensor).any()):
            return
        lineage = self._mode.lineage
        # A rate of nothing is NaN by itself and no fault.
        if lineage is None or lineage.holds(tensor):
            raise _Reached([tensor])
        self._counted = True

    def _look_at_gradients(self) -> None:
        if not self._backward:
            return
        # To read `.grad` of a tensor that is no leaf makes torch warn.
        gradients = [p.grad for p in self._failure.known.parameters() if p.is_leaf and p.grad is not None]
        gradients = [g._values() if g.is_sparse else g for g in gradients]
        bad = [g for g in gradients if numeric(g) and not is_finite(g)]
        if bad:
            raise _Reached(bad, gradients)

    def _tell(self, reached: _Reached, exact: bool, plan: Plan) -> Answer:
        taints = [t for t in (self._mode.taints.of(b) for b in reached.bad) if t is not None]
        sources = [s for t in taints for s in (t.nan or t.inf)]
        root = root_of(sources)
        # It came with a graph: an operator made it, outside of what was done again.
        if root is not None and root.external is not None and root.external.grad_fn is not None:
            name = self._names.of(root.external) or "a tensor"
            return Answer(reason=f"{name} was not finite already, and what made it was not done again")
        if root is None:
            what = "NaN" if bool(torch.isnan(reached.bad[0].detach()).any()) else "an infinity"
            return Answer(reason=f"no operator of what was done again made {what}")
        return Answer(record=self._record(root, exact))

    def _record(self, root: Source, exact: bool) -> NonFinite:
        reason = root.reason if root.external is None else self._names.origin(root.external)
        record = NonFinite(tick=self._failure.tick, symptom=self._failure.symptom, found="operator", exact=exact)
        record.scale = self._failure.scale
        return record_of(root, reason, self._mode.sources, record)


def _add_lost(answer: Answer, lost: list[str]) -> None:
    if lost and answer.record is not None:
        note = f"{', '.join(lost)} as it was before the step is gone: zeros stood for what is not finite"
        answer.record.note = f"{answer.record.note}; {note}" if answer.record.note else note


def _put_in_place_of_lost(plan: Plan) -> list[str]:
    """Values that the step has overwritten with bad ones: their finite parts, and zeros, take their place."""
    lost = []
    for name, why in plan.missing.items():
        value = plan.names.get(name)
        if why == "overwritten" and isinstance(value, torch.Tensor) and not is_finite(value):
            # Better than nothing: the record says that zeros stood in.
            plan.names[name] = torch.nan_to_num(value.detach(), 0.0, 0.0, 0.0).requires_grad_(value.requires_grad)
            lost.append(name)
    return lost


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    # What went wrong may be among them, and NaN is unequal to itself.
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b.detach()))
        for a, b in zip(one, other, strict=True)
        if numeric(a)
    )
