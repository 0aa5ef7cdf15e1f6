"""Records about gradient scalers: what each was used for, and gradients that went through one in a wrong way."""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record

FaultKind = Literal[
    "clipped-while-scaled", "added-after-unscale", "scale-changed", "update-before-step", "unscaled-too-early",
    "applied-scaled", "applied-unchecked", "not-scaled", "other-scaler", "scaled-twice",
    "update-between", "divided-twice", "loss-read", "norm-read", "refused",
]  # fmt: skip
"""What happened to gradients (or was refused by torch).

`clipped-while-scaled`: clipped before they were divided. `added-after-unscale`: a scaled backward added to divided
ones. `scale-changed`: an update lies between the backward passes of one accumulation. `update-before-step`: divided,
updated and divided again. `unscaled-too-early`: `unscale_` ran before the backward whose gradients it should have
divided. `applied-scaled`: an optimizer stepped on them, past the scaler, undivided. `applied-unchecked`: likewise
divided, with nobody to leave out infinities. `not-scaled`: divided though their loss was never scaled. `other-scaler`:
divided by another scaler's scale. `scaled-twice`; `divided-twice`: for two optimizer objects. `update-between`: an
update for another optimizer lies between backward and step. `loss-read`, `norm-read`: in a sampled step a number was
made of a loss or a gradient while it was scaled. `refused`: torch raised.
"""


class ScalingUse(Record):
    """What the scalers that were made at one place did. For one `id` the last record counts.

    `steps` are calls of `scaler.step`, `skipped` those that left the optimizer's step out, `unknown` those of which it
    is not known (fused optimizers on a device). `early` counts skips before a scaler's first applied step, `longest`
    the most updates in a row after a skip, `trailing` how many of them the run ended with.
    """

    id: int
    name: str
    place: Place | None
    device: str
    enabled: bool
    asked: bool = True
    """Whether it was to be enabled: one for CUDA switches itself off on a machine without it."""
    made: int = 1
    restored: int = 0
    """How many had a state loaded into them."""
    replaced: int = 0
    """How many stepped an optimizer that another one made here had stepped before."""
    relearned: int = 0
    """Skips of those before their first applied step."""
    steps: int = 0
    skipped: int = 0
    unknown: int = 0
    early: int = 0
    longest: int = 0
    trailing: int = 0
    updates: int = 0
    initial: float | None = None
    scale: float | None = None
    lowest: float | None = None
    backoff: float = 0.5
    interval: int = 2000
    step_place: Place | None = None
    half_parameters: bool = False
    """Whether an optimizer that they stepped had parameters in fp16."""
    half: bool | None = None
    """Of a scaler that is off: whether the graphs of its losses held fp16; None where none was looked at."""
    zeros: float | None = None
    """Of a scaler that is off under fp16: the share of gradient elements that were exactly zero, first steps."""
    schedule_steps: int = 0
    """Steps of learning rate schedulers that followed a step of the scaler."""
    schedule_spent: int = 0
    """Those of them that followed nothing but skipped steps."""
    schedule_place: Place | None = None


class ScalingFault(Record):
    """Running totals of one kind of fault at one place. For one `kind` and `place` the last record counts.

    `count` is how often, `applied` how often the optimizer then stepped; `steps` how many steps of the scaler there
    were in all. `factor` is the largest factor by which applied gradients were too large (below 1: the smallest).
    """

    kind: FaultKind
    scaler: int
    place: Place | None
    other: Place | None = None
    """The other line that belongs to it: see `FaultKind`."""
    count: int = 0
    applied: int = 0
    steps: int = 0
    changed: int = 0
    """Of `count`, how often the factor was not 1 (or, unchecked, an infinity was applied)."""
    factor: float | None = None
    first: float | None = None
    """The factor of the first such step."""
    through: int = 0
    """Of steps past the scaler: how often it has stepped the same optimizer itself."""
    updates: int = 0
    """How often the scaler was updated."""
    scale: float | None = None
    limit: float | None = None
    """The threshold of the clipping."""
    norm: float | None = None
    """The largest finite norm (or, clipping by value, element) that was clipped, scaled as it was."""
    looked: int = 0
    """Of `count`, how often the norm was read: on a device, where reading waits, the first few times."""
    bit: int = 0
    """Of `looked`, how often the norm was above the threshold."""
    needed: int = 0
    """Of `looked`, how often the true norm was, too."""
    method: str | None = None
    error: str | None = None
    """Of `refused`: the scaler's method, and what torch said."""
    waiting: bool = False
    """Of `refused`: whether gradients of a scaled loss were there that no step had used, the last time."""
    after: int = 0
    """Of `refused`: how many steps optimizers have made since, past the scaler or through it."""


class EmptyStep(Record):
    """A scaler refused to step an optimizer of which no parameter had a gradient.

    `passes` counts backward passes since the scaler's last update, `before` the steps of this optimizer that went
    through the scaler until then. `reached` parameters of other optimizers had a gradient. `cleared` is the line that
    threw this optimizer's gradients away after the backward pass, where one did.
    """

    place: Place
    optimizer: str
    parameters: int
    trainable: int
    passes: int = 0
    before: int = 0
    reached: int = 0
    cleared: Place | None = None
