"""MEM206: a large part of the peak is what the optimizer keeps."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Findings, Iterator, Measured, Related, count, percent, records
from torchvet.rules.memory._dry import DryRule, Sized
from torchvet.rules.shared.number_format import size as in_bytes

_SHARE, _FUSED = 0.25, 0.02
"""Shares of the peak: of all optimizers' state; that a fused update must save to be reported."""
_BLOCK, _GPUS = 256, 8
_EIGHT_BIT = 1 + 4 / _BLOCK
"""Bytes an element: one, and a float32 scale for each 256, as bitsandbytes lays it out."""


class OptimizerStateDominates(DryRule):
    """A large part of the peak is what the optimizer keeps for each parameter."""

    def in_step(self, one: Sized) -> Findings:
        """The optimizer with most state, where all state is a quarter of the peak."""
        optimizers = [o for o in one.rank.all(records.dry.DryOptimizer) if o.bytes]
        held = sum(o.bytes for o in optimizers)
        # Of all optimizers together; the largest is the one to name.
        if held >= _SHARE * one.size.allocated:
            yield self._finding(one, max(optimizers, key=lambda o: o.bytes), held)

    def _finding(self, one: Sized, most: records.dry.DryOptimizer, held: int) -> Finding:
        share = held / one.size.allocated
        each = f": {most.tensors} numbers of {most.itemsize} bytes for each" if most.tensors else ""
        return self.observed(
            one.rank,
            severity=one.severity,
            place=most.place,
            message=f"{most.name}'s state is {percent(share)} of the peak of {in_bytes(one.size.allocated)}: "
            f"{in_bytes(held)} for {count(most.elements)} parameters{each}",
            cause="it is made in the first step and stays, whatever the batch",
            advice="where memory is short: 8-bit state, state sharded over GPUs, or less state",
            related=[*_measured(one), *_alternatives(most)],
            measured=Measured(bytes=held, peak_bytes=one.size.allocated, share=share),
            device="cuda:0",
        )


def _measured(one: Sized) -> Iterator[Related]:
    """What was tried in a step of its own."""
    before = one.own_batch
    for update in one.rank.all(records.dry.DryUpdate):
        if before is not None and before.allocated - update.allocated >= _FUSED * before.allocated:
            yield Related(
                role="measured",
                message=f"{update.setting}: the peak of a step is {in_bytes(update.allocated)} instead of "
                f"{in_bytes(before.allocated)}",
            )


def _alternatives(optimizer: records.dry.DryOptimizer) -> Iterator[Related]:
    """Worked out from the elements that have state."""
    elements, tensors = optimizer.elements, optimizer.tensors
    if not tensors:
        return
    options = [("8-bit state", tensors * elements * _EIGHT_BIT)]
    # State that is half already saves nothing by it.
    if optimizer.itemsize > 2:
        options.append(("bfloat16 state", tensors * elements * 2))
    if tensors > 1:
        options.append(("SGD with momentum", elements * optimizer.itemsize))
    # SGD without momentum keeps nothing.
    options += [("SGD", 0), (f"sharded over {_GPUS} GPUs, on each", optimizer.bytes / _GPUS)]
    for name, size in options:
        saved = f"{in_bytes(optimizer.bytes - size)} less"
        yield Related(role="would take", message=f"{name}: {in_bytes(size)}, {saved}")
