"""Which half precision common devices compute natively, for machines that have none of them."""

from __future__ import annotations

import msgspec

SOURCE = (
    "NVIDIA: compute capability per card and the arithmetic of each capability in the CUDA C++ Programming Guide "
    "(tensor cores from 7.0, bfloat16 from 8.0); AMD: the CDNA2 and CDNA3 instruction set manuals; Intel: the AMX and "
    "AVX512-BF16 extensions of the Software Developer's Manual; Apple: Metal 3.1"
)


# A table, because torch can only ask the device that is there.
class Card(msgspec.Struct, frozen=True, kw_only=True):
    """`float16` and `bfloat16` say whether matrix products run natively, at the speed that half precision promises."""

    name: str
    capability: str
    float16: bool
    bfloat16: bool
    note: str = ""


CARDS = (
    Card(name="P100", capability="6.0", float16=False, bfloat16=False, note="no tensor cores: saves memory only"),
    Card(name="V100", capability="7.0", float16=True, bfloat16=False, note="bfloat16 is emulated"),
    Card(name="T4, RTX 20xx", capability="7.5", float16=True, bfloat16=False, note="bfloat16 is emulated"),
    Card(name="A100, A30", capability="8.0", float16=True, bfloat16=True),
    Card(name="A10, A40, RTX 30xx", capability="8.6", float16=True, bfloat16=True),
    Card(name="L4, L40, RTX 40xx", capability="8.9", float16=True, bfloat16=True),
    Card(name="H100, H200", capability="9.0", float16=True, bfloat16=True),
    Card(name="MI200 series", capability="gfx90a", float16=True, bfloat16=True),
    Card(name="MI300 series", capability="gfx942", float16=True, bfloat16=True),
    Card(name="Apple M, GPU", capability="mps", float16=True, bfloat16=True, note="bfloat16 from macOS 14"),
    Card(name="Xeon with AMX", capability="cpu", float16=False, bfloat16=True, note="AMX-FP16 came later"),
    Card(name="CPU, AVX512-BF16", capability="cpu", float16=False, bfloat16=True),
    Card(name="other CPUs", capability="cpu", float16=False, bfloat16=False, note="both are slower than float32"),
)
