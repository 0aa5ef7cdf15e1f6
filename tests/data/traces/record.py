"""Records the profiler traces of this folder: small programs on the CPU, each with a fault of a known size.

    python tests/data/traces/record.py
    for rank in 0 1; do python tests/data/traces/record.py $rank 29517 & done; wait

What each fault really took is measured by the program itself and written to measured.json, in seconds per step.
"""

from __future__ import annotations

import gc
import gzip
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).parent
STEPS = 4
spent: list[float] = []


class Slow(Dataset):
    """Items that take half a millisecond each."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.ones(32)


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()


def collect_garbage() -> None:
    started = time.perf_counter()
    gc.collect()
    spent.append(time.perf_counter() - started)


def recorded(name: str, body: Callable[[], object], **options: object) -> None:
    """Take steps under the profiler and keep the trace of the last ones."""
    spent.clear()
    steps: list[float] = []

    def keep(prof: profile) -> None:
        with tempfile.TemporaryDirectory() as folder:
            prof.export_chrome_trace(f"{folder}/trace.json")
            text = Path(folder, "trace.json").read_text("utf-8")
            text = text.replace(str(HERE) + os.sep, "").replace(sys.prefix + os.sep, "")
            (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))

    plan = schedule(wait=1, warmup=1, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=keep, **options) as prof:
        for _ in range(STEPS + 2):
            started = time.perf_counter()
            body()
            steps.append(time.perf_counter() - started)
            prof.step()
    measured[name] = {"step": sum(steps[-STEPS:]) / STEPS, "fault": sum(spent[-STEPS:]) / STEPS if spent else 0.0}


def input_bound() -> None:
    model, optimizer = network()
    batches = iter(DataLoader(Slow(), batch_size=16))

    def body() -> None:
        started = time.perf_counter()
        x = next(batches)
        spent.append(time.perf_counter() - started)
        for _ in range(3):
            learn(model, optimizer, x)

    recorded("cpu_input_bound", body)


def collecting() -> None:
    model, optimizer = network()
    keep = [[n] for n in range(100_000)]

    def body() -> None:
        learn(model, optimizer, torch.ones(8, 32))
        collect_garbage()

    config = torch._C._profiler._ExperimentalConfig(verbose=True, record_python_gc_info=True)
    settings = {"with_stack": True, "record_shapes": True, "profile_memory": True}
    recorded("cpu_collector", body, **settings, experimental_config=config)
    del keep


def compiling() -> None:
    model, optimizer = network()
    sizes = iter(range(8, 100))

    @torch.compile(backend="eager", dynamic=False)
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def body() -> None:
        x = torch.ones(next(sizes), 32)
        started = time.perf_counter()
        twice(x)
        spent.append(time.perf_counter() - started)
        learn(model, optimizer, x)

    recorded("cpu_recompiles", body)


def straggling(rank: int, port: int) -> None:
    """Two ranks under gloo, of which the second sleeps 30 ms before each backward."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model, optimizer = network()
    model = nn.parallel.DistributedDataParallel(model)

    def body() -> None:
        loss = model(torch.ones(8, 32)).mean()
        if rank == 1:
            time.sleep(0.03)
            spent.append(0.03)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    recorded(f"gloo_rank{rank}", body)
    dist.destroy_process_group()


if __name__ == "__main__":
    logging.disable()
    torch.set_num_threads(1)
    measured: dict[str, dict[str, float]] = {}
    if len(sys.argv) > 1:
        straggling(int(sys.argv[1]), int(sys.argv[2]))
    else:
        input_bound()
        collecting()
        compiling()
        (HERE / "measured.json").write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
