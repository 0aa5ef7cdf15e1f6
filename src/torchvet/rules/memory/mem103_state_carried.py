"""MEM103: recurrent state is carried to the next step together with its graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules import words
from torchvet.rules.growth_rule import GrowthRule

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.recording import Recording
    from torchvet.recording.growth import Growth
    from torchvet.source.stores import Store


class StateCarried(GrowthRule):
    """Recurrent state is carried to the next step together with its graph."""

    code = "MEM103"
    name = "state-carried"
    summary = "Recurrent state is carried to the next step together with its graph"
    severity = "error"

    what = (
        "The state that a recurrent model returns refers to the graph of the step that computed it. Fed into the "
        "next step it ties the new graph to the old one, so that the newest state owns the graphs of all steps so "
        "far. The same happens to memory tokens or any module attribute that is updated from its own last value."
    )
    why = (
        "Memory grows by the activations of one step in every step. Where a backward pass runs, with "
        "`retain_graph=True`, it walks through all earlier steps too, so that time per step grows as well."
    )
    when_not = (
        "State that is detached between steps, or computed under `no_grad` or `inference_mode`, has no history. A "
        'training loop with a plain `backward()` cannot grow like this: its second step raises "Trying to '
        'backward through the graph a second time". A fixed number of steps that share one backward is '
        "backpropagation through time, and meant."
    )
    proof = (
        "torch 2.13.0, CPU. The example (LSTM of 64 units, batch 32, chunks of 10) grows by 1,466,368 bytes per "
        "chunk, and by 0 under `no_grad` with the same losses. A GRU(32, 64) trained with "
        "`backward(retain_graph=True)` (20 time steps, batch 8) grows by 307,200 bytes per step and took 3 ms of "
        "CPU time for the first step, 110 ms for the 37th; with `state.detach()` it grows by 0 and stays at 3 ms. "
        "With a plain `backward()` GRU and LSTM raise at the second step; `retain_graph=True` followed by an "
        "optimizer step raises there too."
    )
    remedy = (
        "Detach the state between steps: `state = state.detach()`, and for an LSTM, whose state is a tuple, "
        "`state = tuple(s.detach() for s in state)`. Gradients then end at the border of the step (truncated "
        "backpropagation through time). Where nothing is trained, run the model under `torch.no_grad()`. Do not "
        "answer the error with `retain_graph=True`: it turns the error into this leak."
    )

    BAD = """\
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 64, batch_first=True)
        self.readout = nn.Linear(64, 16)

    def forward(self, chunk, state):
        hidden, state = self.rnn(chunk, state)
        return self.readout(hidden), state


torch.manual_seed(0)
model = Forecaster().eval()
signal = torch.randn(32, 401, 16)
state = None
for step in range(40):
    chunk = signal[:, 10 * step : 10 * step + 11]
    forecast, state = model(chunk[:, :-1], state)
    loss = nn.functional.mse_loss(forecast, chunk[:, 1:])
    if step % 10 == 9:
        print(f"chunk {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 64, batch_first=True)
        self.readout = nn.Linear(64, 16)

    def forward(self, chunk, state):
        hidden, state = self.rnn(chunk, state)
        return self.readout(hidden), state


torch.manual_seed(0)
model = Forecaster().eval()
signal = torch.randn(32, 401, 16)
state = None
for step in range(40):
    chunk = signal[:, 10 * step : 10 * step + 11]
    with torch.no_grad():
        forecast, state = model(chunk[:, :-1], state)
    loss = nn.functional.mse_loss(forecast, chunk[:, 1:])
    if step % 10 == 9:
        print(f"chunk {step + 1} loss {loss.item():.4f}")
"""

    specificity = 2
    bounded_matters = True

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """State that grows to the end, and state that was carried on for long before it was let go of."""
        yield from super().in_recording(recording)
        for rank, summary in recording.growth():
            for growth in summary.dropped:
                if growth.kind != "evaluation" and self.recognises(growth, recording):
                    yield self.finding(growth, recording, rank.program.device if rank.program else None)

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """A name carries its graph into the next step, through more than sums and averages, or on a module."""
        if growth.graph_per_step < 0.5 * growth.bytes_per_step or not growth.carrier_ops:
            return False
        return growth.holding.on_module or any(_plain(op) not in _ACCUMULATING for op in growth.carrier_ops)

    def cause(self, growth: Growth, store: Store | None) -> str:
        """State goes into the next forward pass with its history."""
        name = growth.holding.name
        ops = " → ".join(_plain(op) for op in growth.carrier_ops[:4])
        return (
            f"{name} goes into the next step's forward pass ({ops}) with the autograd graph of all steps before it: "
            f"{words.number(growth.nodes_per_step)} nodes more each step"
        )

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Cut the graph between steps; a tuple has no `.detach()`."""
        name = growth.holding.name
        if growth.holding.container in ("tuple", "list"):
            cut = f"`{name} = {growth.holding.container}(t.detach() for t in {name})`"
        else:
            cut = f"`{name} = {name}.detach()`"
        return f"cut the graph between steps: {cut} (and drop `retain_graph=True` if it was added for this)"


_ACCUMULATING = frozenset(
    (
        "Add", "Sub", "Mul", "Div", "Lerp", "Maximum", "Minimum", "Neg", "Cat", "Stack", "Where", "CopySlices", "Clone",
        "ToCopy", "Sum", "Mean", "Select", "Unbind", "Squeeze", "Unsqueeze", "View", "UnsafeView", "Slice", "Alias",
        "Addcmul", "Addcdiv", "Pow", "Expand", "Index", "AsStrided", "Detach",
    )
)  # fmt: skip
"""Operators that sums, averages and concatenations are made of: a chain of these alone is MEM101's."""


def _plain(op: str) -> str:
    """`AddmmBackward0` → `Addmm`."""
    return op.split("::")[-1].rstrip("0123456789").removesuffix("Backward")
