"""Records about autocast: its regions, and what happened within them that nobody says anything about.

All are running totals that are written again as they change: for one key (places, kind) the last counts.
"""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record


class AutocastRegion(Record):
    """Regions opened by one line, or by one decorated function.

    `wanted` is whether they were asked to be on, `enabled` whether torch had them on. In sampled steps `inside` counts
    the matrix products and convolutions on the region's own device type, `elsewhere` those on `other`.

    `heard` counts the regions in which operators were heard from beginning to end, with gradients, `casts` what was
    cast to half precision or ran in it there, `double` the products in float64, which autocast leaves as they are.
    """

    place: Place
    device: str
    dtype: str
    wanted: bool
    enabled: bool
    entered: int
    inside: int = 0
    elsewhere: int = 0
    other: str = ""
    heard: int = 0
    casts: int = 0
    double: int = 0


class ProductsOutside(Record):
    """Matrix products and convolutions of passes with gradients that ran outside of all regions, in `steps` sampled
    steps of a program that opens some. The first one was on the line `place`. Written only if no code was compiled."""

    device: str
    dtype: str
    place: Place | None
    calls: int = 0
    steps: int = 0


class StaleWeights(Record):
    """Forward passes that read a half copy of a weight which had changed since, within one outermost region.

    `change` is the line that changed weights (None where that was not seen), by an optimizer's step, `load_state_dict`
    or otherwise; `changes` how often it did so in one region at most. `looked` layers were read after a change, `stale`
    of them used old copies, that were off by up to `deviation` of their weight's largest magnitude.
    """

    region: Place
    change: Place | None
    kind: Literal["step", "load", "other"]
    changes: int
    looked: int
    stale: int
    deviation: float = 0.0
    module: str = ""
    forward: Place | None = None


class AutocastBackward(Record):
    """Backward calls within an active region. In `looked` of them the graph was read: of `products` matrix products
    and convolutions `full` had run in float32, and were cast to half precision on the way back."""

    place: Place
    region: Place
    dtype: str
    calls: int
    looked: int = 0
    products: int = 0
    full: int = 0


class HalfOperator(Record):
    """An operator that autocast's lists run in float32 and that ran in half precision, in sampled steps.

    `situation`: after the region that made its operands (`outside`), or in a region that is off (`disabled`).
    `error` is the largest difference from float32 on the same operands, relative to the largest result. `callers` are
    the user's lines that called this one, the nearest first.
    """

    place: Place
    situation: Literal["outside", "disabled"]
    operator: str
    dtype: str
    calls: int
    loss: bool = False
    error: float = 0.0
    region: Place | None = None
    callers: list[Place] = []


class HalfLoss(Record):
    """Backward calls from a loss in half precision; `scale` is the largest factor that a scaler gave it."""

    place: Place
    dtype: str
    calls: int
    scale: float = 0.0


class RoundedProbabilities(Record):
    """Binary cross entropy within an active region. Of `elements` probabilities (sampled) `saturated` were exactly 0
    or 1; `rounded` is whether all had been rounded to half precision before."""

    place: Place
    region: Place
    dtype: str
    calls: int
    elements: int = 0
    saturated: int = 0
    rounded: bool = True


class FunctionPrecision(Record):
    """A custom autograd Function without `custom_fwd` whose forward gave half results from float32 inputs."""

    place: Place
    name: str
    calls: int
    dtype: str


class FunctionOverflow(Record):
    """Sums in the forward of a custom autograd Function without `custom_fwd`, within an active region of float16.

    `overflowed` of `calls` in sampled steps gave infinities of finite operands (or of squares of finite numbers that
    overflowed in float16): `infinite` of their `elements` results.
    """

    place: Place
    name: str
    operator: str
    calls: int = 0
    overflowed: int = 0
    elements: int = 0
    infinite: int = 0


class AutocastError(Record):
    """An exception that autocast's state explains.

    `function`: the backward of a Function without `custom_fwd`; `disabled`: half operands met float32 in a region that
    is off; `bce`: a loss that autocast refuses; `device`: a `torch.device` where its type is wanted.
    """

    kind: Literal["function", "disabled", "bce", "device"]
    place: Place
    message: str
    name: str = ""
    region: Place | None = None


class ThreadForward(Record):
    """Layers called with autocast off by a thread that somebody was waiting for within an active region."""

    place: Place
    region: Place
    dtype: str
    calls: int
    module: str


class UnscaledBackward(Record):
    """Backward calls after an fp16 region with no scaler at work.

    In `looked` sampled ones operators had `elements` results in fp16 that float32 has not at zero, given the same
    operands; `lost` of them were exactly zero. Of `gradients` elements of parameters' gradients `zeros` were zero.
    """

    place: Place
    region: Place
    calls: int
    looked: int = 0
    elements: int = 0
    lost: int = 0
    gradients: int = 0
    zeros: int = 0
