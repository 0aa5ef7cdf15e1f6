"""AMP211: mixed precision is on, and measured against float32 it does not pay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.amounts import percent
from torchvet.finding import Finding, Measured, Remedy
from torchvet.recording.amp import Trial, result_of
from torchvet.recording.amp_records import AmpRun
from torchvet.rules.base import Rule
from torchvet.rules.growth_rule import location_of

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.recording.amp import AmpResult

_SLOWER, _NO_FASTER, _SAVES = 1.1, 0.98, 0.9


class AmpDoesNotPay(Rule):
    """Mixed precision is on, and measured against float32 it does not pay."""

    code = "AMP211"
    name = "amp-does-not-pay"
    summary = "Mixed precision is on, and measured against float32 it does not pay"
    severity = "warning"

    what = (
        "`torchvet amp` runs the program in float32, float16 with loss scaling and bfloat16, each several times in "
        "turns, without editing it, and times the same steps. The program asks for mixed precision itself, and its "
        "steps take as long as in float32, or longer."
    )
    why = (
        "Autocast casts weights and inputs at every use, and keeps a half copy of each weight: without hardware that "
        "multiplies in that dtype, or with layers that are small, the casts cost more than they save."
    )
    when_not = (
        "Only what was measured here counts: times on a CPU say nothing about a GPU. Memory may be what it is for: a "
        "program that is hardly slower and saves a tenth of its peak is silent. A program without mixed precision gets "
        "the table and no finding."
    )
    proof = (
        "torch 2.13.0, CPU (a Xeon with AMX, one thread): a step of the first example took 4.0 ms of CPU time in "
        "float32 (3.8 to 4.2 in two runs), 4.6 ms in bfloat16 (4.6 to 4.6) and 6.9 ms in float16 (6.8 to 7.0); the "
        "losses of all three ended within 0.001 of 8.081."
    )
    remedy = (
        "Leave autocast off on this device, or use the half precision that it computes natively (bfloat16 on CPUs with "
        "AMX or AVX512-BF16, either on cards with tensor cores); make dimensions multiples of 8."
    )
    found_with = ("amp",)
    mend_changes_results = True

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()) for _ in range(24)]
model = nn.Sequential(*layers, nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()) for _ in range(24)]
model = nn.Sequential(*layers, nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """By the runs of `torchvet amp`: the mode that the program asks for against float32."""
        for rank in recording.ranks:
            result = result_of(Trial(mode=r.mode, run=r) for r in rank.all(AmpRun))
            if result is not None and result.wanted is not None:
                yield from self._judge(result)

    def _judge(self, result: AmpResult) -> Iterator[Finding]:
        mode = result.wanted
        time, memory = (result.ratio(mode), result.memory(mode)) if mode is not None else (None, None)
        if mode is None or time is None or time < _NO_FASTER:
            return
        saves = memory is not None and memory <= _SAVES
        if saves and time < _SLOWER:
            return
        side, plain = result.sides[mode], result.sides["float32"]
        slower = f"{time:.2f} times as long as in float32"
        device = "this CPU" if result.device == "cpu" else "this GPU"
        # The quickest run of the one must be slower than the slowest of the other: else it is noise.
        certain = time >= _SLOWER and side.spread[0] > plain.spread[1]
        yield Finding(
            code=self.code, name=self.name, severity="warning" if certain else "info", evidence="observed",
            message=f"a step under {mode} takes {slower} on {device}"
            + (f", and saves {percent(1 - memory)} of the peak" if saves and memory is not None else ""),
            location=location_of(result.place),
            cause=f"{result.device} computes {mode} " + ("natively: what is computed is too small to gain by it"
                                                         if side.native else "by way of float32"),
            remedy=Remedy(summary=f"leave autocast off on {device}"), device=result.device,
            measured=Measured(steps=result.steps, seconds_per_step=side.spread[0] - plain.spread[0]),
        )  # fmt: skip
