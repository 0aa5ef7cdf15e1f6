"""What the devices of this machine compute natively in half precision, as torch tells."""

from __future__ import annotations

import platform
from typing import Any

import torch

from torchvet.recording.records.forecast import Hardware

# Compute capabilities: Volta has tensor cores for float16, Ampere computes in bfloat16.
_TENSOR_CORES = (7, 0)
_NATIVE_BF16 = (8, 0)


def devices() -> list[Hardware]:
    """The accelerators, or the CPU where there is none."""
    if torch.cuda.is_available():
        return [_cuda(i) for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        return [Hardware(name="Apple GPU", kind="mps", fp16=True, bf16=True, note="bfloat16 needs macOS 14 or later")]
    return [_cpu()]


def _cuda(index: int) -> Hardware:
    properties: Any = torch.cuda.get_device_properties(index)
    # `is_bf16_supported()` counts emulation unless it is told not to.
    bf16 = bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # ROCm answers with the same functions, and has no capability in NVIDIA's sense.
    if torch.version.hip:
        architecture = str(getattr(properties, "gcnArchName", ""))
        return Hardware(name=properties.name, kind="rocm", capability=architecture, fp16=True, bf16=bf16)
    capability = (properties.major, properties.minor)
    fp16, bf16 = capability >= _TENSOR_CORES, bf16 and capability >= _NATIVE_BF16
    text = f"{capability[0]}.{capability[1]}"
    return Hardware(name=properties.name, kind="cuda", capability=text, fp16=fp16, bf16=bf16)


def _cpu() -> Hardware:
    def has(name: str) -> bool:
        # Private and newer than the oldest torch that is supported: without it the CPU counts as one that
        # emulates.
        return bool(getattr(torch.cpu, name, lambda: False)())

    amx, avx512 = has("_is_amx_tile_supported"), has("_is_avx512_bf16_supported")
    note = "AMX" if amx else "AVX512-BF16" if avx512 else "half precision is emulated: slower than float32"
    name = platform.processor() or platform.machine() or "CPU"
    return Hardware(name=name, kind="cpu", fp16=has("_is_amx_fp16_supported"), bf16=amx or avx512, note=note)
