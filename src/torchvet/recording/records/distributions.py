"""Records about probability distributions."""

from __future__ import annotations

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
