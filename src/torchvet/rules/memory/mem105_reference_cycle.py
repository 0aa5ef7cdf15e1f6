"""MEM105: tensors hang in reference cycles that only the cyclic collector frees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Holder, Measured
from torchvet.recording.records import Census, Stranger
from torchvet.recording.training_records import CollectorUse
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.growth_rule import allocated
from torchvet.rules.memory._back_references import held_weakly
from torchvet.rules.memory._exceptions import without_traceback
from torchvet.rules.memory._packed import detached_when_packed, is_packed, packed_as_they_are
from torchvet.rules.memory._weak_owners import own_self_weak
from torchvet.rules.share_rule import observed, peak_of
from torchvet.rules.strangers import names_of, stranger_findings, stranger_location

if TYPE_CHECKING:
    from torchvet.finding import Edit
    from torchvet.recording import RankRecording, Recording
    from torchvet.source.model import SourceFile


class ReferenceCycle(Rule):
    """Tensors hang in reference cycles that only the cyclic collector frees."""

    code = "MEM105"
    name = "reference-cycle"
    summary = "Tensors hang in reference cycles that only the cyclic collector frees"
    severity = "warning"

    what = (
        "Objects that refer to each other in a ring (child and parent, an object and a lambda that captured it, "
        "an inner function that calls itself) do not die when the last name is gone. They wait for Python's "
        "cyclic collector, and so do the tensors that they hold. A ring through C++ is worse, since nothing frees it: "
        "a pack hook for saved tensors that hands back an operator's own output (`lambda t: t`) makes one."
    )
    why = (
        "The collector is triggered by how many container objects were allocated, not by their bytes: hundreds of "
        "megabytes in a few dozen objects do not wake it. Memory rises between collections, and a peak that would "
        "fit runs out of memory by chance."
    )
    when_not = (
        "Cycles without tensors, or with small ones, cost nothing worth mending. Cycles built once and alive as "
        "long as the program are no growth either."
    )
    proof = (
        "torch 2.13.0, CPU, Python 3.11 (collector thresholds 700, 10, 10). 300 objects that refer to themselves "
        "and hold 1 MB each peaked at 283 MB. The example leaves three states, 786,432 bytes, per step to the "
        "collector: it peaked at 17.6 MB in one run and at 26.2 MB in another, as the collector happened to run; "
        "with a weak reference to the parent at 1.3 MB in both. An inner function that calls itself keeps the 1 "
        "MB tensor that it closes over until the next collection, every time."
    )
    remedy = (
        "Break the ring: hold the way back as `weakref.ref(parent)`, pass objects as arguments instead of "
        "capturing `self` in a callback stored on `self`, turn a recursive inner function into a plain function, "
        "or clear the tensor attribute when the object is done with. `gc.collect()` once per epoch bounds the "
        "damage and costs a pause; it does not fix the cause. A pack hook returns `t.detach()`."
    )

    BAD = """\
import torch
from torch import nn


class Node:
    def __init__(self, state, parent=None):
        self.state = state
        self.parent = parent
        self.children = []

    def expand(self, dynamics):
        self.children.append(Node(torch.tanh(dynamics(self.state)), parent=self))
        return self.children[-1]


def plan(dynamics, state):
    root = Node(state)
    with torch.no_grad():
        leaf = root.expand(dynamics).expand(dynamics)
    return leaf.state.max(1, keepdim=True).values


torch.manual_seed(0)
dynamics, value = nn.Linear(256, 256), nn.Linear(256, 1)
optimizer = torch.optim.SGD(value.parameters(), lr=0.1)
for step in range(40):
    state = torch.randn(256, 256)
    loss = nn.functional.mse_loss(value(state), plan(dynamics, state))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import weakref

import torch
from torch import nn


class Node:
    def __init__(self, state, parent=None):
        self.state = state
        self.parent = weakref.ref(parent) if parent else None
        self.children = []

    def expand(self, dynamics):
        self.children.append(Node(torch.tanh(dynamics(self.state)), parent=self))
        return self.children[-1]


def plan(dynamics, state):
    root = Node(state)
    with torch.no_grad():
        leaf = root.expand(dynamics).expand(dynamics)
    return leaf.state.max(1, keepdim=True).values


torch.manual_seed(0)
dynamics, value = nn.Linear(256, 256), nn.Linear(256, 1)
optimizer = torch.optim.SGD(value.parameters(), lr=0.1)
for step in range(40):
    state = torch.randn(256, 256)
    loss = nn.functional.mse_loss(value(state), plan(dynamics, state))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def mends(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The way back to what holds an object, held weakly; an exception kept without its traceback; or what a hook
        packs, without its graph."""
        if is_packed(finding):
            return detached_when_packed(file, finding)
        return held_weakly(file, finding) or own_self_weak(file, finding) or without_traceback(file, finding)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Garbage that was alive when the names were searched, or that the collector was seen to free."""
        found = list(
            stranger_findings(
                self, recording, "cycle", advice=_ADVICE,
                cause="an object that refers back to itself keeps its tensors until Python's cyclic "
                "collector runs, and "
                "that counts objects, not bytes",
            )
        )  # fmt: skip
        yield from found
        yield from packed_as_they_are(self, recording)
        for rank in recording.ranks:
            use = rank.last(CollectorUse)
            # Once is an accident (an exception while importing keeps a frame); a step's habit shows in most steps.
            if use is None or found or _on_ctx(rank) or use.steps < max(3, use.sampled // 2):
                continue
            if use.freed:
                finding = self._collected(recording, rank, use)
                if (finding.measured.share or 0.0) >= _WORTH_SAYING:
                    yield finding

    def _collected(self, recording: Recording, rank: RankRecording, use: CollectorUse) -> Finding:
        rate = use.freed / use.sampled
        held = rate * max(1, use.longest)
        share = held / (held + peak_of(rank))
        who = [s for c in rank.all(Census) for s in c.strangers if s.kind == "cycle"]
        return observed(
            self, rank, severity=grading.of_share(share), place=stranger_location(who, recording) or use.place,
            message=f"{words.size(rate)} a step is freed by the cyclic collector only, up to {use.longest} steps late "
            f"({words.size(held)} held in between)",
            cause="tensors allocated here end up in a reference cycle, which reference counting cannot free",
            advice=_ADVICE, related=[allocated(s) for s in use.sites[:3]],
            measured=Measured(bytes_per_step=rate, bytes=int(held), share=share), holder=_holder(who),
        )  # fmt: skip


_WORTH_SAYING = 0.01
"""Share of the peak below which garbage is not worth a line: a caught exception's few bytes, say."""

_ADVICE = (
    "break the cycle: hold the back reference weakly (`weakref.ref`), pass it as an argument instead "
    "of storing it, or set "
    "it to None when the step is done"
)


def _holder(who: list[Stranger]) -> Holder | None:
    names = names_of(who)
    return Holder(name=names[0], kind="cycle", path=names) if names else None


def _on_ctx(rank: RankRecording) -> bool:
    """Whether the garbage was traced to a custom Function's ctx, which is MEM107's."""
    return any(s.kind == "ctx" for c in rank.all(Census) for s in c.strangers)
