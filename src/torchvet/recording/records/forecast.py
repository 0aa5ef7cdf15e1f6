"""Records of a precision forecast: how large values and gradients were where CUDA's autocast would hold them in fp16.

Everything was measured on the values of the run itself (float32 or bfloat16): which operators would run in half
precision is an emulation of CUDA's published lists, see `probes/precision/autocast_policy.py`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records.base import Place, Record


class ForecastSite(Record):
    """One operator of one module on one line whose result fp16 autocast would hold in half precision.

    Magnitudes are of finite elements: `first` in the first sampled step, `last` in the last, `largest` at `tick`.
    `overflows` counts calls whose result rounds to infinity in fp16 although every half operand was in range, so that
    it begins here; `operand` is the largest magnitude that would be cast to fp16 on the way in, `casts` the calls where
    that cast overflows. `fills` says that the value is a constant that was written (`masked_fill`).
    """

    operator: str
    module: str | None
    place: Place | None = None
    inner: Place | None = None
    policy: Literal["half", "follows"] = "half"
    shape: tuple[int, ...] = ()
    calls: int = 0
    largest: float = 0.0
    first: float = 0.0
    last: float = 0.0
    tick: int = 0
    overflows: int = 0
    operand: float = 0.0
    casts: int = 0
    fills: bool = False


class ForecastGradient(Record):
    """Gradients that would be fp16: of a parameter (`name`), or of what an operator read.

    `exponents` counts elements other than zero by the power of two above them: e for 2**(e-1) <= |g| < 2**e, of at
    most 65,536 elements a tensor taken at equal distances. `largest` is of all elements. The loss scale is taken out.
    """

    kind: Literal["parameter", "activation"]
    name: str
    module: str | None = None
    operator: str = ""
    place: Place | None = None
    largest: float = 0.0
    tick: int = 0
    calls: int = 0
    zeros: int = 0
    shape: tuple[int, ...] = ()
    exponents: dict[int, int] = {}


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What a device computes in half precision natively. `capability` is CUDA's, empty elsewhere."""

    name: str
    kind: Literal["cuda", "rocm", "mps", "xpu", "cpu"]
    capability: str = ""
    fp16: bool = False
    bf16: bool = False
    note: str = ""


class ForecastRun(Record):
    """What a forecast looked at: the sampled ticks, and the calls by what autocast would do with them.

    `off` counts calls within regions that a module switches autocast off for; `own` the half dtype that the program
    itself computed in, if any. `seconds` is what the looking took.
    """

    first: int
    last: int
    sampled: int
    half: int = 0
    float32: int = 0
    off: int = 0
    own: str | None = None
    seconds: float = 0.0
    scale: float = 1.0
    devices: list[Hardware] = []
