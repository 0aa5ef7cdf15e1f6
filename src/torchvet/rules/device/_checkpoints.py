"""What a file shows of the checkpoints that it writes, and of the ranks that read them."""

from __future__ import annotations

import re

from torchvet.rules.kit import SourceFile
from torchvet.source.model import Event, argument, keyword

_ON_HOST = re.compile(r"\.cpu\(\)|[\"']cpu[\"']|_cpu\b")
_CHOSEN = re.compile(r"map_location|is_available|\belse\b")
"""Lines on which the CPU is one of several places, or where something is loaded to."""


def saved_from_host(file: SourceFile) -> bool:
    """Whether all that a file saves is brought to the CPU first: then its checkpoints load everywhere."""
    saves = [event for event in file.calls("save") if file.dotted(event.call.func) == "torch.save"]
    return bool(saves) and all(_is_brought_to_host(file, save) for save in saves)


def _is_brought_to_host(file: SourceFile, save: Event) -> bool:
    if save.unit.is_module:
        return False
    lines = file.lines[save.unit.first - 1 : save.call.end_lineno or save.line]
    return any(_ON_HOST.search(line) and not _CHOSEN.search(line) for line in lines)


def shares_a_gpu(file: SourceFile) -> bool:
    """Whether a file starts several ranks that may compute on GPUs."""
    groups = list(file.calls("init_process_group"))
    sizes = [keyword(group.call, "world_size") for group in groups]
    if not groups or all(getattr(size, "value", None) == 1 for size in sizes):
        return False
    backends = {getattr(argument(group.call, "backend", 0), "value", None) for group in groups}
    return backends != {"gloo"} or file.mentions("cuda", "gpu")
