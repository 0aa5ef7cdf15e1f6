"""DEV106: nn.DataParallel, which is slower than one process per device and loses autocast's dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules.base import Rule
from torchvet.source.model.units import terminal

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.source.model import Event, SourceFile


class DataParallel(Rule):
    """nn.DataParallel, which is slower than one process per device and loses autocast's dtype."""

    code = "DEV106"
    name = "data-parallel"
    summary = "nn.DataParallel copies the model at every step and loses autocast's dtype"
    severity = "info"
    words = ("DataParallel(",)

    what = (
        "`nn.DataParallel` copies the whole model to every device at each forward, runs the copies in threads under "
        "one interpreter lock and gathers all outputs on the first device. Its threads are given autocast's on/off "
        "flag but not its dtype: under `autocast('cuda', dtype=torch.bfloat16)` the replicas compute in float16."
    )
    why = (
        "The first device does more work and holds more memory than the others. With bfloat16 the replicas have "
        "float16's range, without the scaler that it needs, so that losses and gradients can overflow."
    )
    when_not = (
        "With one device the wrapper passes its input through. A float16 autocast loses nothing, since that is the "
        "default dtype; an autocast within the model's own `forward` holds in the threads as well."
    )
    proof = (
        "Not measured on a GPU: torch 2.13.0's `parallel_apply` opens `torch.amp.autocast(device_type, "
        "enabled=autocast_enabled)` in each thread, with no dtype, and the docstring of `DataParallel` recommends "
        "DistributedDataParallel."
    )
    remedy = "Start one process per device with `torchrun` and wrap the model in `DistributedDataParallel`."

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
model = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 16, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        prediction = model(x)
    loss = nn.functional.mse_loss(prediction.float(), x.sum(1, keepdim=True))
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
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
if torch.distributed.is_available() and torch.distributed.is_initialized():
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(40):
    x = torch.randn(64, 16, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        prediction = model(x)
    loss = nn.functional.mse_loss(prediction.float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """Wrapping in `nn.DataParallel`; a warning where a forward runs under autocast in bfloat16."""
        if not file.mentions(*self.words):
            return
        for event in file.calls("DataParallel"):
            dotted = file.dotted(event.call.func)
            if dotted in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel") and event.call.args:
                yield self._finding(file, event, self._under_bfloat16(file))

    @staticmethod
    def _under_bfloat16(file: SourceFile) -> Event | None:
        """An autocast region in bfloat16 outside the modules' own methods."""
        if not file.mentions("autocast") or not file.mentions("bfloat16"):
            return None
        for event in file.calls("autocast"):
            given = [k.value for k in event.call.keywords if k.arg == "dtype"]
            outside = event.unit.owner is None or "module" not in file.roles.of_class(event.unit.owner)
            if outside and isinstance(event.statement, ast.With) and any(terminal(g) == "bfloat16" for g in given):
                return event
        return None

    def _finding(self, file: SourceFile, event: Event, autocast: Event | None) -> Finding:
        model = file.segment(event.call.args[0])
        lost = f"; its replicas run in float16, not in the bfloat16 of line {autocast.line}" if autocast else ""
        return self.suspect(
            file, event, f"nn.DataParallel copies {model} to every device at each step{lost}",
            cause="DataParallel's threads are given autocast's flag without its dtype" if autocast
            else "DataParallel works in threads of one process and gathers everything on the first device",
            advice="use DistributedDataParallel, one process per device", severity="warning" if autocast else "info",
        )  # fmt: skip
