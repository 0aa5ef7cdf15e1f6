"""Where the simulated GPU would have room and this machine has not: its numbers live in host memory."""

from __future__ import annotations

import re

from torchvet.simulate import devices
from torchvet.simulate.allocation import memory


class HostMemoryError(MemoryError):
    """This machine's memory is too small for what the program keeps on the simulated GPU. CUDA has no such error."""


def refusal(message: str, operator: str) -> HostMemoryError:
    """What to raise where the CPU's allocator gave up. Raises CUDA's own error where the card would have too."""
    found = re.search(r"allocate (\d+) bytes", message)
    asked = int(found[1]) if found else 0
    held = memory.of(devices.current.index)
    if asked:
        # If the card has no room either, CUDA's own error comes out of `take`.
        held.give_back(held.take(asked))
    total = sum(m.allocator.allocated for m in memory.everyone())
    return HostMemoryError(
        f"this machine has too little memory to simulate the GPU: {operator} needs {memory.amount(asked)} of host "
        f"memory for its result, beside {memory.amount(total)} that the program keeps on the GPU. A card of "
        f"{memory.amount(held.total)} would have had room. Simulate with a smaller batch or model, on a machine with "
        "more memory, or a smaller card to see where the program would run out of memory there"
    )
