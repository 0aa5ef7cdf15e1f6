"""The device that the program runs on: its name, its memory, and how much of that is in use."""

from __future__ import annotations

import torch

from torchvet.recording.records.base import Program


def describe(program: Program, limited: bool, card: str | None = None, cards: int = 1) -> None:
    """Say in the program's record what its device is. Where the user has not `limited` memory, the device does."""
    if program.device != "cuda":
        return
    # `--memory-limit` of the user's is what the forecast goes by.
    if not limited:
        program.memory_limit = torch.cuda.get_device_properties(0).total_memory
        program.memory_limit_source = torch.cuda.get_device_name(0)
        free, total = torch.cuda.mem_get_info(0)
        # What other processes and CUDA's own context hold: no fault of this program's.
        program.memory_outside = max(0, total - free - torch.cuda.memory_reserved(0))
    if card is not None:
        program.simulated = torch.cuda.get_device_name(0)
        program.simulated_by = ["--simulate-gpu", card, *(["--gpus", str(cards)] if cards > 1 else [])]


def memory() -> tuple[int, int] | None:
    """Bytes allocated and reserved; None where no device is in use."""
    # Asking an uninitialised device would initialise it: hundreds of megabytes that the program never asked for.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    return None
