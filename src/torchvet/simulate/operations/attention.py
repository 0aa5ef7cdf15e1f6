"""Scaled dot product attention by one fused kernel wherever CUDA has one: the matrix of weights is not held there.

Its numbers are the CPU's: by the CPU's own fused kernel, or composed (with dropout, say) from the CPU's operators: see
`attention_graphs.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchvet.simulate.allocation import temporaries
from torchvet.simulate.api import generators
from torchvet.simulate.cuda import cards
from torchvet.simulate.operations import attention_graphs, attention_memory, attention_rules
from torchvet.simulate.operations.attention_memory import Kernel
from torchvet.simulate.operations.operators import SPECIAL, on_host, without_arithmetic
from torchvet.simulate.tensors import SimulatedTensor, numbers_of, wrap

_aten = torch.ops.aten
_FLASH = 1
"""Of torch's `SDPBackend`."""
_CASTING = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


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
    # Autocast has cast the arguments already.
    with torch._C._ExcludeDispatchKeyGuard(_CASTING):
        kernel = _kernel(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        bias = attn_mask
        if bias is not None and bias.dtype is torch.bool:
            never = torch.scalar_tensor(float("-inf"), dtype=query.dtype, device=bias.device)
            bias = torch.where(bias, 0.0, never)
        if kernel is None:
            return _aten._scaled_dot_product_attention_math.default(  # type: ignore[no-any-return]
                query, key, value, bias, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )[0]
        if kernel == "efficient" and bias is not None:
            bias = _as_the_kernel_reads(bias).expand(*query.shape[:3], key.size(2))
        # torch pads heads to a multiple of 8 for flash, and scales by the width before.
        width = query.size(-1)
        if kernel == "flash" and width % 8:
            query, key, value = (torch.nn.functional.pad(t, (0, -width % 8)) for t in (query, key, value))
            scale = width**-0.5 if scale is None else scale
        out, *_, seed, _, _ = _aten._scaled_dot_product_fused_attention_overrideable.default(
            query, key, value, bias, dropout_p, is_causal, scale=scale
        )
        attention_graphs.tell_node(out, seed)
        result: torch.Tensor = out[..., :width] if kernel == "flash" and width % 8 else out
        return result


def _as_the_kernel_reads(bias: torch.Tensor) -> torch.Tensor:
    """In rows of whole 16 bytes, padded where they are not (`preprocess_mask` of `transformers/attention.cpp`)."""
    length = bias.size(-1)
    if bias.stride(-1) == 1 and all(step % 8 == 0 for step in bias.stride()[:-1]):
        return bias
    return torch.nn.functional.pad(bias, (0, 8 - length % 8))[..., :length]


def _kernel(*args: Any) -> Kernel | None:
    *given, dropout, causal, grouped = args
    query, key, value, bias = given
    if not all(isinstance(t, SimulatedTensor) for t in given if t is not None):
        return None
    asked = attention_rules.Asked(query, key, value, bias, dropout, causal, grouped, cards.get_device_capability())
    with torch._C.DisableTorchFunction():
        return attention_rules.kernel_of(asked)


def forward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """`(query, key, value, bias, dropout, is_causal, ...)`, each `(batch, heads, length, width)`."""
    index = args[0].ordinal
    query, key, value, *rest = (numbers_of(a) for a in args)
    # The dispatcher leaves out what has its default.
    bias, dropout, causal = (*rest, *(None, 0.0, False)[len(rest) :])[:3]
    given = [*args[:3], None if bias is None else args[3]]
    kernel = _kernel(*given, dropout, causal, query.size(1) != key.size(1)) or "flash"
    # The backward pass tells the kernels apart by what this looks like.
    seed, offset = _random_state(kernel, index)
    scale = kwargs.get("scale")
    # The CPU's fused kernel gives no gradient of a bias.
    learned = bias is not None and args[3].requires_grad
    if without_arithmetic() or (not learned and _fused_on_host(query, key, value, bias, dropout, causal, scale)):
        out, sums = on_host(
            _aten._scaled_dot_product_flash_attention_for_cpu.default,
            [query, key, value, 0.0, causal],
            {"attn_mask": bias, "scale": scale},
        )
    else:
        with generators.drawing(index):
            composed = attention_graphs.compose([query, key, value, bias], dropout, causal, scale)
        attention_graphs.keep(composed, seed)
        out = composed.out.detach()
        sums = torch.empty(query.shape[:3], dtype=torch.float32)
    sums = _kept(sums, kernel, torch.is_grad_enabled() and any(t.requires_grad for t in args[:3]))
    out, sums = wrap(_laid_out(out, query, kernel), index), wrap(sums, index)
    # After the results, which the kernel has beside its temporaries.
    temporaries.held(index, attention_memory.while_forward(kernel, _call(query, key, value, dropout)))
    nothing = [wrap(torch.empty(0, dtype=torch.int64), index) for _ in range(3)]
    return out, sums, *nothing[:2], query.size(-2), key.size(-2), seed, offset, nothing[2]


def _kept(sums: torch.Tensor, kernel: Kernel, learns: bool) -> torch.Tensor:
    """What a kernel gives of the softmax's sums: flash always all, the others nothing where no backward needs them."""
    if kernel != "flash" and not learns:
        return sums[..., :0].clone()
    return _in_blocks(sums) if kernel == "efficient" else sums


def _random_state(kernel: Kernel, index: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where each kernel keeps the generator's state for the backward pass, which is told by it which kernel it was: the
    efficient one on the host, flash in two numbers and one that it does not use."""
    if kernel == "efficient":
        return torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)
    if kernel == "cudnn":
        return wrap(torch.empty((), dtype=torch.int64), index), wrap(torch.empty((), dtype=torch.int64), index)
    return wrap(torch.empty(2, dtype=torch.uint64), index), wrap(torch.empty((), dtype=torch.uint64), index)


def _kernel_of_state(seed: torch.Tensor) -> Kernel:
    if not isinstance(seed, SimulatedTensor):
        return "efficient"
    return "flash" if seed.numel() == 2 else "cudnn"


def _call(query: Any, key: Any, value: Any, dropout: float, copies: tuple[int, ...] = ()) -> attention_memory.Call:
    card, (batch, heads, queries, width) = cards.get_device_properties(), query.shape
    return attention_memory.Call(
        batch=batch,
        heads=heads,
        groups=key.size(1),
        queries=queries,
        keys=key.size(2),
        width=width,
        value_width=value.size(3),
        item=query.element_size(),
        capability=(card.major, card.minor),
        processors=card.multi_processor_count,
        dropout=dropout > 0,
        copies=copies,
        deterministic=attention_rules.exact_wanted(),
    )


def _in_blocks(sums: torch.Tensor) -> torch.Tensor:
    """With room for whole blocks of 32 queries, as this kernel has it."""
    batch, heads, length = sums.shape
    room = on_host(_aten.new_empty.default, [sums, (batch, -(-length // 32) * 32, heads)], {}).transpose(1, 2)
    on_host(_aten.copy_.default, [room[..., :length], sums], {})
    return room  # type: ignore[no-any-return]


def _in_rows(gradient: torch.Tensor) -> torch.Tensor:
    """A bias's, with room for whole blocks of 16 keys, as the efficient kernel has it."""
    *sizes, length = gradient.shape
    room = on_host(_aten.new_empty.default, [gradient, (*sizes, -(-length // 16) * 16)], {})[..., :length]
    on_host(_aten.copy_.default, [room, gradient], {})
    return room  # type: ignore[no-any-return]


def _fused_on_host(query: Any, key: Any, value: Any, bias: Any, dropout: float, causal: bool, scale: Any) -> bool:
    grouped = query.size(1) != key.size(1)
    # What the program has switched off are CUDA's kernels, and one was chosen.
    with torch._C._DisableTorchDispatch(), torch.no_grad(), sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        choice = torch._fused_sdp_choice(query, key, value, bias, dropout, causal, scale=scale, enable_gqa=grouped)
    return choice == _FLASH


def _laid_out(made: torch.Tensor, like: torch.Tensor, kernel: Kernel) -> torch.Tensor:
    """As the kernel lays out what it gives: heads within positions, the others as what it belongs to."""
    if kernel == "efficient":
        order = on_host(_aten.clone.default, [made.transpose(1, 2)], {"memory_format": torch.contiguous_format})
        return order.transpose(1, 2)  # type: ignore[no-any-return]
    if made.shape != like.shape:
        return made
    alike: torch.Tensor = on_host(_aten.empty_like.default, [like], {})
    return alike if without_arithmetic() else alike.copy_(made)


def backward(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The gradients of query, key, value and bias."""
    index = next(a.ordinal for a in args if isinstance(a, SimulatedTensor))
    by_out, query, key, value, bias, wanted, out, sums = (numbers_of(a) for a in args[:8])
    scale = kwargs.get("scale")
    # By the random state's storage: saved tensors may be copies.
    composed = attention_graphs.found_by(args[14], [query, key, value, bias], args[12], args[13], scale)
    if composed is not None:
        found = attention_graphs.gradients(composed, by_out)
    else:
        found = on_host(
            _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            [by_out, query, key, value, out, sums[..., : query.size(-2)], 0.0, args[13]],
            {"attn_mask": bias, "scale": scale},
        )
    kernel = _kernel_of_state(args[14])
    # The kernel makes all three.
    by_each = [wrap(_laid_out(g, t, kernel), index) for g, t in zip(found, (query, key, value), strict=False)]
    by_bias = None
    if bias is not None and wanted[3]:  # composed, where it is computed
        by_bias = on_host(_aten.empty_like.default, [bias], {}) if composed is None else found[3]
        by_bias = wrap(_in_rows(by_bias), index)
    copies = tuple([0 if t.transpose(1, 2).is_contiguous() else t.numel() * t.element_size() for t in (by_out, out)])
    # Phases one after the other: each gives back what it held.
    for sizes in attention_memory.while_backward(kernel, _call(query, key, value, args[12], copies)):
        temporaries.held(index, sizes)
    return (*(g if needed else None for g, needed in zip(by_each, wanted, strict=False)), by_bias)


def install(library: torch.library.Library) -> None:
    """Let these operators be done here."""
    library.impl("scaled_dot_product_attention", attend, "AutogradPrivateUse1")  # type: ignore[no-untyped-call]
    SPECIAL[_aten._scaled_dot_product_fused_attention_overrideable.default] = forward
    SPECIAL[_aten._scaled_dot_product_fused_attention_overrideable_backward.default] = backward
