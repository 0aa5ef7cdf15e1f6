"""A model of PyTorch's CUDA caching allocator: what it would reserve, split, hand out and give back. No torch.

It replays recorded traces under other settings, and can stand behind a simulated GPU. The rules are those of
`c10/cuda/CUDACachingAllocator.cpp` in torch 2.13; they were compared with recordings, not run on a GPU.
"""

from torchvet.allocator.model import CachingAllocator, OutOfMemory
from torchvet.allocator.sizes import Settings

__all__ = ["CachingAllocator", "OutOfMemory", "Settings"]
