"""Asks torch in sampled steps which implementation of attention it takes, and times the fused one after the run where
one change of the operands would have let torch take that."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import Host, Place, Unchecked, around, frames
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import Aside
from torchvet.probes.internals.graph_teardown import all_below
from torchvet.probes.internals.patching import replace
from torchvet.probes.time import attention_times
from torchvet.probes.time.attention_changes import MATH, OPERANDS, Form, Reason, Shape, is_causal, reason, switches
from torchvet.probes.time.real_time import ENDED, SampledTimer
from torchvet.recording.records.timing import AttentionFallback

_NAME = "scaled_dot_product_attention"
_WHAT = "which implementation attention takes"
_MOST = 512
"""Forms of calls that are kept apart: lengths differ from batch to batch."""
_SITES = 4
"""Lines whose implementations are timed."""
_NODES = 2000
"""Of the graph below a mask that are looked at for what an optimizer updates."""


class _Key(NamedTuple):
    """What one finding is about."""

    place: Place
    inner: Place | None
    reason: Reason
    backward: bool
    device: torch.device


@dataclass
class Site:
    """Calls that take the math implementation for one reason: how many of each shape."""

    made: Place | None
    calls: Counter[Shape] = field(default_factory=Counter)

    @property
    def work(self) -> int:
        """Of all calls."""
        return sum(shape.work * number for shape, number in self.calls.items())

    @property
    def usual(self) -> Shape:
        """The shape whose work is closest to the average."""
        average = self.work / sum(self.calls.values())
        return min(self.calls, key=lambda shape: abs(shape.work - average))


class FusedAttention(SampledTimer):
    """Attention that takes the math implementation, where one change would let it take a fused one."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._reasons: dict[Shape, Reason | None] = {}
        self._sites: dict[_Key, Site] = {}
        self._imported = 0
        self._holders: list[str] = []
        """Modules that have the function, imported by its name, and how many there were to look at."""
        self._unseen = 0
        """Calls whose reason was not asked for."""

    def install(self) -> None:
        """Hear the calls of sampled steps. In others torch is as it was."""
        if not isinstance(private.fused_sdp_choice, private.Lacking):
            self.host.ledger.asides.append(Aside(self._tap))

    def _tap(self, undo: ExitStack) -> None:
        original = getattr(torch.nn.functional, _NAME)
        ours = around(original, self._called)
        # Compiled regions have it put in anew each time: what there is to go through is all imported modules.
        if len(sys.modules) != self._imported:
            self._imported = len(sys.modules)
            self._holders = [name for name, module in list(sys.modules.items()) if _holds(name, module, original)]
        for name in self._holders:
            module = sys.modules.get(name)
            if _holds(name, module, original):
                replace(undo, module, _NAME, ours)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        host = self.host
        if host.active and host.sampling and any(mode is host.ledger for mode in private.dispatch_modes()):
            with host.looking(_WHAT):
                self._look(*args, **kwargs)

    def _look(self, query: Any, key: Any, value: Any, attn_mask: Any = None, *more: Any, **named: Any) -> None:
        """A call in a sampled step, on its thread, with its arguments as torch names them."""
        mask, given = attn_mask, [query, key, value] + ([] if attn_mask is None else [attn_mask])
        if not all(map(_is_plain, given)) or private.graph_task() != -1 or private.functorch_level() is not None:
            return
        shape = _shape(query, key, value, mask, _options(*more, **named))
        if shape not in self._reasons and len(self._reasons) >= _MOST:
            self._unseen += 1
            return
        if shape not in self._reasons:
            self._reasons[shape] = self._reason(shape, mask)
        why = self._reasons[shape]
        user, inner = frames.outside_torch(3)
        place = user or inner
        if why is not None and place is not None:
            site = _Key(place, inner if user is not None else None, why, shape.backward, query.device)
            if site not in self._sites:
                about = dict(zip((*OPERANDS, "attn_mask"), given, strict=False)).get(next(iter(why.operands), ""))
                self._sites[site] = Site(None if about is None else self.host.made_at(about))
            self._sites[site].calls[shape] += 1

    def _reason(self, shape: Shape, mask: torch.Tensor | None) -> Reason | None:
        """Ask torch, with its own work unseen by the program's modes for functions."""
        with private.DisableTorchFunction():
            call = shape.call(Form.bare)
            if call.choice() != MATH:
                return None
            return reason(call, lambda: mask is not None and is_causal(mask), lambda: self._learned(mask))

    def _learned(self, mask: torch.Tensor | None) -> bool:
        """Whether something that an optimizer updates is in a mask, or may be."""
        if mask is None:
            return False
        owned = self.host.known.owned()
        if mask.grad_fn is None:
            return id(mask) in owned
        nodes = list(all_below([mask.grad_fn], _NODES))
        leaves = [getattr(node, "variable", None) for node in nodes]
        return len(nodes) >= _NODES or any(id(leaf) in owned for leaf in leaves if leaf is not None)

    def restarted(self) -> None:
        """Steps are counted anew."""
        super().restarted()
        self._sites.clear()

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time both implementations, those first that have the most to do."""
        sampled = self.sampled
        if not self._sites or sampled <= 0:
            return
        lines = f"{len(self._sites)} line{'s' * (len(self._sites) > 1)} took the math implementation"
        if how not in ENDED:
            self.host.write(
                Unchecked(check=attention_times.CHECK, reason=f"{lines}, and the program did not come to its end")
            )
            return
        if len(self._sites) > _SITES:
            self.host.write(
                Unchecked(check=attention_times.CHECK, reason=f"{lines}, and those beyond {_SITES} were not timed")
            )
        for key, site in sorted(self._sites.items(), key=lambda one: -one[1].work)[:_SITES]:
            usual = site.usual
            scale = site.work / usual.work / sampled
            taken = attention_times.timed(usual, key.reason.change, scale)
            if isinstance(taken, Unchecked):
                self.host.write(taken)
            elif taken is not None:
                self.host.write(_record(key, site, sampled, taken[0] * scale, taken[1] * scale))

    def unchecked(self) -> list[Unchecked]:
        """Calls beyond the number of shapes that are kept apart."""
        if not self._unseen:
            return []
        return [Unchecked(check=_WHAT, reason=f"{self._unseen} sampled calls had further shapes than {_MOST}")]


def _holds(name: str, module: Any, original: Any) -> bool:
    """Whether a module has the function by its name; of torch's own only the one that programs call it through."""
    calls = name == torch.nn.functional.__name__ or name.partition(".")[0] != "torch"
    return calls and getattr(module, "__dict__", {}).get(_NAME) is original


def _is_plain(one: Any) -> bool:
    """Whether a tensor is nobody's subclass, and has values that lie in memory of the host or of a GPU."""
    plain = type(one) in (torch.Tensor, torch.nn.Parameter) and one.layout is torch.strided and not one.is_nested
    return plain and one.device.type in ("cpu", "cuda") and one.numel() > 0 and one.dim() >= 2


def _options(
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False
) -> tuple[float, bool, float | None, bool]:
    """The other arguments of a call, in the order of `Call`'s fields."""
    return dropout_p, is_causal, scale, enable_gqa


def _shape(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, options: Any
) -> Shape:
    """What torch chooses by; under autocast it sees copies in half precision, which keep the strides."""
    kind, grad = query.device.type, torch.is_grad_enabled()
    half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    def form(one: torch.Tensor) -> Form:
        cast = half is not None and one.is_floating_point() and one.dtype is not torch.float64
        known = Form.of(one, half if cast else None)
        return known._replace(requires_grad=known.requires_grad and grad)

    about = form(query), form(key), form(value), None if mask is None else form(mask)
    backward = any(one is not None and one.requires_grad for one in about)
    return Shape(*about, options, backward, switches())


def _record(key: _Key, site: Site, sampled: int, math: float, changed: float) -> AttentionFallback:
    usual, why = site.usual, key.reason
    told = {**dict(zip(OPERANDS, usual[:3], strict=True)), "attn_mask": usual.mask}
    about = [(name, form) for name in why.operands or OPERANDS if (form := told[name]) is not None]
    return AttentionFallback(
        place=key.place,
        change=why.change,
        fused=why.fused,
        math=math,
        changed=changed,
        calls=sum(site.calls.values()),
        sampled=sampled,
        backward=key.backward,
        operands=[name for name, _ in about],
        shapes=[form.shape for _, form in about],
        strides=[form.stride for _, form in about],
        dtype=str(usual.query.dtype).removeprefix("torch."),
        device=str(key.device),
        inner=key.inner,
        made=site.made,
    )
