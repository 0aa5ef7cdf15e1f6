"""AMP202: backward runs inside an autocast region."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Edit
from torchvet.recording.autocast_records import AutocastBackward
from torchvet.rules.base import Rule
from torchvet.rules.precision import _autocast
from torchvet.rules.precision._observed import also, totals, was_active
from torchvet.rules.precision._region_mends import computes
from torchvet.rules.share_rule import observed

if TYPE_CHECKING:
    from torchvet.finding import Finding, Severity
    from torchvet.recording import RankRecording, Recording
    from torchvet.source.model import Event, SourceFile
    from torchvet.source.model.steps import Effect


class BackwardInsideAutocast(Rule):
    """Backward runs inside an autocast region."""

    code = "AMP202"
    name = "backward-inside-autocast"
    summary = "Backward runs inside an autocast region"
    severity = "warning"
    words = ("autocast",)

    what = (
        "Backward repeats the dtypes of the forward pass by itself. Inside an active region autocast casts the "
        "operators of backward once more, so that matrix products which ran in float32 in the forward pass run in "
        "half precision in the backward pass."
    )
    why = (
        "Whatever was kept in float32 for its precision, a head under `autocast(enabled=False)` or an encoder run "
        "before the region, gets half gradients. Nothing says so. PyTorch's documentation advises against it."
    )
    when_not = (
        "Where every operator of the forward pass ran under the same region the gradients came out the same to the "
        "bit: then it is only worth knowing (`info`). Frameworks' own `backward` leave the region by themselves."
    )
    proof = (
        "torch 2.13.0, CPU, bfloat16, an MLP of 64 units with a head under `autocast(enabled=False)`: gradients "
        "differed by up to 0.0045 of their largest entry where backward ran inside the region. Without such a head "
        "all 6 gradients were equal."
    )
    remedy = "End the `with` block after the loss and call `backward()` outside it."

    mend_changes_results = True

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64))
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = body(x)
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.mse_loss(head(hidden.float()), x.sum(1, keepdim=True))
        loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.5f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64))
head = nn.Linear(64, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
for step in range(40):
    x = torch.randn(64, 16)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = body(x)
        with torch.autocast("cpu", enabled=False):
            loss = nn.functional.mse_loss(head(hidden.float()), x.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.5f}")
"""

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: a region that was on."""
        return super().could_be_measured(recording) and was_active(recording)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Backward calls in an active region, graded by what had run in float32 before them."""
        for rank in recording.ranks:
            for seen in totals(rank, AutocastBackward, "place", "region"):
                yield self._observed(rank, seen)

    def _observed(self, rank: RankRecording, seen: AutocastBackward) -> Finding:
        harm = f"its {seen.products} matrix products looked at had run in {seen.dtype} anyway"
        if seen.full:
            harm = (f"{seen.full} of {seen.products} matrix products looked at had run in float32 and get their "
                    f"gradients in {seen.dtype}")  # fmt: skip
        return observed(
            self, rank, severity="warning" if seen.full else "info", place=seen.place,
            message=f"backward runs inside autocast: {harm}",
            cause="backward repeats the dtypes of the forward pass; an active region casts its operators once more",
            advice="end the `with` block after the loss and call backward outside it",
            related=also("region", "the region begins", seen.region),
        )  # fmt: skip

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """A backward of a step whose innermost region is on, or whose call stands in one."""
        if not file.mentions(*self.words) or not file.mentions("backward"):
            return
        seen: set[int] = set()
        for step in file.steps:
            for effect in step.of("backward"):
                region = self._region_around(effect)
                if region is not None and id(effect.event) not in seen:
                    seen.add(id(effect.event))
                    yield self._finding(file, effect.event, region)

    @staticmethod
    def _region_around(effect: Effect) -> _autocast.Region | None:
        known = _autocast.state(effect.event)
        if known is None and effect.at is not effect.event:
            known = _autocast.state(effect.at)
        return None if known is None or known.enabled == "no" or known.framework else known

    def _finding(self, file: SourceFile, event: Event, region: _autocast.Region) -> Finding:
        mixed = self._has_full_island(event, region)
        severity: Severity = "warning" if mixed else "info"
        harm = "parts that ran in float32 get gradients in half precision" if mixed else "its operators are cast again"
        return self.suspect(
            file, event, f"{file.segment(event.node)} runs inside autocast: {harm}", severity=severity,
            cause="backward repeats the dtypes of the forward pass; an active region casts its operators once more",
            advice="end the `with` block after the loss and call backward outside it", safe=not mixed,
            edits=self._dedent(file, event, region),
        )  # fmt: skip

    @staticmethod
    def _has_full_island(event: Event, region: _autocast.Region) -> bool:
        """Whether something of the region runs in float32 on purpose."""
        inner = {id(w): w for e in _autocast.inside(event.unit, region) for w in e.context.withs}
        found = [_autocast.region(event.unit.file, w, event.unit) for w in inner.values()]
        return any(r is not None and r.enabled == "no" for r in found)

    @staticmethod
    def _dedent(file: SourceFile, event: Event, region: _autocast.Region) -> list[Edit]:
        """Take backward and what follows it out of the block; nothing where the lines are not simple."""
        known = _autocast.statement_of(event.unit, region)
        if known is None or event.statement not in known[1].body[1:] or len(known[1].items) != 1:
            return []
        block = known[1]
        tail = block.body[block.body.index(event.statement) :]
        if any(s.lineno != s.end_lineno or not isinstance(s, (ast.Expr, ast.Assign)) for s in tail):
            return []
        first, last = event.statement.lineno, tail[-1].lineno
        if any(first <= e.line <= last and computes(file, e) for e in event.unit.events):
            return []  # another forward pass, which belongs into a region
        depth = event.statement.col_offset - block.col_offset
        lines = [(n, file.lines[n - 1]) for n in range(first, last + 1) if file.lines[n - 1].strip()]
        if any(not text[: event.statement.col_offset].isspace() for _, text in lines):
            return []
        return [Edit(path=file.path, start=(n, 1), end=(n, depth + 1), text="") for n, _ in lines]
