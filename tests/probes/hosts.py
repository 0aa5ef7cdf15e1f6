"""A host for probes that are told of events by hand: nothing is observed, and no time is short."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from torchvet.probes.base import graphs
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.base.watcher import Pass
from torchvet.recording.records.base import Record


class ByHand:
    """What a probe asks of `Host`. What it writes is in `written`, what it tells the others in `heard`."""

    def __init__(self, known: Any = None) -> None:
        self.active = True
        self.sampling = False
        self.sampled_steps = 0
        self.tick = 1
        self.clock = SimpleNamespace(level="training")
        self.known = KnownMemory() if known is None else known
        self.ledger = Ledger()
        self.options: Any = SimpleNamespace(amp_mode=None, attempt=None, every_step=False, code=None, path="")
        self.written: list[Record] = []
        self.write = self.written.append
        self.heard: list[tuple[Any, ...]] = []
        self.seconds = 1e9
        self.broken: set[str] = set()

    def tell(self, *event: Any) -> None:
        self.heard.append(event)

    def looking(self, what: str, kind: str = "events") -> Any:
        return nullcontext()

    def graph_seconds(self) -> float:
        return self.seconds


class Knows:
    """Stands for `KnownMemory`: these storages, by key."""

    def __init__(self, *keys: int) -> None:
        self.keys = keys

    def storages(self) -> dict[int, tuple[str, int]]:
        return dict.fromkeys(self.keys, ("parameters", 0))


def entered(
    tensors: Any, retain: bool = False, create: bool = False, is_grad: bool = False, late: graphs.Late = graphs.never
) -> Pass:
    """A backward pass from these tensors."""
    return Pass(tensors, retain, create, is_grad, late)
