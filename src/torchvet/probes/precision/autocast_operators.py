"""Looks at operators of sampled steps: what runs in half precision where float32 was meant, and what is not cast."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from torchvet.probes.base.kit import Place, Record, bare_name, frames, names, user_lines
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS
from torchvet.probes.precision.autocast_regions import HALVES, Region, Regions
from torchvet.recording.records.autocast import HalfOperator, ProductsOutside, RoundedProbabilities

PRODUCTS = names(
    "mm addmm bmm baddbmm addbmm mv addmv convolution linear dot mkldnn_rnn_layer _transformer_encoder_layer_fwd "
    "_native_multi_head_attention _cudnn_rnn _thnn_fused_lstm_cell"
)
LOSSES = names(
    "_log_softmax nll_loss_forward nll_loss2d_forward mse_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits soft_margin_loss multi_margin_loss multilabel_margin_loss_forward _ctc_loss"
)
"""Operators of losses: torch's lists for CUDA (and for the CPU) run them in float32."""
SENSITIVE = LOSSES | names(
    "_softmax exp expm1 log log1p log2 log10 logsumexp sum prod cumsum cumprod pow norm linalg_vector_norm mean var "
    "std var_mean reciprocal rsqrt softplus cosh sinh tan acos asin erfinv dist _cdist_forward _euclidean_dist "
    "_pdist_forward native_layer_norm native_group_norm"
)
"""Those that CUDA's autocast runs in float32 (torch 2.13), and means and variances."""
_CALLERS = 4
# Each runs the operator again.
_MEASURED = 3
"""How often one operator on one line is run again in float32."""
_PRODUCT, _SENSITIVE, _LOSS, _BCE, _COPY, _NOTHING = range(6)


class Again:
    """Torchvet's own arithmetic: no autocast, no gradients."""

    def __enter__(self) -> None:
        # Not `autocast(enabled=False)`, whose `__enter__` is tapped.
        self._off = private.DisableAutocast()
        self._off.__enter__()
        self._grad = torch.no_grad()
        self._grad.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._grad.__exit__(*error)
        self._off.__exit__(*error)


class OperatorProbe:
    """One for the session; hears the operators of forward passes."""

    def __init__(self, regions: Regions, ledger: Ledger, step: Callable[[], int]) -> None:
        self._regions = regions
        self._ledger = ledger
        self._step = step
        self._outside: dict[tuple[str, torch.dtype], ProductsOutside] = {}
        self._last: dict[tuple[str, torch.dtype], int] = {}
        """The last step in which such a product ran outside of regions."""
        self._kinds: dict[Any, int] = {}
        self._halves: dict[tuple[Place, str, str, str], HalfOperator] = {}
        self._rounded: dict[tuple[Place, str], RoundedProbabilities] = {}

    def wants(self, func: Any) -> bool:
        """Whether an operator is one to look at."""
        return self._kind(func) != _NOTHING

    def forward(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator ran in a forward pass."""
        kind = self._kind(func)
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if first is None:
            return
        stack = self._regions.stack()
        if kind == _COPY:
            # The program casts by itself in a region without autocast: half is then what it wants there.
            if stack and not stack[-1].wanted and out.dtype in HALVES and first.dtype not in HALVES:
                stack[-1].by_hand = True
            elif out.dtype in HALVES and self._regions.active(out.device.type) is not None:
                _has_cast(stack)
            return
        if kind == _PRODUCT:
            self._product(stack, first)
        active = self._regions.active(first.device.type)
        # Autocast casts operands itself: nothing runs in half by accident.
        if active is not None:
            if kind == _BCE:
                self._bce(first, active)
            return
        self._without(func, kind, stack, args, kwargs, out)

    def records(self) -> Iterable[Record]:
        """The running totals."""
        # What is compiled is not heard, and may be all that is cast.
        outside = [] if REGIONS.ran else self._outside.values()
        return [*self._halves.values(), *self._rounded.values(), *outside]

    def _kind(self, func: Any) -> int:
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _kind_of(bare_name(func))
        return kind

    def _product(self, stack: list[Region], given: torch.Tensor) -> None:
        device = given.device.type
        if self._regions.active(device) is not None:
            for region in stack:
                # Every region around it: each has had an operator to cast.
                region.site.inside += region.device == device
                region.site.double += region.device == device and given.dtype is torch.float64
            if given.dtype in HALVES:
                _has_cast(stack)
        # A region for CUDA around work on the CPU, or the other way round.
        elif stack and stack[-1].wanted and stack[-1].device != device:
            stack[-1].site.elsewhere += 1
            stack[-1].site.other = device
        elif not stack and torch.is_grad_enabled():
            self._ran_outside(device, given.dtype)

    def _ran_outside(self, device: str, dtype: torch.dtype) -> None:
        key, step = (device, dtype), self._step()
        seen = self._outside.get(key)
        if seen is None:
            place = next(iter(_places()), None)
            seen = self._outside[key] = ProductsOutside(device=device, dtype=str(dtype)[6:], place=place)
        seen.calls += 1
        seen.steps += self._last.get(key) != step
        self._last[key] = step

    def _without(self, func: Any, kind: int, stack: list[Region], args: Any, kwargs: Any, out: Any) -> None:
        """An operator ran with autocast off: in half precision, where a region made its operands?"""
        halves = [a for a in args if isinstance(a, torch.Tensor) and a.dtype in HALVES]
        result = out[0] if isinstance(out, (tuple, list)) else out
        # A model whose weights are half is in half on purpose.
        if not halves or getattr(result, "dtype", None) not in HALVES or any(_is_parameter(a) for a in halves):
            return
        loss, region = kind in (_LOSS, _BCE), stack[-1] if stack else None
        places = _places() if self._is_left_half(halves, region, loss) else []
        if not places:
            return
        situation: Literal["outside", "disabled"] = "outside" if region is None else "disabled"
        operator, dtype = bare_name(func).lstrip("_"), HALVES[result.dtype]
        new = HalfOperator(place=places[0], situation=situation, operator=operator, dtype=dtype, calls=0, loss=loss)
        new.region = region.site.place if region is not None else None
        use = self._halves.setdefault((places[0], situation, operator, dtype), new)
        use.callers = places[1:]
        use.calls += 1
        if use.calls <= _MEASURED:
            use.error = max(use.error, _difference(func, args, kwargs, result))

    def _is_left_half(self, halves: list[torch.Tensor], region: Region | None, loss: bool) -> bool:
        """Whether operands may be in half precision because a region made them, rather than by the program's wish."""
        if region is None:
            # Outside of regions only losses: other arithmetic on half outputs is usual (an argmax, a
            # plot).
            return loss and torch.is_grad_enabled() and bool(self._regions.dtypes)
        # What a region without autocast has converted itself is meant to be so.
        return not region.wanted and not (region.by_hand and not any(self._is_older(a, region) for a in halves))

    def _is_older(self, tensor: torch.Tensor, region: Region) -> bool:
        """Whether a tensor was there before a region began, as far as is known."""
        birth = self._ledger.live.get(tensor.untyped_storage()._cdata)
        # What the ledger has not seen made is older.
        return birth is None or birth.event < region.since

    def _bce(self, given: torch.Tensor, region: Region) -> None:
        places = _places()
        if not places:
            return
        place, dtype = places[0], HALVES.get(region.dtype, "?")
        new = RoundedProbabilities(place=place, region=region.site.place, dtype=dtype, calls=0)
        use = self._rounded.setdefault((place, dtype), new)
        use.calls += 1
        with Again():
            use.elements += given.numel()
            use.saturated += int(((given == 0) | (given == 1)).sum())
            # Values that survive the round trip unchanged were in half before.
            use.rounded = use.rounded and bool(torch.equal(given.to(region.dtype).to(given.dtype), given))


def _has_cast(stack: list[Region]) -> None:
    for region in stack:
        region.site.casts += 1


def _kind_of(name: str) -> int:
    if name == "binary_cross_entropy":
        return _BCE
    if name == "_to_copy":
        return _COPY
    if name in LOSSES:
        return _LOSS
    return _PRODUCT if name in PRODUCTS else _SENSITIVE if name in SENSITIVE else _NOTHING


def _places() -> list[Place]:
    """The user's line that is running and those that called it, the nearest first; an installed package's line where
    there are none."""
    # Past this file's own frames.
    found = user_lines(sys._getframe(3), _CALLERS)
    inner = frames.user_place() if not found else None
    return found or ([inner] if inner is not None else [])


def _is_parameter(tensor: torch.Tensor) -> bool:
    base = tensor._base if tensor._base is not None else tensor
    return base.is_leaf and base.requires_grad


def in_float32(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator's result on the same operands in float32, or None where it does not run so."""
    wide = [a.float() if isinstance(a, torch.Tensor) and a.dtype in HALVES else a for a in args]
    # `dtype=` arguments would cast back.
    given = {k: (torch.float32 if v in HALVES else v) if isinstance(v, torch.dtype) else v for k, v in kwargs.items()}
    try:
        out = func(*wide, **given)
    except Exception:  # an operator of which float32 is not the only thing that changes
        return None
    return out[0] if isinstance(out, (tuple, list)) else out


def _difference(func: Any, args: Any, kwargs: Any, result: torch.Tensor) -> float:
    with Again():
        exact = in_float32(func, args, kwargs)
        if not isinstance(exact, torch.Tensor) or exact.shape != result.shape or not exact.numel():
            return 0.0
        largest = exact.abs().max()
        difference = ((result.float() - exact).abs().max() / largest).item()
    # NaN where both are infinite: no difference can be told.
    return difference if difference == difference else 0.0
