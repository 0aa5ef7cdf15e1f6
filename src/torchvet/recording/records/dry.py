"""Records of a dry run: what was measured of steps that worked nothing out. All amounts are bytes of one device."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class DrySize(Record):
    """The program's own steps: the most that was allocated and reserved, of a card that has `total` and of which the
    driver takes `context`. `ran_out` says that it was too small; the program went on as if it were not.

    `batch` is the number of rows that modules were given, 0 where none was seen; `arithmetic` the floating-point
    operations of the last step's products. `snapshot` holds the history of the allocations; `workspaces` are the
    addresses of cuBLAS's.
    """

    steps: int
    kind: str
    allocated: int
    reserved: int
    total: int
    context: int
    ran_out: bool
    batch: int
    arithmetic: int
    seconds: float
    snapshot: str | None = None
    workspaces: list[int] = []

    @property
    def room(self) -> int:
        """Bytes that the program can have."""
        return self.total - self.context


class DryPart(Record):
    """A part of what was in use at the peak, by category; worked out from the snapshot when the recording is read."""

    category: str
    bytes: int


class DryLine(Record):
    """What a line had in use at the peak, in one category; worked out likewise. `backward`: by its backward pass."""

    place: Place | None
    category: str
    bytes: int
    blocks: int
    backward: bool = False


class DryModule(Record):
    """What was made within a module, its children's left out, and in use at the peak. In its name `*` stands for the
    numbers of a list."""

    name: str
    bytes: int
    blocks: int


class DryBatch(Record):
    """A step with another batch size. `ran_out` is measured where `bounded`: the card's size was in force."""

    batch: int
    allocated: int
    reserved: int
    bounded: bool
    ran_out: bool

    def fits(self, size: DrySize) -> bool:
        """Whether the step had room on the card: seen where the card's size was in force, else by what was reserved.

        What the program's own batch had no room for as the program ran, none above it is said to have: memory lies
        otherwise by the time that batches are tried.
        """
        if size.ran_out and self.batch >= size.batch:
            return False
        return self.reserved <= size.room and not (self.bounded and self.ran_out)


class DrySearch(Record):
    """The search for the largest batch that fits came to its end; without it, it was cut short."""


class DryCheckpoint(Record):
    """A step with every block of one class under `torch.utils.checkpoint`: `blocks` of them, the first by its name."""

    module: str
    first: str
    blocks: int
    allocated: int
    reserved: int
    arithmetic: int


class DryOptimizer(Record):
    """What an optimizer keeps on the device, at the end of the program's own steps.

    `elements` of its parameters that it has state for, in `parameters` tensors; `tensors` state tensors a parameter of
    the parameter's size, of `itemsize` bytes an element.
    """

    name: str
    place: Place | None
    bytes: int
    parameters: int
    elements: int
    tensors: int
    itemsize: int
    fused: bool


class DryUpdate(Record):
    """A step whose optimizers were told `fused=True`, or `foreach=False`."""

    setting: str
    allocated: int
    reserved: int
