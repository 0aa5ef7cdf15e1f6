"""Every operator of torch's own operator tests (`op_db`), forward and backward: the simulated GPU against the CPU.

`python benchmarks/simulated_operators.py [NAME...] [--samples N]` prints the operators that differ, with the reason,
and how many are the same bit for bit. Needs `expecttest`, which torch's tests import.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_SECONDS = 3.0
"""What one operator may take."""


class Differs(Exception):
    """The simulated device gave something else than the CPU."""


def of_cpu(value: Any) -> Any:
    """A tensor of its own, on the CPU."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def of_device(value: Any) -> Any:
    """The same on the simulated device."""
    return value.detach().cuda().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def tensors(values: Any) -> list[torch.Tensor]:
    """All tensors of a result."""
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]


def same(wanted: torch.Tensor, found: torch.Tensor, what: str, values: bool = True) -> None:
    """Raise where two tensors differ in anything but the device."""
    if (wanted.shape, wanted.dtype, wanted.layout) != (found.shape, found.dtype, found.layout):
        raise Differs(f"{what}: {found.dtype} {tuple(found.shape)} where the CPU gives {wanted.dtype}")
    if wanted.layout is torch.strided and wanted.stride() != found.stride():
        raise Differs(f"{what}: strides {found.stride()} where the CPU gives {wanted.stride()}")
    if values and not torch.equal(plain(wanted), plain(found.detach().cpu())):
        raise Differs(f"{what}: other values")


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The values in a dtype that can be compared, NaN as a number."""
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.to(torch.complex128).resolve_conj())
    return tensor.double().nan_to_num() if tensor.is_floating_point() else tensor


def call(op: Any, inputs: Any, seed: int) -> Any:
    """The operator on one sample, always with the same random numbers."""
    first, positional, named = inputs
    torch.manual_seed(seed)
    return op(first, *positional, **named)


def compare(op: Any, sample: Any, dtype: torch.dtype) -> bool:
    """One sample on both. False where the CPU refuses it; raises where they differ."""
    from torchvet.simulate.tensors import SimulatedTensor

    given = (sample.input, sample.args, sample.kwargs)
    on_cpu, on_device = tree_map(of_cpu, given), tree_map(of_device, given)
    if "device" in on_device[2]:
        on_device = (*on_device[:2], {**on_device[2], "device": "cuda"})
    try:
        wanted = call(op, on_cpu, 0)
    except Exception:
        return False
    found = call(op, on_device, 0)
    pairs = list(zip(tensors(wanted), tensors(found), strict=True))
    for one, other in pairs:
        same(one, other, "result", values="empty" not in op.name)
    moved = any(isinstance(t, SimulatedTensor) for t in tensors(on_device))
    if moved and op.name != "to" and not all(isinstance(other, SimulatedTensor) for _, other in pairs):
        raise Differs("result: on the host")
    differentiate(on_cpu, on_device, [p for p in pairs if p[0].requires_grad])
    return True


def differentiate(on_cpu: Any, on_device: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """The gradients of the sum of all results."""
    leaves = [[t for t in tensors(side) if t.requires_grad] for side in (on_cpu, on_device)]
    if not pairs or not leaves[0]:
        return
    gradients = [
        torch.autograd.grad(
            [(p[side].real if p[side].is_complex() else p[side]).sum() for p in pairs], leaves[side], allow_unused=True
        )
        for side in (0, 1)
    ]  # fmt: skip
    for one, other in zip(*gradients, strict=True):
        if one is not None and other is not None:
            same(one, other, "gradient")
        elif one is not other:
            raise Differs("gradient: none")


def verdict(op: Any, samples: int) -> str:
    """`same`, why not, or that the CPU has nothing to compare with."""
    known = op.supported_dtypes("cpu")
    if not known:
        return "not on the CPU"
    dtype = torch.float32 if torch.float32 in known else sorted(known, key=str)[0]
    ends, done = time.perf_counter() + _SECONDS, 0
    try:
        for sample in op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point):
            done += compare(op, sample, dtype)
            if done >= samples or time.perf_counter() > ends:
                break
    except Differs as difference:
        return str(difference)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
    return "same" if done else "not on the CPU"


def operators(names: list[str]) -> Iterator[tuple[str, Any]]:
    """torch's own descriptions of its operators."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        variant = f".{op.variant_test_name}" if op.variant_test_name else ""
        if not names or op.name in names:
            yield op.name + variant, op


def main() -> int:
    """Print the table; 1 where fewer than nine tenths are the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=6)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    listed = list(operators(asked.names))  # before there is a GPU: torch's tests ask for one when they are imported
    from torchvet.simulate.cards import card_of
    from torchvet.simulate.start import start

    start(card_of("80GiB"))
    counts: collections.Counter[str] = collections.Counter()
    for name, op in listed:
        found = verdict(op, asked.samples)
        kind = found if found in ("same", "not on the CPU") else "differs"
        counts[kind] += 1
        if kind == "differs":
            print(f"{name:44} {found}", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in counts.most_common()))
    return int(counts["same"] < 0.9 * (counts["same"] + counts["differs"]))


if __name__ == "__main__":
    sys.exit(main())
