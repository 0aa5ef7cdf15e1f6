"""What looking for values that are not finite costs a healthy step, and what a replay costs once.

In one process, under `torchvet.watch()`, blocks of steps with the watcher told of events and without take turns; the
ratio is that of the medians. The replay is that of a loss that is made NaN in the last step. Nothing is asserted: read
the table, on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchvet
from torchvet.probes.numerics.nonfinite import NonFiniteWatcher
from torchvet.recording import read
from torchvet.recording.records.nonfinite import NonFinite

SIZES = {"tiny": (64, 2, 8, 32), "small": (128, 4, 16, 64), "medium": (384, 6, 16, 128)}
"""Width, layers, batch, length."""
_BLOCK = 4


class Model(nn.Module):
    """A transformer encoder over tokens, with dropout."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.embedding = nn.Embedding(1000, width)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.head(self.body(self.embedding(tokens)))
        return logits


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int, length: int, bad: bool) -> float:
    """One training step; its seconds."""
    tokens = torch.randint(0, 1000, (batch, length))
    started = time.perf_counter()
    logits = model(tokens)
    if bad:
        logits = logits * torch.log(logits * 0 - 1)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - started


def measure(name: str, steps: int) -> tuple[list[float], list[float], float]:
    """Seconds of steps without the watcher, of steps with it, and of the replay."""
    width, layers, batch, length = SIZES[name]
    torch.manual_seed(0)
    model = Model(width, layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        with torchvet.watch(record=Path(folder) / "run.vet") as watch:
            assert watch._session is not None and watch._session.observer is not None
            bus: Any = watch._session.observer._bus
            everyone = list(bus._all)
            others = [w for w in everyone if not isinstance(w, NonFiniteWatcher)]
            seconds: tuple[list[float], list[float]] = ([], [])
            for number in range(steps):
                on = number // _BLOCK % 2
                bus._all, bus._listening = everyone if on else others, {}
                taken = step(model, optimizer, batch, length, False)
                if number >= 4 * _BLOCK:
                    seconds[on].append(taken)
            bus._all, bus._listening = everyone, {}
            step(model, optimizer, batch, length, False)
            step(model, optimizer, batch, length, True)
        records = read(Path(folder) / "run.vet").ranks[0].all(NonFinite)
    return *seconds, records[0].replay_seconds


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--steps", type=int, default=160)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| transformer | step without | with | ratio | adds | a replay |\n|---|---|---|---|---|---|")
    for name in options.sizes:
        off, on, replay = measure(name, options.steps)
        one, other = statistics.median(off), statistics.median(on)
        adds = f"{(other - one) * 1e3:+.2f} ms"
        print(
            f"| {name} | {one * 1e3:.1f} ms | {other * 1e3:.1f} ms | {other / one:.3f} | {adds} | {replay:.2f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
