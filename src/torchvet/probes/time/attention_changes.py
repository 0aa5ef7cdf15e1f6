"""What keeps a call of `scaled_dot_product_attention` from a fused implementation: torch is asked again, with one thing
changed at a time, on tensors that have the same metadata."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from torchvet.probes.internals import private
from torchvet.recording.records.timing import Change

_functions: Any = torch
_switches: Any = torch.backends.cuda
MATH = 0
FUSED = {1: "flash", 2: "memory-efficient", 3: "cuDNN"}
"""`torch.nn.attention.SDPBackend`, which a program need not have imported."""
_SWITCHES = ("flash", "mem_efficient", "cudnn")
OPERANDS = ("query", "key", "value")


class Form(NamedTuple):
    """All of a tensor that torch chooses by."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> Form:
        """A tensor's, as it is or as autocast hands it on."""
        return cls(
            tuple(tensor.shape), tuple(tensor.stride()), dtype or tensor.dtype, tensor.device, tensor.requires_grad
        )

    def bare(self) -> torch.Tensor:
        """A tensor of this form, whose memory nobody has written."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.requires_grad_(self.requires_grad)

    def filled(self) -> torch.Tensor:
        """A tensor of this form, all elements alike: none is drawn by chance."""
        reach = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))
        value = self.dtype is torch.bool or 0.5
        memory = torch.full((reach,), value, dtype=self.dtype, device=self.device)
        return memory.as_strided(self.shape, self.stride).requires_grad_(self.requires_grad)


class Call(NamedTuple):
    """What `scaled_dot_product_attention` is called with."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    gqa: bool

    def choice(self) -> int:
        """The implementation that torch takes, by the switches that are in force."""
        return int(private.fused_sdp_choice(*self[:6], scale=self.scale, enable_gqa=self.gqa))

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value."""
        return self[:3]

    def with_tensors(self, change: Callable[[torch.Tensor], torch.Tensor], mask: bool = False) -> Call:
        """The call with each of its operands changed."""
        query, key, value = map(change, self.tensors())
        changed = change(self.mask) if mask and self.mask is not None else self.mask
        return self._replace(query=query, key=key, value=value, mask=changed)


class Shape(NamedTuple):
    """All of a call that torch chooses by, and the switches in force; `backward` says that a graph is made."""

    query: Form
    key: Form
    value: Form
    mask: Form | None
    options: tuple[float, bool, float | None, bool]
    backward: bool
    switches: tuple[bool, ...] = ()

    @property
    def work(self) -> int:
        """Elements of the scores."""
        return math.prod(self.query.shape[:-1]) * self.key.shape[-2]

    def call(self, make: Callable[[Form], torch.Tensor]) -> Call:
        """A call of this shape on tensors that `make` makes."""
        query, key, value = map(make, self[:3])
        return Call(query, key, value, None if self.mask is None else make(self.mask), *self.options)


class Reason(NamedTuple):
    """The change that makes a fused implementation possible, the operands that it is about, and the implementation."""

    change: Change
    operands: tuple[str, ...]
    fused: str


def reason(call: Call, causal: Callable[[], bool], learned: Callable[[], bool]) -> Reason | None:
    """The first change with which torch would choose a fused implementation.

    `causal` says whether the mask is that of a causal model, `learned` whether something that an optimizer updates is
    in it; both are asked only where it matters.
    """
    # A mask that learns may say the same today only.
    asked: dict[str, Callable[[], bool]] = {
        "causal": lambda: causal() and not learned(),
        "mask-gradient": lambda: not learned(),
    }
    for name, change in CHANGES.items():
        changed = change(call)
        fused = FUSED.get(changed.choice()) if changed is not None else None
        if fused is not None and (name not in asked or asked[name]()):
            return Reason(name, tuple(_about(name, call)), fused)
    return None


def switches() -> tuple[bool, ...]:
    """Whether the program lets torch take each of the fused implementations; they hold for the CPU as well."""
    return tuple(bool(getattr(_switches, f"{name}_sdp_enabled")()) for name in _SWITCHES)


def set_switches(on: tuple[bool, ...]) -> None:
    """Set them."""
    for name, value in zip(_SWITCHES, on, strict=True):
        getattr(_switches, f"enable_{name}_sdp")(value)


def is_causal(mask: torch.Tensor) -> bool:
    """Whether a mask leaves each query what is up to its own position, and adds nothing to that."""
    seen = mask if mask.dtype is torch.bool else mask == 0
    left_out = ~mask if mask.dtype is torch.bool else mask == -math.inf
    lower = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
    return bool((torch.where(lower, seen, left_out)).all())


def _about(change: Change, call: Call) -> Iterator[str]:
    """The operands that a change is about."""
    if change == "strides":
        yield from (name for name in OPERANDS if getattr(call, name).stride(-1) != 1)
    elif change in ("mask-shape", "causal", "mask-gradient"):
        yield "attn_mask"
    elif change in ("widths", "groups", "broadcast", "rank"):
        yield from OPERANDS


def _dense(call: Call) -> Call | None:
    odd = any(one.stride(-1) != 1 for one in call.tensors())
    return call.with_tensors(lambda one: one if one.stride(-1) == 1 else one.contiguous()) if odd else None


def _of_rank_four(call: Call) -> Call | None:
    rank = call.query.dim()
    if rank not in (2, 3) or any(one.dim() != rank for one in call.tensors()):
        return None
    where = (None,) * (4 - rank)
    changed = call.with_tensors(lambda one: one[where])
    full = call.mask is not None and call.mask.dim() == rank > 2
    return changed._replace(mask=changed.mask[where]) if full and changed.mask is not None else changed


def _broadcast(call: Call) -> Call | None:
    outer = [one.shape[:-2] for one in call.tensors()]
    if call.gqa or len(set(outer)) == 1:
        return None
    shape = _functions.broadcast_shapes(*outer)
    return call.with_tensors(lambda one: one.expand(*shape, *one.shape[-2:]))


def _mask_of_scores(call: Call) -> Call | None:
    if call.mask is None or call.mask.dim() >= call.query.dim():
        return None
    return call._replace(mask=call.mask.expand(*call.query.shape[:-1], call.key.shape[-2]))


def _without_mask(call: Call) -> Call | None:
    return call._replace(mask=None, causal=True) if call.mask is not None and call.mask.dim() >= 2 else None


def _equally_wide(call: Call) -> Call | None:
    width, wide = call.query.shape[-1], max(one.shape[-1] for one in call.tensors())
    if call.value.shape[-1] == width:
        return None

    def padded(one: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(one, (0, wide - one.shape[-1])) if one.shape[-1] < wide else one

    return call.with_tensors(padded)._replace(scale=call.scale or 1 / math.sqrt(width))


def _repeated(call: Call) -> Call | None:
    if not call.gqa or call.query.dim() < 3:
        return None
    heads = call.query.shape[-3]
    key, value = (one.repeat_interleave(heads // one.shape[-3], -3) for one in (call.key, call.value))
    return call._replace(key=key, value=value, gqa=False)


def _mask_detached(call: Call) -> Call | None:
    return call._replace(mask=call.mask.detach()) if call.mask is not None and call.mask.requires_grad else None


def _kept(call: Call) -> Call | None:
    return call._replace(dropout=0.0) if call.dropout else None


CHANGES: dict[Change, Callable[[Call], Call | None]] = {
    "strides": _dense,
    "rank": _of_rank_four,
    "broadcast": _broadcast,
    "mask-shape": _mask_of_scores,
    "causal": _without_mask,
    "widths": _equally_wide,
    "groups": _repeated,
    "mask-gradient": _mask_detached,
    "dropout": _kept,
}
"""In the order in which they are tried: what leaves the result as it is comes first."""
