"""Cards that can be simulated: memory and capability as their makers publish them. No torch.

Sources: NVIDIA's data sheets, CUDA's compute capabilities, and `torch.cuda.get_device_properties` for total memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GIB = 1 << 30
# An empty process of CUDA's takes about this much before its first tensor.
_CONTEXT = 500 << 20


@dataclass(frozen=True)
class Card:
    """`total_memory` in bytes, as CUDA reports it; `context` bytes that the driver takes before the first tensor."""

    name: str
    total_memory: int
    capability: tuple[int, int]
    processors: int
    context: int = _CONTEXT

    @property
    def workspace(self) -> int:
        """Bytes that cuBLAS takes for a thread's products by torch's default; a card of a given size has none."""
        if not self.context:
            return 0
        return 32 << 20 if self.capability >= (9, 0) else 8_519_680

    @property
    def bfloat16(self) -> bool:
        """Whether bfloat16 is computed natively: from capability 8.0 on."""
        return self.capability >= (8, 0)


CARDS = {
    "h200": Card("NVIDIA H200", 150_109_880_320, (9, 0), 132),
    "h100": Card("NVIDIA H100 80GB HBM3", 85_029_158_912, (9, 0), 132),
    "a100": Card("NVIDIA A100-SXM4-80GB", 84_974_239_744, (8, 0), 108),
    "a100-80g": Card("NVIDIA A100-SXM4-80GB", 84_974_239_744, (8, 0), 108),
    "a100-40g": Card("NVIDIA A100-SXM4-40GB", 42_297_786_368, (8, 0), 108),
    "a10g": Card("NVIDIA A10G", 23_609_475_072, (8, 6), 80),
    "l4": Card("NVIDIA L4", 23_568_384_000, (8, 9), 58),
    "t4": Card("Tesla T4", 15_828_320_256, (7, 5), 40),
    "v100": Card("Tesla V100-SXM2-16GB", 16_935_682_048, (7, 0), 80),
    "v100-32g": Card("Tesla V100-SXM2-32GB", 34_079_899_648, (7, 0), 80),
    "rtx3090": Card("NVIDIA GeForce RTX 3090", 25_430_786_048, (8, 6), 82),
    "rtx4090": Card("NVIDIA GeForce RTX 4090", 25_393_692_672, (8, 9), 128),
    "p100": Card("Tesla P100-PCIE-16GB", 17_071_734_784, (6, 0), 56),
}


def card_of(text: str) -> Card:
    """The card that a user names, or one of the size that they give (`24GiB`). Raises ValueError for neither."""
    known = CARDS.get(text.lower().replace("_", "-"))
    if known is not None:
        return known
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(g|gb|gib|m|mb|mib)", text.strip().lower())
    if size is None:
        raise ValueError(f"{text}: neither a size (24GiB) nor a card that is known ({', '.join(CARDS)})")
    total = int(float(size[1]) * (GIB if size[2].startswith("g") else 1 << 20))
    # A size that a user gives is what the program may take: nothing is subtracted.
    return Card("Simulated GPU", total, (8, 0), 108, context=0)
