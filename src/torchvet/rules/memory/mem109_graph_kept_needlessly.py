"""MEM109: retain_graph=True although no second backward uses the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.finding import Finding, Measured
from torchvet.recording.training_records import BackwardUse
from torchvet.rules import grading, words
from torchvet.rules.base import Rule
from torchvet.rules.share_rule import observed, peak_of

if TYPE_CHECKING:
    from torchvet.recording import RankRecording, Recording


class GraphKeptNeedlessly(Rule):
    """retain_graph=True although no second backward uses the graph."""

    code = "MEM109"
    name = "graph-kept-needlessly"
    summary = "retain_graph=True although no second backward uses the graph"
    severity = "warning"

    what = (
        "`backward()` frees each node's saved tensors as it passes. With `retain_graph=True` they stay until the "
        "last tensor that leads to the graph is gone: in a plain loop that is when `loss` and the model's output "
        "are bound anew, after the next forward pass has already built its own graph."
    )
    why = (
        "Two graphs are alive at once, so the peak rises by up to the activations of a whole step. If the loss is "
        "also stored, the peak turns into growth (MEM101)."
    )
    when_not = (
        "Several losses sent backward one by one through a shared graph need it in all but the last call, and so "
        "do repeated gradients of one graph. `create_graph=True` retains the graph on its own."
    )
    proof = (
        "torch 2.13.0, CPU. Peak of the example: 1,325,152 bytes with `retain_graph=True`, 793,688 without, same "
        "losses; between steps 745,560 bytes are alive instead of 211,028."
    )
    remedy = (
        "Drop the argument. If an error then says that the graph is gone, something is carried over from the step "
        "before: detach that (MEM103). Where two losses share a graph, send their sum backward once."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(256, 32), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    features, target = torch.randn(256, 32), torch.randint(0, 10, (256,))
    loss = nn.functional.cross_entropy(model(features), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Calls with `retain_graph=True` none of whose graphs was gone through again."""
        for rank in recording.ranks:
            latest = {(u.place, u.flag): u for u in rank.all(BackwardUse)}
            for use in latest.values():
                if use.flag == "retain_graph" and use.judged >= 3 and not use.reused:
                    yield self._finding(rank, use)

    def _finding(self, rank: RankRecording, use: BackwardUse) -> Finding:
        peak = max(peak_of(rank), use.held)
        share = use.held / peak if peak else 0.0
        return observed(
            self, rank, severity=grading.of_share(share), place=use.place,
            message=f"retain_graph=True keeps {words.size(use.held)} of saved tensors after backward, "
            f"{share:.0%} of the "
            f"peak; none of {use.judged} such graphs was used again",
            cause="backward frees what the graph saved unless it is told to retain it; here no second backward follows",
            advice="drop `retain_graph=True`; if the error about a second backward comes up, "
            "something carries its graph "
            "from step to step: detach that",
            measured=Measured(bytes=use.held, peak_bytes=peak, share=share),
        )  # fmt: skip
