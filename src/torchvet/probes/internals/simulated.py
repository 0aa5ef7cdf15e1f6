"""A simulated GPU's tensors as what looks at their values takes them: without an operator or a byte of the device."""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchvet.probes.internals.private import is_functorch_wrapped


def simulated() -> bool:
    """Whether the GPU of this process is a simulated one. Nothing is imported to find out."""
    # A program on a real device must not pay for the simulated one's import.
    start = sys.modules.get("torchvet.simulate.start")
    return start is not None and bool(start.started())


def open_up() -> None:
    """Make a simulated GPU ready for a step that is done again in a process of one's own: nothing is taken back.

    Within a call of torch's that has translated its devices' names, as `backward()` has, that is out of force; and a
    recurrent network's operators, which are hidden from modes, show where a number came from.
    """
    if simulated():
        sys.modules["torchvet.simulate.api.naming"].enter()
        sys.modules["torchvet.simulate.operations.recurrent"].heard[0] = True


def numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU tensor that holds a simulated one's values; any other tensor itself.

    Of one that is spread over ranks this rank's part: to ask for the whole would wait for the others.
    """
    if tensor.__class__ is torch.Tensor:
        return tensor
    # A DTensor's.
    part = getattr(tensor, "_local_tensor", None)
    if isinstance(part, torch.Tensor):
        return part
    tensors: Any = sys.modules.get("torchvet.simulate.tensors")
    return tensors.numbers_of(tensor) if tensors is not None else tensor


def plain_values(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a plain tensor, without its graph, where they may be read now."""
    plain = numbers(tensor) if simulated() else tensor
    if type(plain) not in (torch.Tensor, torch.nn.Parameter) or plain.is_nested or plain.is_meta:
        return None
    # To read a value while a CUDA graph is being captured ends the capture by an error.
    if plain.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    # What stands for others within transforms of `torch.func` has no numbers of its own.
    if is_functorch_wrapped(plain) or plain.layout is not torch.strided:
        return None
    return plain.detach()


def device_generators() -> list[torch.Generator]:
    """Those that a simulated GPU draws from because the program has seeded it apart from the host."""
    generators: Any = sys.modules.get("torchvet.simulate.api.generators")
    return generators.seeded_apart() if generators is not None else []
