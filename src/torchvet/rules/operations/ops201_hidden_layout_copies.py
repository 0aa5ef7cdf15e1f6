"""OPS201: copies that only change the layout of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules import trace_costs
from torchvet.rules.base import Rule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.readers.trace_facts import Trace


class HiddenLayoutCopies(Rule):
    """Copies that only change a tensor's layout."""

    code = "OPS201"
    name = "hidden-layout-copies"
    summary = "Copies that only change a tensor's layout"
    severity = "info"

    what = (
        "Some operations work on one memory layout only, and copy what comes in another: convolutions between "
        "NCHW and NHWC, softmax and layer_norm over a strided dimension, and every `.contiguous()` on a "
        "transposed tensor."
    )
    why = (
        "A copy moves all bytes twice and computes nothing. It is hidden in the time of the operation, or stands "
        "as `aten::contiguous`, once forward and once backward."
    )
    when_not = (
        "One copy before a long chain of operations may pay (50 mixed operations: 26.3 ms, 6.0 ms after one "
        "copy). Matrix products take transposed operands as they are; elementwise operations keep strides."
    )
    proof = (
        "torch 2.13.0, CPU: softmax on a transposed tensor took 3.30 ms, on a contiguous one 0.39 ms; layer_norm "
        "likewise. 10 steps with two such copies each took 1,019 ms, 663 ms without them, and printed the same "
        "losses."
    )
    remedy = (
        "Choose the dimension of the operation rather than the layout (`softmax(x, dim=1)`); keep one layout "
        "throughout (`model.to(memory_format=torch.channels_last)` and the input with it, for convolutions on "
        "tensor cores)."
    )

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Linear(64, 256)
head = nn.Linear(256, 1)
optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=0.01)
for step in range(10):
    x = torch.randn(16, 512, 64)
    scores = embed(x).transpose(1, 2).contiguous()
    weights = torch.softmax(scores, dim=-1).transpose(1, 2).contiguous()
    loss = nn.functional.mse_loss(head(weights), x.sum(2, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = BAD.replace(".transpose(1, 2).contiguous()\n    weights = torch.softmax(scores, dim=-1)", "").replace(
        "    scores = embed(x).transpose(1, 2).contiguous()\n", "    weights = torch.softmax(embed(x), dim=1)\n"
    )

    def in_trace(self, trace: Trace) -> Iterator[Finding]:
        """Conversions between layouts, and kernels that `aten::contiguous` launched, by the time that they take."""
        found = trace_costs.worst(trace, lambda r: sum(c.seconds for c in r.layouts))
        if found is None:
            return
        rank = found.rank
        top = rank.layouts[0]
        parts = ", ".join(f"{c.what} {trace_costs.ms(c.seconds)}" for c in rank.layouts)
        yield trace_costs.observed(
            self, found, trace, cost=top,
            message=f"copies that change a layout take {trace_costs.of_step(rank, found.seconds)}"
            f"{trace_costs.where_text(top.where, top.phase)}: {parts}",
            cause="an operation got its tensor in a layout that it does not work on, or .contiguous() was called",
            advice="keep one layout: channels_last for model and input, or operate over the other dimension",
        )  # fmt: skip
