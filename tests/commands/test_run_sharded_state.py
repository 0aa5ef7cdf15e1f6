"""Libraries that shard an optimizer's state: they step on copies of the parameters, group by group. DeepSpeed does."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchvet.probes import following

SOURCE = str(Path(following.__file__).parents[3])
STEPS = 40
BEGINNING = """
    import sys, torch, torch.distributed as dist
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == wide]} for wide in (True, False)]
"""
BY_HAND = """
    # What ZeRO does: each rank steps on its part of a flat copy of each group, and gathers the others' parts.
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    everyone = dist.new_group(list(range(world)))
    wholes, parts = [], []
    for group in optimizer.param_groups:
        wholes.append(group["params"])
        flat = torch.cat([p.detach().flatten() for p in group["params"]])
        parts.append(flat.chunk(world)[rank].clone().requires_grad_())
        group["params"] = [parts[-1]]

    def backward(loss):
        loss.backward()

    def step():
        every = optimizer.param_groups
        for number, (whole, part) in enumerate(zip(wholes, parts)):
            gradient = torch.cat([p.grad.flatten() for p in whole])
            dist.all_reduce(gradient, group=everyone)
            part.grad = (gradient / world).chunk(world)[rank].clone()
            optimizer.param_groups = [every[number]]
            optimizer.step()
            optimizer.param_groups = every
            part.grad = None
            gathered = [torch.empty_like(part) for _ in range(world)]
            dist.all_gather(gathered, part.detach(), group=everyone)
            flat = torch.cat(gathered)
            with torch.no_grad():
                for p in whole:
                    p.copy_(flat[: p.numel()].view_as(p))
                    flat = flat[p.numel() :]
                    p.grad = None
"""
BY_DEEPSPEED = """
    import deepspeed

    stage = int(next(word for word in sys.argv if word.startswith("stage="))[-1])
    config = {
        "train_micro_batch_size_per_gpu": 16,
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 100_000},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    }
    model, *_ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
    rank, backward, step = dist.get_rank(), model.backward, model.step
"""
TRAINING = f"""
    torch.manual_seed(1 + rank)
    kept = []
    for number in range({STEPS}):
        x = torch.randn(16, 32)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
        if "leak" in sys.argv and rank == 1:
            kept.append(loss * 1.0)
        backward(loss)
        step()
    print(f"rank {{rank}} {{loss.item()!r}}", flush=True)
    dist.destroy_process_group()
"""


def run(folder: Path, program: str, *words: str) -> tuple[int, list[str], dict[str, Any]]:
    """A command of two ranks: its status, what the ranks print, and the report, if there is one."""
    (folder / "main.py").write_text(textwrap.dedent(program))
    mine = {n: v for n, v in os.environ.items() if not n.startswith(("TORCHVET", "RANK", "WORLD", "LOCAL"))}
    known = {**mine, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder), "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=known, capture_output=True, text=True, timeout=500
    )
    file = folder / "report.json"
    report = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, sorted(re.findall(r"rank \d [\d.e-]+", done.stdout)), report


def codes(report: dict[str, Any]) -> set[str]:
    return {found["code"] for found in report["findings"] if found["severity"] != "info"}


def test_an_optimizer_that_steps_on_a_part_of_copies_is_healthy(tmp_path: Path) -> None:
    program = BEGINNING + BY_HAND + TRAINING
    _, plain, _ = run(tmp_path, program, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "main.py")
    _, printed, report = run(tmp_path, program, "torchvet", "run", "-o", "report.json", "--nproc", "2", "main.py")
    assert codes(report) == set()
    assert [row["steps"] for row in report["facts"]["ranks"]] == [STEPS, STEPS], "two groups make one step"
    assert printed == plain
    assert any("replicas of parameters" in str(one) for one in report["not_checked"]), "parts of them are not compared"


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeed_under_its_own_launcher(stage: int, tmp_path: Path) -> None:
    program = BEGINNING + BY_DEEPSPEED + TRAINING
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = ["deepspeed.launcher.runner", "--master_port", port, "--num_gpus", "2", "main.py", f"stage={stage}"]
    _, plain, _ = run(tmp_path, program, *launcher)
    status, printed, report = run(tmp_path, program, "torchvet", "run", "-o", "report.json", "-m", *launcher, "leak")
    assert (status, printed) == (1, plain) and len(plain) == 2
    assert [row["steps"] for row in report["facts"]["ranks"]] == [STEPS, STEPS]
    assert codes(report) == {"MEM101"}
    (leak,) = (found for found in report["findings"] if found["code"] == "MEM101")
    assert (leak["rank"], leak["holder"]["name"]) == (1, "kept")
