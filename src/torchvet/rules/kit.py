"""What rules are written with, so that a rule imports it in one line: the base class and the types that rules name.

What reads a source file by its syntax is `torchvet.source.model`'s; what one family shares lies in its own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchvet.finding import (
    NOTHING_MORE,
    About,
    DetailedFinding,
    Edit,
    Finding,
    Holder,
    HolderKind,
    Location,
    Measured,
    Related,
    Remedy,
    Severity,
    about,
)
from torchvet.recording import records
from torchvet.rules.core import grading
from torchvet.rules.core.base import Edits, Findings, Rule
from torchvet.rules.core.fixing import (
    all_or_none,
    calls_at,
    events_at,
    held,
    may_be_tensor,
    places_of,
    recorded_source,
    storing,
    unit_of,
    with_method,
)
from torchvet.rules.shared.number_format import count, ms, per_step, percent, size

if TYPE_CHECKING:
    from torchvet.analysis.growth import Growth
    from torchvet.readers.trace_facts import Trace
    from torchvet.recording import RankRecording, Recording
    from torchvet.recording.records.base import Place
    from torchvet.snapshots.memory import SnapshotMemory
    from torchvet.source.model import SourceFile
    from torchvet.source.model.origins import Identity
    from torchvet.source.model.steps import Effect, Step
    from torchvet.source.stores import Store
else:
    # Only signatures name these: they are no values. `check` would read for nothing what recordings are made of.
    Growth = Trace = RankRecording = Recording = Place = SnapshotMemory = Any
    SourceFile = Identity = Effect = Step = Store = Any

__all__ = [
    "NOTHING_MORE", "About", "Callable", "DetailedFinding", "Edit", "Edits", "Effect", "Finding", "Findings",
    "Growth", "Holder", "HolderKind", "Identity", "Iterable", "Iterator", "Location", "Mapping", "Measured",
    "Place", "RankRecording", "Recording", "Related", "Remedy", "Rule", "Sequence", "Severity", "SnapshotMemory",
    "SourceFile", "Step", "Store", "Trace", "about", "all_or_none", "calls_at", "count", "events_at", "grading",
    "held", "may_be_tensor", "ms", "per_step", "percent", "places_of", "recorded_source", "records", "size",
    "storing", "unit_of", "with_method",
]  # fmt: skip
