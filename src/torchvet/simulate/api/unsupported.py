"""Puts a refusal in the place of each feature of torch that cannot be simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate import devices
from torchvet.simulate.late_imports import when_imported
from torchvet.simulate.refusals import asked, refusal, refusing
from torchvet.simulate.tensors import SimulatedTensor


class _Refused:
    what, why = "", ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise refusal(self.what, self.why)


def _class(name: str, what: str, why: str) -> type:
    return type(name, (_Refused,), {"what": what, "why": why, "__module__": "torch.cuda"})


_GRAPHS = ("CUDA graphs", "What a graph replays is kernels of a device, and there is none.")
_JITERATOR = ("torch.cuda.jiterator", "It compiles CUDA code, which has no device to run on.")
_EXTENSIONS = ("CUDA extensions", "They compile CUDA code, which has no device to run on.")
_NCCL = ("NCCL", "Its collectives run between real GPUs; the gloo backend runs on the host.")
_TRITON = ("Triton kernels", "They are compiled for a GPU, which is not there.")
_NESTED = ("strided nested tensors", "The layout torch.jagged is.")


def _in_graphs() -> None:
    # torch imports the names from one into the other.
    for package in (torch.cuda, torch.cuda.graphs):
        for name in ("CUDAGraph", "graph"):
            setattr(package, name, _class(name, *_GRAPHS))
        for name in ("make_graphed_callables", "graph_pool_handle"):
            setattr(package, name, refusing(*_GRAPHS))


def _in_extensions() -> None:
    from torch.utils import cpp_extension

    compile_: Callable[..., Any] = cpp_extension._jit_compile

    def _jit_compile(name: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        # Extensions in C++ alone are for the CPU, and compile as ever.
        files = [sources] if isinstance(sources, str) else list(sources)
        if any(str(f).endswith((".cu", ".cuh")) for f in files) or kwargs.get("with_cuda"):
            raise refusal(*_EXTENSIONS)
        return compile_(name, sources, *args, **kwargs)

    cpp_extension._jit_compile = _jit_compile
    cpp_extension.CUDAExtension = refusing(*_EXTENSIONS)


def _in_triton(jit: Any) -> None:
    jit.JITFunction.run = refusing(*_TRITON)


def _in_nested() -> None:
    """Refuse strided nested tensors, a class of C++'s own. Jagged ones are made of ordinary tensors."""
    make: Callable[..., Any] = torch.nested.nested_tensor

    def nested_tensor(tensor_list: Any, *, layout: Any = None, device: Any = None, **kwargs: Any) -> Any:
        on_device = devices.is_simulated(device) or any(isinstance(t, SimulatedTensor) for t in tensor_list)
        if on_device and layout is not torch.jagged:
            raise refusal(*_NESTED)
        return make(tensor_list, layout=layout, device=device, **kwargs)

    nested_tensor.__doc__ = make.__doc__
    torch.nested.nested_tensor = nested_tensor


def _in_nccl() -> None:
    for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "version", "unique_id"):
        setattr(torch.cuda.nccl, name, refusing(*_NCCL))
    torch.cuda.nccl.is_available = lambda tensors: False
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    begin: Callable[..., Any] = distributed_c10d.init_process_group

    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend is not None and "nccl" in str(backend).lower():
            raise refusal(*_NCCL)
        # With a device torch takes that one's backend alone.
        if backend is None and not isinstance(kwargs.get("device_id"), torch.device):
            # torch would take gloo for the host and NCCL for GPUs.
            asked.setdefault(_NCCL[0], f"{_NCCL[1]} It was not asked for by name, and gloo's were used.")
            backend = "gloo"
        return begin(backend, *args, **kwargs)

    init_process_group.__doc__ = begin.__doc__
    distributed_c10d.init_process_group = init_process_group
    torch.distributed.init_process_group = init_process_group


def install() -> None:
    """Refuse what is not there."""
    torch._C._cuda_jiterator_compile_and_launch_kernel = refusing(*_JITERATOR)
    torch.cuda._compile_kernel = refusing(*_EXTENSIONS)  # it asks for NVRTC
    _in_graphs()
    _in_nccl()
    _in_extensions()
    _in_nested()
    # Triton comes with builds of torch for CUDA, and takes long to import.
    when_imported("triton.runtime.jit", _in_triton)
