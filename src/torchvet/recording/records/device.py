"""Records about errors that a program ended with: tensors on different devices, values out of range."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records.base import Place, Record

Role = Literal["variable", "parameter", "buffer", "attribute", "unregistered", "optimizer state", "expression"]
"""What a tensor is to the program. `attribute`: a plain attribute of a module, neither parameter nor buffer.
`unregistered`: a parameter or buffer of a module that its owner does not know, since it stands in a plain list or dict.
`expression`: a result that has no name."""


class Placed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tensor that an operation was given. `device` is empty where it could not be read off.

    `name` is the program's own, `argument` what the operation calls it. `made` is the line that puts an attribute, or
    the list that hides a module, there; of a variable the line of the function that it came from, where it is handed on
    or used.
    """

    name: str
    role: Role
    device: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    argument: str = ""
    owner: str = ""
    """The root module, or the optimizer, that it belongs to, by the program's name for it."""
    made: Place | None = None
    loaded: Place | None = None
    """The line that loaded this very memory from a file."""
    built_on: str = ""
    """The device of the optimizer's parameters when it was built, where that was seen and was one."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A device that the program's text names at `place` (`text`), where `variable` holds another one (`device`)."""

    text: str
    place: Place
    variable: str
    device: str


class DeviceMismatch(Record):
    """The program ended by an operation that was given tensors on different devices, or of different dtypes.

    `place` is the program's line, `module` the path of the module at work. `spread` counts the parameters and buffers
    of the root module that is concerned by the device they are on. `discarded` is a move or conversion of one of the
    tensors, `moved` by name, whose result was thrown away in the function that failed. `written` is the device that the
    program's text gives one of them, `hard_coded` by name, where the others are on the device of its variable.
    """

    place: Place
    message: str
    operation: str
    tensors: list[Placed]
    module: str | None = None
    spread: dict[str, int] = {}
    dtypes_differ: bool = False
    moved: str = ""
    discarded: str = ""
    discarded_at: Place | None = None
    hard_coded: str = ""
    written: Written | None = None


class AbsentDevice(Record):
    """The program ended because it asked for a device that is not there, of which `devices` are.

    `asked` is the text that names it, empty where it is not written out at the line; `message` torch's. `variable`
    holds another device, `held`, by which the program could have gone on. `checkpoint`: a file was loaded to the device
    that it was saved from.
    """

    place: Place
    message: str
    devices: int
    asked: str = ""
    variable: str = ""
    held: str = ""
    checkpoint: bool = False


class DiscardedMove(Record):
    """A statement that moves or converts a tensor and throws the result away, as it was seen in sampled steps.

    `kind`: to another device, to the host, or to another dtype. `steps` of `sampled` ones had it. After (or before)
    `again` of the `calls` the same tensor was moved likewise in the same step, and that result was kept. `timed`: a
    clock, or waiting for the device, follows.
    """

    place: Place
    text: str
    subject: str
    kind: Literal["to device", "to host", "dtype"]
    before: str
    after: str
    calls: int = 0
    steps: int = 0
    bytes: int = 0
    sampled: int = 0
    again: int = 0
    timed: bool = False


class LoadedCheckpoint(Record):
    """A file that was loaded without `map_location`: `bytes` by the device that its tensors came to.

    `into` are the devices of the module that they were then copied into, `owner` its class, both empty where that was
    not seen, and `settled` those that it was on when a step last ended. `kept` counts the step boundaries at which all
    of it was still in memory, beside the module's own, `copied` how often a module took it over.
    """

    place: Place
    bytes: dict[str, int]
    calls: int = 1
    owner: str = ""
    into: list[str] = []
    settled: list[str] = []
    kept: int = 0
    copied: int = 0
    rank: int | None = None


class BadValue(Record):
    """The program ended by a value that an operation does not take.

    For an index: `low` and `high` are the bounds, `high` not included. For a probability both are included, and None
    where there is no such bound; `of` says what was looked for. `values` and `positions` are the first few of `count`
    among `total`; a position is an index into the tensor, the batch row first. `name` is None where the tensor was not
    found. `asserted`: on a GPU it would have been, or was, a device-side assert.
    """

    place: Place
    kind: Literal["index", "probability", "unknown"]
    operation: str
    message: str
    name: str | None = None
    argument: str = ""
    module: str | None = None
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    low: float | None = None
    high: float | None = None
    bounded_by: str = ""
    """What sets the bound: `model.table.weight has 100 rows`."""
    of: str = ""
    derived: str = ""
    """The expression that was refused, where `name` is only what it was made of."""
    values: list[float] = []
    positions: list[list[int]] = []
    count: int = 0
    total: int = 0
    nans: int = 0
    ignored: int | None = None
    asserted: bool = False
    simulated: bool = False


class ReplacedParameters(Record):
    """Optimizers of which no parameter is one of the model's any more: all `count` have a twin there, of the same
    shape, that gets gradients and that no optimizer owns."""

    module: str
    count: int
    bytes: int
    steps: int
    place: Place | None = None
    optimizer: str = "optimizer"


class HiddenModules(Record):
    """Modules in a plain list or dict of another, whose parameters get gradients and that no optimizer owns."""

    holder: str
    modules: int
    parameters: int
    bytes: int
    kinds: list[str]
    made: Place | None = None
    steps: int = 0
