"""On which devices an operator's tensors must be, and what CUDA says where they are not."""

from __future__ import annotations

from typing import Any

import torch

MIXED_INDICES = frozenset(
    ["index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"]
)
"""Indexing takes indices from the host."""
ANY_DEVICE = frozenset(
    ["_has_compatible_shallow_copy_type", "_pack_padded_sequence", "_pad_packed_sequence", "_ctc_loss",
     "_ctc_loss_backward", "_pack_padded_sequence_backward", "_nested_view_from_buffer", "_nested_view_from_jagged",
     "copy_", "_copy_from", "_copy_from_and_resize", "set_", "_has_same_storage_numel", "copy", "is_same_size"]
)  # fmt: skip
"""What a GPU takes from anywhere: copies, and what wants its lengths on the host."""


def devices_differ(name: str, found: list[str]) -> RuntimeError:
    """CUDA's refusal of tensors on different devices. `found` in the order of the arguments."""
    first, second = dict.fromkeys(found)
    # CUDA names the GPU first.
    if "cpu" in (first, second) and first == "cpu":
        first, second = second, first
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}! "
        f"(when checking arguments of {name})"
    )


def check(name: str, args: Any, kwargs: dict[str, Any], simulated: type[torch.Tensor]) -> None:
    """Raise where tensors of one operator are on different devices. Tensors of no dimension may stay on the host, but
    not where they are written to."""
    if name in ANY_DEVICE:
        return
    if name in MIXED_INDICES:
        _check_indexed(name, args, simulated)
        return
    found: list[str] = []
    for value in (*args, *kwargs.values()):
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, simulated):
                found.append(str(tensor.device))
            # See the docstring: a number may stay on the host.
            elif isinstance(tensor, torch.Tensor) and (tensor.dim() or tensor is kwargs.get("out")):
                found.append(str(tensor.device))  # the host's, or meta
    if len(set(found)) > 1:
        raise _convolved(args, simulated) if name in _CONVOLUTIONS else devices_differ(name, found)


_CONVOLUTIONS = frozenset(["convolution", "_convolution", "convolution_overrideable", "cudnn_convolution"])


def _convolved(args: Any, simulated: type[torch.Tensor]) -> RuntimeError:
    """What convolutions say of it: the types of both."""
    first, second = (t.type() for t in args[:2])
    what = "weight"
    if isinstance(args[0], simulated) is isinstance(args[1], simulated) and isinstance(args[2], torch.Tensor):
        second, what = args[2].type(), "bias"
    return RuntimeError(f"Input type ({first}) and {what} type ({second}) should be the same")


def _check_indexed(name: str, args: Any, simulated: type[torch.Tensor]) -> None:
    """Indices may be on the host or with what they index; on the device they cannot index the host's."""
    itself, indices = args[0], args[1]
    where = str(itself.device) if isinstance(itself, simulated) else "cpu"
    for index in indices:
        if isinstance(index, simulated) and str(index.device) != where:
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({where})")
    if len(args) > 2 and isinstance(args[2], torch.Tensor) and args[2].dim():
        values = str(args[2].device) if isinstance(args[2], simulated) else "cpu"
        if values != where:
            raise devices_differ(name, [where, values])
