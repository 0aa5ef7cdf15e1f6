"""Watching for values that are not finite changes nothing: weights, random states, files, output."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchvet
from torchvet.recording import read
from torchvet.recording.records.nonfinite import NonFinite


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 2))


def train(seed: int, half: bool, bad: int | None, steps: int = 50) -> list[torch.Tensor]:
    """A loop with dropout and batch norm; in step `bad` the loss is NaN, and the program leaves that step out."""
    torch.manual_seed(seed)
    random.seed(seed)
    net = _net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, enabled=half)
    seen = []
    for step in range(steps):
        x = torch.randn(8, 6) * random.random()
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            out = net(x).float()
            if step == bad:
                out = torch.log(out - out.detach() - 1)
            loss = out.square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if step != bad or half:
            scaler.step(optimizer)
            scaler.update()
        seen.append(loss.detach())
    states = [torch.get_rng_state(), torch.tensor([random.random()])]
    return [*(t.clone() for t in net.state_dict().values()), *seen, *states]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Bit for bit, NaN included."""
    return len(one) == len(other) and all(
        torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16-scaler"])
@pytest.mark.parametrize("bad", [None, 23], ids=["healthy", "replayed"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_fifty_steps_are_the_same_bit_for_bit(seed: int, bad: int | None, half: bool, tmp_path: Path) -> None:
    bare = train(seed, half, bad)
    with torchvet.watch(record=tmp_path / "run.vet"):
        watched = train(seed, half, bad)
    assert same(bare, watched)
    records = read(tmp_path / "run.vet").ranks[0].all(NonFinite)
    assert len(records) == (bad is not None), "a step that a scaler skips is not counted: the number may differ"
    assert all(r.found == "operator" and r.reason == "log-of-negative" for r in records), records


def test_a_difference_would_be_seen() -> None:
    assert not same(train(0, False, None, 3), train(1, False, None, 3))


NOISY = """
import torch
from torch import nn

shared = torch.zeros(3).share_memory_()
history = []


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.shared = shared

    def forward(self, x):
        with log.open("a") as file:
            file.write("x")
        stream.write("y")
        stream.flush()
        print("z")
        self.shared.add_(1)
        history.append(1.0)
        return torch.sqrt(self.inner(x) * 0 - 1)


def main():
    net = Noisy()
    for _ in range(3):
        net(torch.ones(2, 3)).sum().backward()
"""


def test_what_a_step_does_outside_torch_is_not_done_twice(tmp_path: Path) -> None:
    log, program = tmp_path / "log.txt", tmp_path / "noisy.py"
    program.write_text(NOISY)
    with (tmp_path / "stream.txt").open("w") as stream, contextlib.redirect_stdout(io.StringIO()) as printed:
        names: dict[str, Any] = {"log": log, "stream": stream, "__name__": "noisy"}
        exec(compile(NOISY, str(program), "exec"), names)
        with torchvet.watch(record=tmp_path / "run.vet"):
            names["main"]()
        position = stream.tell()
    records = read(tmp_path / "run.vet").ranks[0].all(NonFinite)
    assert [(r.found, r.note) for r in records] == [("operator", None)] * 2, "two at one place, no more"
    assert (log.read_text(), (tmp_path / "stream.txt").read_text(), position) == ("xxx", "yyy", 3)
    assert (printed.getvalue(), names["history"], names["shared"].tolist()) == ("z\nz\nz\n", [1.0] * 3, [3.0] * 3)


DELETING = """
import torch
from torch import nn


def main():
    net = nn.Linear(3, 3)
    for step in range(2):
        save(net(torch.ones(2, 3)), step).backward()


def save(h, step):
    torch.save(h.detach(), folder / "h.pt")
    (folder / "h.pt").unlink()
    return torch.log(h * 0 - 1).sum()
"""


def test_a_step_that_deletes_files_is_not_done_again_to_its_end(tmp_path: Path) -> None:
    """The replay stops there, and says so; the next step is looked at as it runs."""
    program = tmp_path / "deleting.py"
    program.write_text(DELETING)
    names: dict[str, Any] = {"folder": tmp_path, "__name__": "deleting"}
    exec(compile(DELETING, str(program), "exec"), names)
    with torchvet.watch(record=tmp_path / "run.vet"):
        names["main"]()
    records = read(tmp_path / "run.vet").ranks[0].all(NonFinite)
    assert [(r.found, r.live) for r in records] == [("not-reproduced", None), ("operator", 1)], records
    assert "os.remove" in (records[0].note or "") and records[1].reason == "log-of-negative"
