"""Peaks of device memory on the simulated GPU beside peaks that real GPUs had, with the error of each.

    python benchmarks/simulated_peaks.py [NAME...] [--dry] [--list]

The programs are rebuilt from what the sources say of them; the figures are those that the sources recorded. `--dry`
works out shapes alone, where this version of torchvet can: the larger ones need minutes and many GiB otherwise. Each
runs in a process of its own. No figure is fitted: what is off stays off.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from simulated_models import Attention, Language, Recipe


@dataclass(frozen=True)
class Figure:
    """A recorded peak: `requested` bytes of tensors at once, and `reserved` by the allocator; None where not told.

    `card` is the simulated one, of the capability that the recording's workspaces show; `measured` runs the program and
    comes back when its peak has passed.
    """

    source: str
    card: str
    requested: int | None
    reserved: int | None
    program: Callable[[], None]


_SNAPSHOTS = "CUDA memory snapshot"
SMALL, MEDIUM = Recipe(768, 3072, 12, 12), Recipe(1024, 4096, 24, 16)
FIGURES = {
    "attention": Figure(
        f"{_SNAPSHOTS} silmont_snapshot (torch 2.6): attention by hand, 8 x 4,096 x 16, backward",
        "a100", 3_249_143_816, 3_781_165_056, Attention(8, 4096, 16).train,
    ),
    "small-forward-bf16": Figure(
        f"{_SNAPSHOTS} silmont_fwd_bf16 (torch 2.6): 12 layers of 768, 4 x 128, bf16 autocast, forward",
        "a100", 779_837_440, 861_929_472, Language(SMALL, 4, 128, autocast=True).infer,
    ),
    "medium-forward": Figure(
        f"{_SNAPSHOTS} wed_128_inference (torch 2.11): 24 layers of 1,024, 4 x 128, float32, forward",
        "a100", 1_736_962_048, 1_763_704_832, Language(MEDIUM, 4, 128).infer,
    ),
    "medium-training-128": Figure(
        f"{_SNAPSHOTS} wed_128_training (torch 2.11): 24 layers of 1,024, 4 x 128, float32, AdamW by hand",
        "a100", 7_013_335_044, 7_235_174_400, Language(MEDIUM, 4, 128).train,
    ),
    "medium-training-512": Figure(
        f"{_SNAPSHOTS} wed_512_training (torch 2.11): the same, 4 x 512, bf16 autocast",
        "a100", 12_426_629_128, 12_660_506_624, Language(MEDIUM, 4, 512, autocast=True).train,
    ),
    "small-training-256": Figure(
        f"{_SNAPSHOTS} magma_memory_snapshot (torch 2.11): 12 layers of 768, 32 x 256, float32, backward",
        "a100", 13_923_997_700, 14_180_941_824, Language(SMALL, 32, 256).differentiate,
    ),
}  # fmt: skip


def run(name: str, dry: bool) -> dict[str, float]:
    """The peaks of one program on its card, in bytes; to be called in a process of its own."""
    from torchvet.simulate.cards import card_of
    from torchvet.simulate.start import start

    figure = FIGURES[name]
    start(card_of(figure.card))
    if dry:
        importlib.import_module("torchvet.simulate.dry.start").start()
    began = time.perf_counter()
    figure.program()
    statistics = torch.cuda.memory_stats()
    return {
        "requested": statistics["requested_bytes.all.peak"], "reserved": statistics["reserved_bytes.all.peak"],
        "seconds": time.perf_counter() - began,
    }  # fmt: skip


def beside(simulated: float, recorded: int | None) -> str:
    """Both in MB, and by how much the first is off."""
    if recorded is None:
        return f"{simulated / 1e6:>9,.1f}{'—':>10}{'':>8}"
    return f"{simulated / 1e6:>9,.1f}{recorded / 1e6:>10,.1f}{simulated / recorded - 1:>+8.2%}"


def can_be_dry() -> bool:
    """Whether this torchvet works out shapes alone."""
    return importlib.util.find_spec("torchvet.simulate.dry") is not None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the sources")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.names) - set(FIGURES)
    if unknown:
        parser.error(f"no such figure: {', '.join(sorted(unknown))}; known are {', '.join(FIGURES)}")
    if given.dry and not can_be_dry():
        parser.error("this version of torchvet does not work out shapes alone; leave --dry away")
    if given.one:
        print(json.dumps(run(given.names[0], given.dry)))
        return
    if given.list:
        print(*(f"{name:22} {figure.source}" for name, figure in FIGURES.items()), sep="\n")
        return
    print(f"{'MB':22}{'tensors':>9}{'recorded':>10}{'error':>8}   {'reserved':>9}{'recorded':>10}{'error':>8}{'s':>7}")
    for name in given.names or FIGURES:
        words = [sys.executable, __file__, "--one", name, *(["--dry"] if given.dry else [])]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            print(f"{name:22} failed: {(done.stderr.strip().splitlines() or ['killed'])[-1]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        figure = FIGURES[name]
        print(
            f"{name:22}{beside(found['requested'], figure.requested)}   "
            f"{beside(found['reserved'], figure.reserved)}{found['seconds']:>7.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
