"""Steps on the simulated GPU beside the same steps on the CPU, in turns, in one process.

`python benchmarks/simulated_speed.py [--turns N]` prints milliseconds of CPU time and the ratio; medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

SIZES = {"small": (128, 2, 8, 32), "middling": (224, 2, 8, 64), "medium": (256, 4, 8, 64), "large": (512, 6, 8, 128)}
"""Width, layers, batch, length of a transformer encoder."""


def trainer(device: str, width: int, layers: int, batch: int, length: int) -> Callable[[], None]:
    """A function that does one training step."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0, norm_first=True)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randn(batch, length, width).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    """CPU seconds of one step."""
    started = time.process_time()
    step()
    return time.process_time() - started


def main() -> None:
    """Print the table."""
    from torchvet.simulate.cards import card_of
    from torchvet.simulate.start import start

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=15)
    turns = parser.parse_args().turns
    start(card_of("24GiB"))
    print(f"{'':8} {'CPU ms':>8} {'simulated ms':>13} {'CPU/simulated':>14}")
    for name, size in SIZES.items():
        sides = [trainer(device, *size) for device in ("cpu", "cuda")]
        for step in sides:
            step()
        taken = [[seconds(step) for step in sides] for _ in range(turns)]
        plain, simulated = (statistics.median(t[side] for t in taken) * 1e3 for side in (0, 1))
        print(f"{name:8} {plain:8.1f} {simulated:13.1f} {plain / simulated:14.2f}", flush=True)


if __name__ == "__main__":
    main()
