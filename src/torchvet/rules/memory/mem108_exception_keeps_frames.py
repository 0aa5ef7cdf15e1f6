"""MEM108: a stored exception keeps the frames it passed through, and their tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.recording.records import Census
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class ExceptionKeepsFrames(GrowthRule):
    """A stored exception keeps the frames it passed through, and their tensors."""

    code = "MEM108"
    name = "exception-keeps-frames"
    summary = "A stored exception keeps the frames it passed through, and their tensors"
    severity = "error"

    what = (
        "An exception refers to its traceback, the traceback to every function frame between `raise` and "
        "`except`, and each frame to its local variables. Python deletes the name in `except ... as error` at the "
        "end of the block; storing the exception object anywhere keeps all of it."
    )
    why = (
        "The locals of a failing forward or preprocessing function are batches and activations. A list of errors "
        "for a summary at the end keeps them all, and so does a single `last_error` until it is replaced: an "
        "out-of-memory handler that stores the error keeps the memory that it means to free."
    )
    when_not = (
        "`str(error)`, `repr(error)` and `traceback.format_exc()` are text and hold nothing. An exception that is "
        "handled and dropped frees its frames at once."
    )
    proof = (
        "torch 2.13.0, CPU. The example keeps 462,848 bytes per failure (64 images of 28 × 28 and their padded "
        "copy, float32), and 0 when it stores `str(error)`. A function that fails with a tensor of 1,000,000 "
        "bytes among its locals: 1,000,000 bytes per stored exception, 0 when stored as text or as "
        "`error.with_traceback(None)`."
    )
    remedy = (
        "Store text: `str(error)`, or `traceback.format_exc()` for the whole story. Where the exception object is "
        "needed, store `error.with_traceback(None)`. In a retry handler leave the `except` block before "
        "allocating again."
    )

    BAD = """\
import torch
from torch import nn


def crop(images, size):
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    if size > padded.shape[-1]:
        raise ValueError(f"crop {size} is larger than {padded.shape[-1]}")
    return padded[..., :size, :size]


torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
failures = []
for step in range(40):
    images, target = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    try:
        images = crop(images, 36)
    except ValueError as error:
        failures.append(error)
        images = crop(images, 24)
    loss = nn.functional.cross_entropy(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} failures {len(failures)}, last: {failures[-1]}")
"""

    GOOD = """\
import torch
from torch import nn


def crop(images, size):
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    if size > padded.shape[-1]:
        raise ValueError(f"crop {size} is larger than {padded.shape[-1]}")
    return padded[..., :size, :size]


torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(24 * 24, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
failures = []
for step in range(40):
    images, target = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    try:
        images = crop(images, 36)
    except ValueError as error:
        failures.append(str(error))
        images = crop(images, 24)
    loss = nn.functional.cross_entropy(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f} failures {len(failures)}, last: {failures[-1]}")
"""

    specificity = 5

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """The path runs through an exception's traceback."""
        return "exception" in growth.holding.via or _below_is_exception(growth, recording)

    def cause(self, growth: Growth, store: Store | None) -> str:
        """The traceback keeps the frames."""
        return (
            f"{growth.holding.name} keeps exceptions; an exception keeps its traceback, that keeps the frames it went "
            "through, and those keep their local tensors"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Keep the text."""
        return "store the text (`str(error)` or `traceback.format_exc()`), or `error.with_traceback(None)`"


def _below_is_exception(growth: Growth, recording: Recording) -> bool:
    """The container's items are exceptions: their paths run through tracebacks."""
    prefix = (growth.holding.scope, *growth.holding.path)
    for rank in recording.ranks:
        census = rank.last(Census)
        for holding in census.holdings if census is not None else ():
            if (holding.scope, *holding.path)[: len(prefix)] == prefix and "exception" in holding.via:
                return True
    return growth.holding.item_type is not None and growth.holding.item_type.endswith(
        ("Error", "Exception", "Traceback")
    )
