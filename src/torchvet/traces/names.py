"""What the names in a trace stand for: CUDA's, HIP's and MTIA's calls, collectives, copies, torch's own annotations."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Host = Literal["step", "data", "optimizer", "backward", "collector", "compile", "collective", "operator"]
Driver = Literal["launch", "copy", "sync", "allocate", "other"]

DEVICE = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "fill",
    "Memset": "fill", "mtia_ccp_events": "kernel", "hpu_op": "kernel", "CUDA functions": "kernel",
}  # fmt: skip
"""Categories of what runs on a device, of all versions."""
RUNTIME = frozenset((
    "cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "mtia_runtime", "xpu_runtime", "glow_runtime",
    "privateuse1_runtime", "privateuse1_driver",
))  # fmt: skip
"""Categories of calls that the host makes into a device's driver."""
HOST = frozenset(("cpu_op", "Operator", "operator", "user_annotation", "CPU functions"))
_cached = lru_cache(maxsize=1 << 14)
"""A trace has some hundred names and a million events."""

_SYNC = re.compile(r"Synchronize|StreamWaitValue|BarrierWait|^mtia.*[Ss]ync")
_ALLOCATE = re.compile(r"^(cuda|hip|xpu|mtia)\w*?(Malloc|Free|HostAlloc)|^cuMem(Alloc|Create|Release|Map|Unmap|Free)")
_LAUNCH = re.compile(r"Launch|Enqueue|GraphLaunch")
_COPY = re.compile(r"Memcpy|Memset|memcpy")
_COLLECTIVE_KERNEL = re.compile(r"nccl|rccl|AllReduce|AllGather|ReduceScatter|oneccl|hccl", re.IGNORECASE)
_COLLECTIVE = re.compile(r"^(nccl|gloo|ucc|mpi|hccl|xccl|rccl|c10d):")
_BACKWARD = re.compile(r"^autograd::engine::|Backward\d*$|^torch::autograd::|Backward\d*:")
_COMPILE = re.compile(r"\(dynamo_timed\)$|^TorchDynamo Compile|^CompileTime|convert_frame\.py\(\d+\): _compile")


def host_kind(name: str) -> Host:
    """What a span of the host is about, by its name."""
    if name.startswith("ProfilerStep"):
        return "step"
    if name.startswith("enumerate(Data"):
        return "data"
    if name.startswith("Optimizer."):
        return "optimizer"
    if name == "Python GC" or name == "<built-in function collect>":
        return "collector"
    if _COLLECTIVE.match(name):
        return "collective"
    if _BACKWARD.search(name):
        return "backward"
    return "compile" if _COMPILE.search(name) else "operator"


@_cached
def call_kind(name: str) -> Driver:
    """What a call into the driver does."""
    if _SYNC.search(name):
        return "sync"
    if _ALLOCATE.search(name):
        return "allocate"
    if _LAUNCH.search(name):
        return "launch"
    return "copy" if _COPY.search(name) else "other"


@_cached
def is_collective_kernel(name: str) -> bool:
    """Whether a kernel communicates with other ranks."""
    return _COLLECTIVE_KERNEL.search(name) is not None


@_cached
def direction(name: str) -> str:
    """`host-to-device`, `device-to-host`, `device-to-device`, `peer` or empty, from the name of a copy."""
    for mark, meant in (
        ("HtoD", "host-to-device"),
        ("DtoH", "device-to-host"),
        ("DtoD", "device-to-device"),
        ("PtoP", "peer"),
        ("HostToDevice", "host-to-device"),
        ("DeviceToHost", "device-to-host"),
        ("DeviceToDevice", "device-to-device"),
    ):
        if mark in name:
            return meant
    return ""


@_cached
def is_pageable(name: str) -> bool:
    """Whether a copy's host side is memory that is not pinned."""
    return "Pageable" in name
