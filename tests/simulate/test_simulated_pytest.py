"""The pytest plugin where the simulated GPU stands in: tests within tests, in the process that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest, torch
import torch.nn.functional as F

def train(steps, read):
    assert torch.cuda.is_available()
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total = torch.zeros((), device="cuda")
    for _ in range(steps):
        loss = model(torch.randn(512, 256, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += read(loss)
    return float(total)

@pytest.mark.no_sync
def test_waits():
    train(6, lambda loss: loss.item())

@pytest.mark.no_sync
def test_waits_at_intervals():
    losses = []
    train(8, lambda loss: losses.append(loss.detach()) or (losses[-1].item() if len(losses) == 5 else 0.0))

@pytest.mark.no_sync
def test_never_waits():
    train(6, lambda loss: loss.detach())

@pytest.mark.limit_peak("4 MB")
def test_large():
    torch.zeros(2_000_000, device="cuda")
    torch.cuda.reset_peak_memory_stats()

@pytest.mark.limit_peak("4 MB")
def test_small():
    torch.zeros(500_000, device="cuda")

@pytest.mark.no_leak(steps=20)
def test_leaky():
    kept = []
    train(24, lambda loss: kept.append(torch.ones(100_000, device="cuda")) or 0.0)
"""


def test_marks_are_judged_by_the_simulated_gpu(tmp_path: Path) -> None:
    (tmp_path / "test_on_gpu.py").write_text(TESTS)
    options = ["-p", "no:torchvet", "-p", "torchvet.surfaces.pytest_plugin", "-p", "no:cacheprovider"]
    # A process of its own: what is judged goes by the size of the process and by the modules in it.
    words = [str(tmp_path), *options, "--rootdir", str(tmp_path), "--torchvet-gpu", "24GiB", "-rA"]
    ran = subprocess.run([sys.executable, "-m", "pytest", *words], stdout=subprocess.PIPE, text=True, check=False)
    text = ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, text
    ended = {line.split("::")[1].split(" ")[0]: line.split(" ")[0] for line in text.splitlines() if "py::test" in line}
    assert ended == {
        "test_waits": "FAILED",
        "test_waits_at_intervals": "FAILED",
        "test_never_waits": "PASSED",
        "test_large": "FAILED",
        "test_small": "PASSED",
        "test_leaky": "FAILED",
    }, text
    assert "info OPS101 sync-in-loop" in text and "train(6, lambda loss: loss.item())" in text
    assert "item() makes the host wait for the device in 1 of 7 steps" in text
    assert "the peak of the simulated GPU's allocator is 8.0 MB, 4.0 MB over 4.0 MB" in text
    assert "MEM102" in text and "kept keeps" in text
