"""What memory each rank needs of a program that trains with several."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torchvet.analysis.growth import usable_censuses
from torchvet.analysis.growth_series import beside_known, key_of
from torchvet.analysis.memory_limit import LASTING
from torchvet.analysis.memory_series import device_sizes, heap_sizes, resident_sizes
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Holding, Place, Window


@dataclass
class Need:
    """The memory that one rank needs, of one device: in bytes, those there between steps among them (`standing`).

    `parts` says what of it is known, by category or by name; `lines` is what the step's lines make, and `names` are the
    holders that the parts are called by.
    """

    rank: RankRecording
    device: str
    standing: int
    passing: int
    parameters: int
    parts: Counter[str] = field(default_factory=Counter)
    lines: Counter[Place] = field(default_factory=Counter)
    names: dict[str, Holding] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """All of it at the peak of a step."""
        return self.standing + self.passing


def need_of(rank: RankRecording, host: bool) -> Need | None:
    """What a rank needs of the host's memory, or of its device's; None where that was not seen."""
    on_host = rank.program is None or rank.program.device == "cpu"
    sizes = (heap_sizes(rank) or resident_sizes(rank)) if host else device_sizes(rank)
    windows = rank.all(Window)
    if not sizes or not windows:
        return None
    # The least that was ever there between steps: what grows is another fault, and what warms up is none.
    need = Need(rank, "cpu" if host else "cuda", min(size for _, size in sizes), 0, 0)
    highest = max(windows, key=lambda w: w.peak)
    need.parameters = highest.categories.get("parameters", 0)
    # Windows tell of the memory in which the program's tensors lie: on a GPU they say nothing of the host's.
    if host is on_host:
        need.passing = max(0, highest.peak - sum(highest.categories.get(c, 0) for c in LASTING))
        need.parts.update(highest.categories)
        for row in highest.sites:
            place = row.site.place or row.site.inner
            if place is not None:
                need.lines[place] += row.bytes
        _add_names(need)
    return need


def _add_names(need: Need) -> None:
    """Names that hold tensors between steps, the outermost, as the first search has them."""
    censuses = usable_censuses(need.rank)
    held = {key_of(h): h for h in censuses[0].holdings} if censuses else {}
    for key, holding in held.items():
        # Outermost ones: what an inner name holds is in the outer one's size.
        if key[:-1] not in held:
            need.parts[f"`{holding.name}`"] += beside_known(holding)
            need.names[f"`{holding.name}`"] = holding
