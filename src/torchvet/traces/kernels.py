"""What kernels' names tell: the arithmetic of matrix products, and copies that change a layout."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

import msgspec

from torchvet.readers.trace_facts import Cost
from torchvet.traces import names
from torchvet.traces.device import DeviceTime
from torchvet.traces.phases import Painted, phase_at
from torchvet.traces.places import Places
from torchvet.traces.timeline import Item, Thread, Timeline

_PRODUCT = re.compile(
    r"gemm|Gemm|GEMM|conv(?!ert)|Conv|cutlass|wgrad|dgrad|winograd|nvjet|Cijk|xmma|cudnn.*engine|flash|fmha"
)
_ARITHMETIC = (
    ("fp8 tensor cores", re.compile(r"e4m3|e5m2|fp8|_qmma")),
    ("bf16 tensor cores", re.compile(r"bf16|bfloat16|nvjet_tst|Cijk\w*_B(BS|SS|B)_")),
    ("fp16 tensor cores", re.compile(r"h884|h1688|fp16|f16f16|s884gemm|_hmma|nvjet_hs|half|Half|Cijk\w*_H(HS|SS|B)_")),
    ("tf32 tensor cores", re.compile(r"tf32|s1688gemm|s1688|s16816gemm_f32|tensorop_s")),
    ("fp64", re.compile(r"dgemm|d884|f64f64|\bdouble\b")),
    ("fp32 without tensor cores", re.compile(r"sgemm|scudnn|simt|ffma|\bfloat\b|f32f32|winograd|Cijk\w*_SB")),
)  # fmt: skip
"""Kernels of cuBLAS, cuDNN, CUTLASS, FlashAttention and Tensile by what they multiply in; the first that fits."""
_CONVERSION = re.compile(
    r"nchwToNhwc|nhwcToNchw|NchwToNhwc|NhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose|transposeNd"
)
_HALF = re.compile(rb"half|bfloat16", re.IGNORECASE)
ALIGNED = 8
"""Elements that half-precision sizes should be a multiple of (16 bytes)."""


def precision(time: DeviceTime) -> dict[str, float]:
    """Shares of the time in matrix products and convolutions, by arithmetic."""
    spent: dict[str, float] = {}
    for work in time.work:
        if work.kind == "kernel":
            kind = _arithmetic(work.name)
            if kind:
                spent[kind] = spent.get(kind, 0.0) + work.end - work.start
    whole = sum(spent.values())
    return {k: v / whole for k, v in sorted(spent.items(), key=lambda s: -s[1])} if whole else {}


@lru_cache(maxsize=1 << 14)
def _arithmetic(name: str) -> str:
    if not _PRODUCT.search(name) or names.is_collective_kernel(name) or _CONVERSION.search(name):
        return ""
    return next((kind for kind, pattern in _ARITHMETIC if pattern.search(name)), "unknown")


def conversions(timeline: Timeline, time: DeviceTime, painted: Painted, places: Places) -> list[Cost]:
    """Device time of kernels that change a layout: a library's own, and those that `aten::contiguous` launched."""
    within = _Within(timeline, "aten::contiguous")
    found: dict[str, Cost] = {}
    if not within.any and not any(map(_converts, {w.name for w in time.work})):
        return []
    for work in time.work:
        if work.kind == "fill" or names.is_collective_kernel(work.name):
            continue
        call = time.launches.get(work.correlation)
        if work.kind == "kernel" and _converts(work.name):
            what = "NCHW to NHWC and back, within convolutions"
        elif call is not None and within.holds(call.start, call.thread):
            what = "aten::contiguous"
        else:
            continue
        cost = found.setdefault(what, Cost(what))
        cost.seconds += (work.end - work.start) / time.steps / 1e6
        cost.count += 1 / time.steps
        cost.bytes += work.bytes / time.steps
        if not cost.where and call is not None:
            cost.where = places.at(call.start, call.thread)
            cost.phase = phase_at(painted, call.start)
    for cost in found.values():
        cost.duration = cost.seconds
    return sorted(found.values(), key=lambda c: -c.seconds)


@lru_cache(maxsize=1 << 14)
def _converts(name: str) -> bool:
    return _CONVERSION.search(name) is not None


class _Within:
    """Whether a time lies within an operator of one name, by thread."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self._items: dict[Thread, list[Item]] = {}
        for item in timeline.operators:
            if item.name == name:
                self._items.setdefault(item.thread, []).append(item)
        for items in self._items.values():
            items.sort()

    @property
    def any(self) -> bool:
        """Whether there is such an operator at all."""
        return bool(self._items)

    def holds(self, time: float, thread: Thread) -> bool:
        items = self._items.get(thread)
        if not items:
            return False
        index = bisect_right(items, (time, float("inf"))) - 1
        return index >= 0 and items[index].end >= time


def misaligned(timeline: Timeline, time: DeviceTime) -> list[Cost]:
    """Matrix products in half precision whose sizes keep tensor cores from working at their full rate."""
    # By external id: one product may launch several kernels.
    spent: dict[object, float] = {}
    for work in time.work if timeline.shapes else ():
        call = time.launches.get(work.correlation)
        if call is not None and call.external in timeline.shapes and _arithmetic(work.name):
            spent[call.external] = spent.get(call.external, 0.0) + work.end - work.start
    found: dict[str, Cost] = {}
    for external, duration in spent.items():
        sizes = _odd_sizes(*timeline.shapes[external])
        if sizes:
            cost = found.setdefault(sizes, Cost(sizes))
            cost.duration += duration / time.steps / 1e6
            cost.count += 1 / time.steps
    return sorted(found.values(), key=lambda c: -c.duration)[:20]


def _odd_sizes(shapes: bytes, types: bytes) -> str:
    """The sizes of a product's operands as text where one of them is no multiple of 8; empty where none is."""
    if not _HALF.search(types):
        return ""
    try:
        given = [s for s in msgspec.json.decode(shapes) if isinstance(s, list) and len(s) >= 2]
    except (msgspec.DecodeError, RecursionError):
        return ""
    odd = [s for s in given if any(type(n) is int and n % ALIGNED for n in s[-2:])]
    return " x ".join(str(tuple(s)) for s in given[-2:]) if odd else ""
