"""What a GPU's kernels assert where the CPU's say what is wrong: bad indices, bad probabilities.

A real device goes on, and CUDA's error comes with a later call, in another line; then no call works any more. Here it
is raised at the operator, and the device goes on working. `hides` of the error is what it does not say.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import torch

from torchvet.simulate.tensors import SimulatedTensor, wrap

_REFUSALS = re.compile(
    r"index out of range in self|is out of bounds for dimension(?! with size 0)|element is out of DATA bounds|"
    r"Target -?\d+ is out of bounds|tried to access index|which is not in the valid range|target out of range|"
    r"argument #2 'target' is out of range|Class values must be|"
    r"all elements of (input|target) should be between 0 and 1|Expected p_in >= 0 && p_in <= 1|"
    r"encountering probability entry|invalid Poisson rate"
)
"""What the CPU's kernels say where CUDA's assert. `multinomial` without replacement checks on both, and says so."""
_BY_VALUE = re.compile(r"index|gather|scatter|embedding|nll_loss|take|put|margin_loss")
"""Operators whose kernels look up places that a tensor names."""
_TEXT = (
    "CUDA error: device-side assert triggered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)


def raise_as_cuda(name: str, caught: BaseException) -> NoReturn:
    """Raise CUDA's error where its kernel would assert, else the one that the CPU's kernel raised and that is caught.

    What is wrong with shapes, dimensions or plain numbers is seen before any kernel runs.
    """
    # `x[5]` by a plain number is an IndexError on both.
    by_value = not isinstance(caught, IndexError) or _BY_VALUE.search(name) is not None
    if not by_value or _REFUSALS.search(str(caught)) is None:
        raise
    error = torch.AcceleratorError(f"{_TEXT}(simulated: it was {name}: {caught})")
    error.hides = str(caught)  # type: ignore[attr-defined]
    raise error from None


def one_hot(self: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """`one_hot`, which torch composes for backends of Python without looking at the values."""
    assert isinstance(self, SimulatedTensor)
    with torch.no_grad():
        try:
            return wrap(torch.ops.aten.one_hot.default(self.host, num_classes), self.ordinal)
        except RuntimeError as error:
            raise_as_cuda("one_hot", error)


def install(library: Any) -> None:
    """Let these operators be done here."""
    library.impl("one_hot", one_hot, "PrivateUse1")
