"""Growth that begins with the second training of a program."""

from __future__ import annotations

from pathlib import Path

from example_runs import forked

PROGRAM = """
import torch
from torch import nn


class Layer:
    keys = torch.zeros(16, 0, 64)

    def update(self, new):
        self.keys = torch.cat([self.keys, new], dim=1)  # GROWS
        return self.keys.mean(1)


def train(steps, extra):
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        loss = (model(torch.randn(16, 64)) - extra(torch.randn(16, 24, 64))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    layers = [Layer()]
    train(60, lambda x: x.mean(1))
    train(140, layers[0].update)


main()
"""


def test_what_only_the_second_training_keeps_is_named_with_its_line(tmp_path: Path) -> None:
    (finding,) = [f for f in forked(PROGRAM, tmp_path) or [] if f["code"] == "MEM102"]
    assert finding["holder"]["name"] in ("layers", "layers[0]", "layers[0].keys")
    line = next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if "# GROWS" in text)
    assert finding["location"]["line"] == line
    assert abs(finding["measured"]["bytes_per_step"] - 16 * 24 * 64 * 4) < 0.1 * 16 * 24 * 64 * 4
