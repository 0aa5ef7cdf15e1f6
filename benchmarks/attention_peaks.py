"""Peaks of transformers on the simulated GPU beside the arithmetic of CUDA's kernels.

    python benchmarks/attention_peaks.py [NAME...] [--calls] [--run]

`attention_arithmetic.py` works out what each program of `attention_models.py` holds after its forward pass and at
most, from PyTorch's sources alone. No real GPU was asked: where both sides misread a source, they agree. `--calls`: one
call of attention alone with its backward pass, where much of the peak is what the kernels hold while they run. Shapes
alone are worked out, as with `--dry`; `--run` computes the values too, which takes minutes and as much memory.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys

import torch
from attention_arithmetic import PLANS, peak_of, peak_of_call
from attention_models import MODELS, call, step


def measured(name: str, calls: bool, run: bool) -> tuple[int, int]:
    """Bytes of tensors after the forward pass and at most; to be called in a process of its own."""
    from torchvet.simulate.cards import card_of
    from torchvet.simulate.start import start

    card, sizes = MODELS[name]
    start(card_of(card))
    if not run:
        importlib.import_module("torchvet.simulate.dry.start").start()
    return (call if calls else step)(sizes), torch.cuda.memory_stats()["requested_bytes.all.peak"]


def row(name: str, found: tuple[int, int], calls: bool) -> str:
    """Both figures of both sides in MB, and how far the peaks are apart."""
    expected = (peak_of_call if calls else peak_of)(PLANS[name])
    pairs = (f"{a / 1e6:>11,.2f}{b / 1e6:>11,.2f}" for a, b in zip(found, expected, strict=True))
    return f"{name:28}{''.join(pairs)}{found[1] / expected[1] - 1:>+10.3%}{found[1] - expected[1]:>14,}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {'; '.join(MODELS)}")
    parser.add_argument("--calls", action="store_true", help="attention alone")
    parser.add_argument("--run", action="store_true", help="with values")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.names) - set(MODELS)
    if unknown:
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if given.one:
        print(json.dumps(measured(given.names[0], given.calls, given.run)))
        return
    flags = [f"--{flag}" for flag in ("calls", "run") if getattr(given, flag)]
    print(f"{'MB':28}{'forward':>11}{'computed':>11}{'peak':>11}{'computed':>11}{'error':>10}{'bytes':>14}")
    for name in given.names or [name for name in MODELS if not given.calls or PLANS[name].kernel]:
        words = [sys.executable, __file__, "--one", name, *flags]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            print(f"{name:28} failed: {(done.stderr.strip().splitlines() or ['killed'])[-1]}", flush=True)
        else:
            print(row(name, json.loads(done.stdout.splitlines()[-1]), given.calls), flush=True)


if __name__ == "__main__":
    main()
