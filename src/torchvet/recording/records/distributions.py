"""Records about matrices that a step makes or decomposes in vain: of distributions, and their factors."""

from __future__ import annotations

from typing import Literal

from torchvet.recording.records.base import Place, Record


class DiagonalNormals(Record):
    """The line `place` makes a `MultivariateNormal` of `width` dimensions, `rows` at once, whose covariance is exactly
    diagonal, as was that of every other one that was looked at (made on the lines `others`).

    Of the `every` seconds of all operators of `sampled` sampled steps, `seconds` went to those of these distributions,
    `backward` passes among them. To make one alike and to ask it what was `asked` took `whole` seconds with the matrix,
    and `apart` with a normal distribution for each dimension, measured after the run.
    """

    place: Place
    rows: int
    width: int
    sampled: int
    seconds: float
    every: float
    whole: float
    apart: float
    asked: list[str] = []
    others: list[Place] = []
    backward: bool = False


class UnreadFactors(Record):
    """The line `place` calls `name` (svd, eigh, eig, qr) on matrices of a shape, and not all of its results is read: so
    in each of `calls` calls in `sampled` sampled steps.

    What is enough by `kind`: the `values` alone (for qr, R), or `reduced` factors in place of the `full` ones that it
    computes. `gradients` says that autograd has recorded the call.

    The calls took `seconds` of the `every` seconds of the line's operators. One call took `whole` seconds, and what
    is enough `less`, measured after the run on made matrices of the same shape, without a backward pass.
    """

    place: Place
    name: str
    kind: Literal["values", "reduced"]
    shape: list[int]
    full: bool
    gradients: bool
    calls: int
    sampled: int
    seconds: float
    every: float
    whole: float
    less: float
