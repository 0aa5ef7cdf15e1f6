"""What torchvet adds to a steady step, all watchers on: bare steps and watched ones take turns within one process.

Blocks of steps run with everything that torchvet has put into torch taken out, and with it put back; the medians are
compared. Sampled steps are left out: what they may cost is bounded by their budget, and the whole runs of `overhead.py`
show it. CPU time is that of the thread, its lower quartile: on a busy machine it wavers less than time on the wall.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

MODELS = ("mlp-1ms", "mlp-240-parameters", "tiny", "small", "medium")
KINDS = ("float32", "bf16", "fp16-scaler-clip", "scaler-clip", "accumulation")
CASES = tuple(f"{model}:{kind}" for model in MODELS for kind in KINDS)
"""`MODEL:KIND`; tiny, small and medium are the transformers of `nonfinite.py`, `accumulation` is of four parts."""
_BLOCK = 6


def made(model: str) -> tuple[Any, Callable[[], Any]]:
    """A model, and what makes its loss anew."""
    import torch
    from nonfinite import SIZES, Model
    from torch import nn

    if model in SIZES:
        width, layers, batch, length = SIZES[model]
        tokens, net = torch.randint(0, 1000, (batch, length)), Model(width, layers)
        return net, lambda: nn.functional.cross_entropy(net(tokens).float().flatten(0, 1), tokens.flatten())
    layers, batch = (120, 16) if "parameters" in model else (6, 32)
    plain = nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(64, 64), nn.ReLU())])
    data = torch.randn(batch, 64)
    return plain, lambda: plain(data).float().square().mean()


def stepper(model: str, kind: str) -> Callable[[], None]:
    """One training step of a kind."""
    import torch

    net, loss_of = made(model)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if "scaler" in kind else None
    dtype = torch.float16 if "fp16" in kind else torch.bfloat16
    region = torch.autocast("cpu", dtype, enabled="16" in kind)
    parts = 4 if kind == "accumulation" else 1

    def step() -> None:
        for _ in range(parts):
            if region._enabled:
                with region:
                    loss = loss_of() / parts
            else:
                loss = loss_of() / parts
            (scaler.scale(loss) if scaler else loss).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()

    return step


class Taps:
    """All that a session has put into torch, to be taken out and put back. Made before the probes are imported."""

    def __init__(self) -> None:
        from torchvet.probes.internals import patching

        self._all: list[tuple[Any, str, Any, Any]] = []
        self._kept: list[Any] = []
        real = patching.replace

        def replace(undo: ExitStack, owner: Any, name: str, ours: Any) -> None:
            self._all.append((owner, name, ours, owner.__dict__.get(name)))
            real(undo, owner, name, ours)

        patching.replace = replace

    def out(self) -> None:
        """Leave torch as it is without torchvet."""
        from torch.optim import optimizer

        hooks: Any = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        self._kept = [dict(h) for h in hooks] + [list(gc.callbacks)]
        for table in (*hooks, gc.callbacks):
            table.clear()
        for owner, name, _, original in reversed(self._all):
            if original is not None:
                setattr(owner, name, original)
            elif name in owner.__dict__:  # an inherited attribute, wrapped twice
                delattr(owner, name)

    def back(self) -> None:
        """Put all of it back."""
        from torch.optim import optimizer

        for owner, name, ours, _ in self._all:
            setattr(owner, name, ours)
        optimizer._global_optimizer_pre_hooks.update(self._kept[0])
        optimizer._global_optimizer_post_hooks.update(self._kept[1])
        gc.callbacks[:] = self._kept[2]


Times = tuple[list[float], list[float]]
"""Seconds of bare steps, and of watched ones."""


def measure(model: str, kind: str, steps: int) -> tuple[Times, Times]:
    """Seconds on the wall, and of CPU."""
    taps = Taps()
    import torch

    import torchvet

    torch.set_num_threads(1)
    torch.manual_seed(0)
    wall: Times = ([], [])
    cpu: Times = ([], [])
    with tempfile.TemporaryDirectory() as folder, torchvet.watch(record=Path(folder) / "run.vet") as watch:
        assert watch._session is not None and watch._session.observer is not None
        observer: Any = watch._session.observer
        step = stepper(model, kind)
        for _ in range(12):
            step()
        observer.schedule.window_at = 1 << 60
        while observer._sampling.on:
            step()
        gc.collect()
        for number in range(steps):
            on = number // _BLOCK % 2
            if number and number % _BLOCK == 0:
                (taps.back if on else taps.out)()
            elif not number:
                taps.out()
            started, before = time.perf_counter(), time.thread_time()
            step()
            if number % _BLOCK:
                cpu[on].append(time.thread_time() - before)
                wall[on].append(time.perf_counter() - started)
        if not on:
            taps.back()
    return wall, cpu


def main() -> None:
    """Measure one case and print its line of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--steps", type=int, default=240)
    options = parser.parse_args()
    model, kind = options.case.split(":")
    wall, cpu = measure(model, kind, max(4 * _BLOCK, options.steps))
    bare, run = map(statistics.median, wall)
    least, most = (statistics.quantiles(times, n=4)[0] for times in cpu)
    print(
        f"| {model} | {kind} | {bare * 1e3:.2f} ms | {run / bare:.3f} | {(run - bare) * 1e3:+.2f} ms "
        f"| {most / least:.3f} | {(most - least) * 1e3:+.2f} ms |"
    )


if __name__ == "__main__":
    main()
