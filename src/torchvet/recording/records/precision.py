"""Records about the type of number that a program computes in."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class WideNumbers(Record):
    """Operators on float64 in `sampled` sampled steps of optimizers whose parameters are float64: they took `seconds`
    of the `every` seconds of all operators, most of them on the line `place`; these steps took `whole` seconds, without
    what noting operators takes.

    Those of `timed` of these seconds took `wide` seconds once each, weighted as in the steps, and `narrow` in float32:
    measured after the run on made tensors of the same shapes. `cast` is the line that has made most of the parameters
    float64, where that was seen. `by_default` says that float64 is torch's default type, `loaded` that loaders gave
    batches, `batches` that these had float64 numbers, `derived` that gradients were made to be differentiated. `solver`
    is an operator of these that solves or factorizes. `operators` take most of the time.
    """

    place: Place
    seconds: float
    every: float
    whole: float
    sampled: int
    timed: float = 0.0
    wide: float = 0.0
    narrow: float = 0.0
    cast: Place | None = None
    by_default: bool = False
    loaded: bool = False
    batches: bool = False
    solver: str = ""
    derived: bool = False
    operators: list[str] = []
