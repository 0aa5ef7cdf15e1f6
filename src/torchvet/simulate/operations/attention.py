"""Scaled dot product attention by one fused kernel wherever the CPU has it fused: its numbers are then the CPU's.

A GPU does not hold the matrix of weights either, so what is allocated is close to what flash attention takes there.
"""

from __future__ import annotations

from typing import Any

import torch

from torchvet.simulate.operations.operators import SPECIAL, on_host
from torchvet.simulate.tensors import SimulatedTensor, numbers_of, wrap

_aten = torch.ops.aten
_FLASH = 1
"""Of torch's `SDPBackend`."""
_CASTING = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def _asked(value: Any) -> Any:
    """A host tensor of this shape: the choice goes by shapes, and looks at no numbers."""
    host = numbers_of(value)
    if not isinstance(host, torch.Tensor) or host.device.type == "cpu":
        return host
    from torchvet.simulate.dry.phantoms import phantom

    return phantom(host.size(), host.stride(), host.dtype).requires_grad_(value.requires_grad)


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
    """`scaled_dot_product_attention`: fused where the CPU would, else composed."""
    bias = attn_mask
    if bias is not None and bias.dtype is torch.bool:
        bias = torch.zeros_like(bias, dtype=query.dtype).masked_fill_(bias.logical_not(), float("-inf"))
    with torch._C._ExcludeDispatchKeyGuard(_CASTING):
        if _fused(query, key, value, bias, dropout_p, is_causal, scale, enable_gqa):
            return _aten._scaled_dot_product_fused_attention_overrideable.default(  # type: ignore[no-any-return]
                query, key, value, bias, dropout_p, is_causal, scale=scale
            )[0]
        return _aten._scaled_dot_product_attention_math.default(  # type: ignore[no-any-return]
            query, key, value, bias, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]


def _fused(*args: Any) -> bool:
    *given, dropout, causal, scale, gqa = args
    tensors = [t for t in given if t is not None]
    if not all(isinstance(t, SimulatedTensor) for t in tensors) or (given[3] is not None and given[3].requires_grad):
        return False
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        try:
            choice = torch._fused_sdp_choice(  # type: ignore[misc]
                *(_asked(t) for t in given), dropout, causal, scale=scale, enable_gqa=gqa
            )
        except RuntimeError:
            # The program asks for a kernel that only GPUs have, which is fused as well.
            return all(t.dim() == 4 for t in given[:3]) and not dropout
    return choice == _FLASH


def forward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """`(query, key, value, bias, dropout, is_causal, ...)`, each `(batch, heads, length, width)`."""
    index = args[0].ordinal
    query, key, value, *rest = (numbers_of(a) for a in args)
    bias, dropout, causal = (*rest, *(None, 0.0, False)[len(rest) :])[:3]
    out, sums = on_host(
        _aten._scaled_dot_product_flash_attention_for_cpu.default,
        [query, key, value, dropout, causal],
        {"attn_mask": bias, "scale": kwargs.get("scale")},
    )
    nothing = [wrap(torch.empty(0, dtype=torch.int64), index) for _ in range(5)]
    lengths = (query.size(-2), key.size(-2))
    return wrap(out, index), wrap(sums, index), *nothing[:2], *lengths, *nothing[2:]


def backward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The gradients of query, key and value; a bias that needs one goes the composed way."""
    index = next(a.ordinal for a in args if isinstance(a, SimulatedTensor))
    by_out, query, key, value, bias, _, out, sums = (numbers_of(a) for a in args[:8])
    dropout, causal = args[12], args[13]
    found = on_host(
        _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        [by_out, query, key, value, out, sums, dropout, causal],
        {"attn_mask": bias, "scale": kwargs.get("scale")},
    )
    return *(wrap(g, index) for g in found), None


def install(library: torch.library.Library) -> None:
    """Let these operators be done here."""
    library.impl("scaled_dot_product_attention", attend, "AutogradPrivateUse1")  # type: ignore[no-untyped-call]
    SPECIAL[_aten._scaled_dot_product_fused_attention_overrideable.default] = forward
    SPECIAL[_aten._scaled_dot_product_fused_attention_overrideable_backward.default] = backward
