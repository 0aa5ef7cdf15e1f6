"""Scaled dot product attention by one fused kernel wherever CUDA has one: the matrix of weights is not held there.

Its numbers are the CPU's: by the CPU's own fused kernel, or composed (with dropout, say) from the CPU's operators,
whose graph then lies behind the kernel's random state.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch

from torchvet.simulate.api import generators
from torchvet.simulate.cuda import cards
from torchvet.simulate.operations import attention_rules
from torchvet.simulate.operations.operators import SPECIAL, on_host, without_arithmetic
from torchvet.simulate.tensors import SimulatedTensor, numbers_of, wrap

_aten = torch.ops.aten
_FLASH = 1
"""Of torch's `SDPBackend`."""
_CASTING = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
_AS_A_PROGRAM = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())
"""What is dispatched to outside of operators, so autograd too."""


class _Composed(NamedTuple):
    """A fused call that the CPU has composed: what it was given and gave, and the storage of its random state."""

    given: list[torch.Tensor | None]
    out: torch.Tensor
    state: weakref.ref[Any]


_composed: dict[int, _Composed] = {}
"""By the storage of the call's random state, with which each of them goes."""


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`scaled_dot_product_attention`: fused where CUDA would, else composed."""
    bias = attn_mask
    if bias is not None and bias.dtype is torch.bool:
        bias = torch.zeros_like(bias, dtype=query.dtype).masked_fill_(bias.logical_not(), float("-inf"))
    with torch._C._ExcludeDispatchKeyGuard(_CASTING):
        if _kernel(query, key, value, bias, dropout_p, is_causal, enable_gqa) is not None:
            return _aten._scaled_dot_product_fused_attention_overrideable.default(  # type: ignore[no-any-return]
                query, key, value, bias, dropout_p, is_causal, scale=scale
            )[0]
        return _aten._scaled_dot_product_attention_math.default(  # type: ignore[no-any-return]
            query, key, value, bias, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]


def _kernel(*args: Any) -> attention_rules.Kernel | None:
    *given, dropout, causal, grouped = args
    query, key, value, bias = given
    if not all(isinstance(t, SimulatedTensor) for t in given if t is not None):
        return None
    asked = attention_rules.Asked(
        query, key, value, bias is not None, dropout > 0, causal, grouped, cards.get_device_capability()
    )
    with torch._C.DisableTorchFunction():
        return attention_rules.kernel_of(asked)


def forward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """`(query, key, value, bias, dropout, is_causal, ...)`, each `(batch, heads, length, width)`."""
    index = args[0].ordinal
    query, key, value, *rest = (numbers_of(a) for a in args)
    bias, dropout, causal = (*rest, *(None, 0.0, False)[len(rest) :])[:3]
    nothing = [wrap(torch.empty(0, dtype=torch.int64), index) for _ in range(3)]
    seed, offset = (wrap(torch.empty(1, dtype=torch.int64), index) for _ in range(2))
    scale = kwargs.get("scale")
    learned = bias is not None and args[3].requires_grad
    if without_arithmetic() or (not learned and _fused_on_host(query, key, value, bias, dropout, causal, scale)):
        out, sums = on_host(
            _aten._scaled_dot_product_flash_attention_for_cpu.default,
            [query, key, value, 0.0, causal],
            {"attn_mask": bias, "scale": scale},
        )
    else:
        with generators.drawing(index):
            out = _compose([query, key, value, bias], dropout, causal, scale, seed)
        sums = torch.empty(query.shape[:3], dtype=torch.float32)
    lengths = (query.size(-2), key.size(-2))
    kernel = _kernel(*args[:3], None if bias is None else args[3], dropout, causal, query.size(1) != key.size(1))
    if kernel == "efficient":
        sums = _in_blocks(sums)
    out = _laid_out(out, query, kernel)
    return wrap(out, index), wrap(sums, index), *nothing[:2], *lengths, seed, offset, nothing[2]


def _in_blocks(sums: torch.Tensor) -> torch.Tensor:
    """With room for whole blocks of 32 queries, as this kernel has it."""
    batch, heads, length = sums.shape
    room = on_host(_aten.new_empty.default, [sums, (batch, -(-length // 32) * 32, heads)], {}).transpose(1, 2)
    on_host(_aten.copy_.default, [room[..., :length], sums], {})
    return room  # type: ignore[no-any-return]


def _fused_on_host(query: Any, key: Any, value: Any, bias: Any, dropout: float, causal: bool, scale: Any) -> bool:
    grouped = query.size(1) != key.size(1)
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        choice = torch._fused_sdp_choice(query, key, value, bias, dropout, causal, scale=scale, enable_gqa=grouped)
    return choice == _FLASH


def _compose(given: list[Any], dropout: float, causal: bool, scale: Any, seed: SimulatedTensor) -> torch.Tensor:
    query, key = given[0], given[1]
    guard = torch._C._ForceDispatchKeyGuard(*_AS_A_PROGRAM)
    with guard, torch._C._DisableTorchDispatch(), torch.enable_grad():
        leaves = [None if t is None else t.detach().requires_grad_() for t in given]
        out = _aten._scaled_dot_product_attention_math.default(
            *leaves, dropout, causal, scale=scale, enable_gqa=query.size(1) != key.size(1)
        )[0]
    storage = seed.host.untyped_storage()
    number = storage._cdata
    _composed[number] = _Composed(leaves, out, weakref.ref(storage, lambda _: _composed.pop(number, None)))
    return out.detach()  # type: ignore[no-any-return]


def _laid_out(made: torch.Tensor, like: torch.Tensor, kernel: attention_rules.Kernel | None) -> torch.Tensor:
    """As the kernel lays out what it gives: heads within positions, the others as what it belongs to."""
    if kernel == "efficient":
        order = on_host(_aten.clone.default, [made.transpose(1, 2)], {"memory_format": torch.contiguous_format})
        return order.transpose(1, 2)  # type: ignore[no-any-return]
    if without_arithmetic():
        return made  # as the CPU's kernel gave it, which has the same order
    return torch.empty_like(like).copy_(made)


def backward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The gradients of query, key, value and bias."""
    index = next(a.ordinal for a in args if isinstance(a, SimulatedTensor))
    by_out, query, key, value, bias, wanted, out, sums = (numbers_of(a) for a in args[:8])
    composed = _composed.get(args[14].host.untyped_storage()._cdata)
    if composed is not None:
        found = _through(composed, by_out)
    else:
        found = on_host(
            _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            [by_out, query, key, value, out, sums[..., : query.size(-2)], 0.0, args[13]],
            {"attn_mask": bias, "scale": kwargs.get("scale")},
        )
    grouped = query.size(1) != key.size(1)
    kernel = _kernel(*args[1:4], None if bias is None else args[4], args[12], args[13], grouped)
    by_each = [
        _laid_out(g, t, kernel) if needed else None
        for g, t, needed in zip(found, (query, key, value), wanted[:3], strict=False)
    ]
    by_bias = None
    if bias is not None and wanted[3]:  # composed, where it is computed
        by_bias = on_host(_aten.empty_like.default, [bias], {}) if composed is None else found[3]
    return tuple([None if g is None else wrap(g, index) for g in (*by_each, by_bias)])


def _through(composed: _Composed, by_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = [t for t in composed.given if t is not None]
    # The engine itself: `torch.autograd.grad` is what a program calls, and is watched as such.
    with torch._C._ForceDispatchKeyGuard(*_AS_A_PROGRAM), torch._C._DisableTorchDispatch():
        return torch.autograd.Variable._execution_engine.run_backward(
            (composed.out,), (by_out,), True, False, tuple(leaves), allow_unreachable=True, accumulate_grad=False
        )


def install(library: torch.library.Library) -> None:
    """Let these operators be done here."""
    library.impl("scaled_dot_product_attention", attend, "AutogradPrivateUse1")  # type: ignore[no-untyped-call]
    SPECIAL[_aten._scaled_dot_product_fused_attention_overrideable.default] = forward
    SPECIAL[_aten._scaled_dot_product_fused_attention_overrideable_backward.default] = backward
