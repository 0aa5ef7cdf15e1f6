"""What marks a program for profilers, which do not exist here: accepted and passed by."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

_open: list[str] = []
"""Nested ranges; the outermost has depth 0."""


def _push(message: str) -> int:
    _open.append(message)
    return len(_open) - 1


def _pop() -> int:
    if _open:
        _open.pop()
    return len(_open) - 1


def _nothing(*args: Any, **kwargs: Any) -> int:
    return 0


_MARKS = ("markA", "rangeStartA", "rangeEnd", "deviceRangeStart", "deviceRangeEnd")
_nvtx = SimpleNamespace(rangePushA=_push, rangePop=_pop, **dict.fromkeys(_MARKS, _nothing))


class _Error(int):
    """What calls of CUDA's runtime give back: 0 for success."""

    success = 0


def _memory(device: int | None = None) -> tuple[int, int]:
    found: tuple[int, int] = torch.cuda.mem_get_info(device)
    return found


_CALLS = ("ProfilerStart", "ProfilerStop", "HostRegister", "HostUnregister", "StreamCreate", "StreamDestroy")
_runtime = SimpleNamespace(
    cudaGetErrorString=lambda code: "no error",
    cudaMemGetInfo=_memory,
    cudaError=_Error,
    **{f"cuda{name}": _nothing for name in _CALLS},
)


def cudart() -> Any:
    """What programs use of CUDA's runtime: the profiler's marks, and free memory."""
    return _runtime


def _without_device(make: Callable[..., None]) -> Callable[..., None]:
    """Kineto cannot record events of a device that is not there; the host's are recorded as ever."""

    def __init__(self: Any, enabled: bool = True, **kwargs: Any) -> None:
        kwargs.pop("use_cuda", None)
        # What the program asked for is passed by without an error: profiles of the host are still useful.
        kwargs |= {"use_device": None, "use_cpu": True}
        make(self, enabled, **kwargs)

    return __init__


class _NoMarks:
    """`with torch.autograd.profiler.emit_nvtx():` without a profiler."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> _NoMarks:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was marked."""


def install() -> None:
    """Let them be called."""
    torch.cuda.nvtx._nvtx = _nvtx  # type: ignore[assignment, attr-defined]
    torch.cuda.cudart = torch.cuda.profiler._cudart = cudart  # type: ignore[attr-defined]
    torch.cuda.profiler.start = torch.cuda.profiler.stop = _nothing
    profile = torch.autograd.profiler.profile
    profile.__init__ = _without_device(profile.__init__)  # type: ignore[method-assign]
    torch.autograd.profiler.emit_nvtx = _NoMarks  # type: ignore[misc, assignment]
