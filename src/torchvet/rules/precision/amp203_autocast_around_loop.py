"""AMP203: one autocast region holds the whole training loop, so that its copies of the weights go stale."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Measured
from torchvet.recording.autocast_records import StaleWeights
from torchvet.rules.base import Rule
from torchvet.rules.precision import _autocast
from torchvet.rules.precision._observed import also, totals, was_active
from torchvet.rules.precision._region_mends import into_the_loop
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording import RankRecording, Recording
    from torchvet.source.model import Event, SourceFile
    from torchvet.source.model.steps import Step


class AutocastAroundLoop(Rule):
    """One autocast region holds the whole training loop, so that its copies of the weights go stale."""

    code = "AMP203"
    name = "autocast-around-loop"
    summary = "One autocast region holds the training loop: its half copies of the weights go stale"
    severity = "error"
    words = ("autocast",)

    what = (
        "Autocast casts each float32 weight to half precision once and keeps the copy until the outermost region "
        "ends. With the loop inside one region every forward pass uses the copies made in the first step, whatever "
        "the optimizer has done to the weights since."
    )
    why = (
        "The model does not learn: the loss is that of the first weights for ever, while the real weights follow "
        "gradients that belong to other values. Nothing raises. A region nested within does not refresh the copies."
    )
    when_not = (
        "A region that is opened anew in each step drops its copies. Evaluation loops may share one region, since no "
        "weight changes. With `cache_enabled=False`, or with weights that are half already, no copies are kept."
    )
    proof = (
        "torch 2.13.0, CPU, bfloat16. Loss of the example after 10, 20, 30 and 40 steps: 20.0, 13.3, 14.2, 13.1 with "
        "the loop inside the region; 0.29, 0.11, 0.17, 0.09 with the region inside the loop."
    )
    remedy = "Open the region inside the loop, around forward pass and loss only."

    mend_changes_results = True

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(batches):
    for step, x in enumerate(batches):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")


with torch.autocast("cpu", dtype=torch.bfloat16):
    train([torch.randn(64, 16) for _ in range(40)])
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(batches):
    for step, x in enumerate(batches):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {loss.item():.4f}")


train([torch.randn(64, 16) for _ in range(40)])
"""

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: a region that was on."""
        return super().could_be_measured(recording) and was_active(recording)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Layers that read old copies after several optimizer steps within one region."""
        for rank in recording.ranks:
            for seen in totals(rank, StaleWeights, "region", "change", "kind"):
                if seen.kind == "step" and seen.changes > 1 and seen.stale:
                    yield self._observed(rank, seen)

    def _observed(self, rank: RankRecording, seen: StaleWeights) -> Finding:
        return observed(
            self, rank, severity="error", place=seen.region,
            message=f"after {seen.changes} optimizer steps within this autocast region layers still read the weights' "
            f"first half copies, off by up to {seen.deviation:.2g} of the largest weight",
            cause="autocast keeps each weight's half copy until the outermost region ends, and the steps lie in it",
            advice="open the region inside the loop, around forward pass and loss only",
            measured=Measured(steps=seen.changes),
            related=[*also("stepped", "the weights change here", seen.change),
                     *also("stale", f"{seen.module} reads an old copy", seen.forward)],
        )  # fmt: skip

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """A step with an optimizer whose loop lies within a region that keeps its copies."""
        if not file.mentions(*self.words):
            return
        seen: set[int] = set()
        for step in file.steps:
            changes = step.of("step", "scaler_step")
            if step.loop is None or not changes or self._has_own_precision(step):
                continue
            for at, region in self._regions_around(file, step):
                if region.cached and region.enabled != "no" and id(region.node) not in seen:
                    seen.add(id(region.node))
                    yield self._finding(file, step, at, region, changes[0].event)

    @staticmethod
    def _has_own_precision(step: Step) -> bool:
        """Whether a region in the loop is off: the forward pass may be in there."""
        withs = {id(w): w for e in step.unit.events if step.repeats(e) for w in e.context.withs}
        inner = [w for w in withs.values() if _after(w, step)]
        found = [_autocast.region(step.unit.file, w, step.unit) for w in inner]
        return any(r is not None and r.enabled == "no" for r in found)

    @staticmethod
    def _regions_around(file: SourceFile, step: Step) -> Iterator[tuple[Event, _autocast.Region]]:
        """Regions of the step's unit around its loop, else those around the calls of the unit."""
        loop = step.loop
        inside = next((e for e in step.unit.events if step.repeats(e)), None)
        assert loop is not None
        if inside is None:
            return
        own = [r for r in _autocast.regions(inside) if not _after(r.node, step)]
        if own:
            yield inside, own[0]
            return
        for caller in file.callers(step.unit):
            found = _autocast.regions(caller)
            if found:
                yield caller, found[0]

    def _finding(self, file: SourceFile, step: Step, at: Event, region: _autocast.Region, change: Event) -> Finding:
        return self.suspect(
            file, at, f"{file.segment(change.node)} changes weights whose half copies this autocast region keeps until "
            "its end: every step after the first runs on stale weights",
            node=region.node, severity="error" if region.enabled == "yes" else "warning",
            cause="autocast keeps each weight's half copy until the outermost region ends, and the loop lies in it",
            advice="open the region inside the loop, around forward pass and loss only",
            edits=into_the_loop(file, step, at, region),
            related=[self.also(file, "stepped", change, file.segment(change.node))],
        )  # fmt: skip


def _after(node: ast.expr, step: Step) -> bool:
    """Whether an expression stands after the head of the step's loop; decorators and outer `with`s do not."""
    head = step.loop.node if step.loop is not None else node
    return (node.lineno, node.col_offset) > (head.lineno, head.col_offset)  # type: ignore[attr-defined]
