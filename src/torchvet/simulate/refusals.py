"""Features that cannot be simulated: the error that says so, and the list for the report."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from torchvet.simulate.devices import BACKEND

_NAMES = (
    (re.compile(rf"\b{BACKEND}(\w+)Type\b"), r"torch.cuda.\1Tensor"),
    (re.compile(rf"(?<=[A-Za-z])(?:{BACKEND}|PrivateUse1)\b|\bPrivateUse1\b"), "CUDA"),
    (re.compile(rf"{BACKEND}(?!'s simulated GPU)"), "cuda"),
)
_KERNELS = (
    (re.compile(r"(?<=from the ')(\w*)CPU(?=' backend)"), r"\1CUDA"),
    (re.compile(r'"(\w+?)(?:_vml)?_cpu"'), r'"\1_cuda"'),
)
asked: dict[str, str] = {}
"""What the program has asked for that is not simulated, and what came of it."""


def as_cuda(text: str, by_kernel: bool = False) -> str:
    """torch's words with the device's names in place of the backend's, and those of the CPU's kernel that refused."""
    for pattern, name in (*_NAMES, *(_KERNELS if by_kernel else ())):
        text = pattern.sub(name, text)
    return text


def refusal(what: str, why: str) -> RuntimeError:
    """The error for a feature that is not there."""
    asked.setdefault(what, why)
    return RuntimeError(f"{what}: not simulated. {why} (torchvet's simulated GPU; run this on a real one)")


def refusing(what: str, why: str) -> Callable[..., Any]:
    """A function that is never carried out."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise refusal(what, why)

    return refuse
