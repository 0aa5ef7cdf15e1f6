"""Records about what the layers of a network are to each other."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class LinearNetwork(Record):
    """A network that is one affine map, the second of whose layers gets what the line `place` made.

    In `steps` sampled steps a backward pass began from a loss that compares what `layers` layers in a row made, with
    nothing nonlinear between them. `enter` and `leave` are the widths of the first and the last one; with `convolves`
    some are convolutions. `weights` are the names of their weights, the first layer's first, `identities` the parts of
    the model that are `nn.Identity`, and `made` the lines that made those.
    """

    place: Place
    layers: int
    enter: int
    leave: int
    convolves: bool = False
    weights: tuple[str, ...] = ()
    identities: list[str] = []
    made: list[Place] = []
    steps: int = 0
    last: int = -1
