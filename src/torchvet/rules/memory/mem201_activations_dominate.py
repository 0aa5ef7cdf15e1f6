"""MEM201: most of the peak is what forward passes save for backward ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.amounts import percent
from torchvet.finding import Finding, Measured, Related, Remedy
from torchvet.recording.dry_records import DryBatch, DryCheckpoint, DryModule
from torchvet.rules import words
from torchvet.rules.base import Rule
from torchvet.rules.memory._dry import Sized, sized

if TYPE_CHECKING:
    from torchvet.recording import Recording

_SHARE, _WORTH = 0.4, 0.1
"""Shares of the peak: that activations have, and that checkpointing must save."""
_MODULES = 3


class ActivationsDominate(Rule):
    """Most of the peak is what forward passes save for backward ones."""

    code = "MEM201"
    name = "activations-dominate"
    summary = "Most of the peak is what forward passes save for backward ones"
    severity = "info"

    what = (
        "Each operator of a forward pass saves what its backward needs, and all of it is alive when the backward "
        "begins. `torch.utils.checkpoint` keeps a block's inputs alone and runs the block again when its gradients "
        "are due: one block's activations are alive at a time instead of all blocks'."
    )
    why = (
        "Activations grow with the batch and the length of the sequence, parameters and optimizer state do not: they "
        "decide which batch fits."
    )
    when_not = (
        "Where the batch that is wanted fits, checkpointing only costs time: one more forward pass of the blocks. "
        "Models without repeated blocks, or whose blocks are checkpointed already, are told nothing that would help. "
        "Random numbers are drawn again as they were (`preserve_rng_state`); with `use_reentrant=True` inputs must "
        "require gradients, and DistributedDataParallel needs `static_graph=True`."
    )
    proof = (
        "torch 2.13.0, CPU, simulated GPU. The example takes 193,549,824 bytes at its peak. A dry run of it says "
        "61,199,872 with the blocks checkpointed, for 17 % more arithmetic in matrix products; the mended example "
        "takes exactly that, in a dry run and in one with real numbers."
    )
    remedy = (
        "Call the block by `torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`; with transformers "
        "`model.gradient_checkpointing_enable()`. Autocast, or a smaller batch with accumulation, save activations too."
    )
    runs_on = "cuda"
    found_with = ("run", "--simulate-gpu", "24GiB", "--dry")

    BAD = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


torch.manual_seed(0)
blocks = nn.ModuleList([Block(128) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
for step in range(20):
    x = torch.randn(4096, 128, device="cuda")
    for block in blocks:
        x = block(x)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


torch.manual_seed(0)
blocks = nn.ModuleList([Block(128) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
for step in range(20):
    x = torch.randn(4096, 128, device="cuda")
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    loss = x.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """The class of blocks whose checkpointing saved most, if it saved a tenth of the peak."""
        for one in sized(recording):
            before = next((b for b in one.rank.all(DryBatch) if b.batch == one.size.batch and not b.bounded), None)
            tried = sorted(one.rank.all(DryCheckpoint), key=lambda c: c.allocated)
            if before is None or not tried or one.share("activations") < _SHARE:
                continue
            if before.allocated - tried[0].allocated >= _WORTH * before.allocated:
                yield self._finding(one, before, tried)

    def _finding(self, one: Sized, before: DryBatch, tried: list[DryCheckpoint]) -> Finding:
        best, held = tried[0], one.parts["activations"]
        saved = before.allocated - best.allocated
        more = best.arithmetic / one.size.arithmetic - 1 if one.size.arithmetic else 0.0
        cost = f" for {percent(more)} more arithmetic" if more > 0 else ""
        return Finding(
            code=self.code, name=self.name, severity="warning" if one.size.ran_out else "info", evidence="observed",
            message=f"activations are {percent(one.share('activations'))} of the peak ({words.size(held)}); with the "
            f"{best.blocks} {best.module} blocks checkpointed a step takes {words.size(best.allocated)} instead of "
            f"{words.size(before.allocated)}: {words.size(saved)} less{cost}",
            location=None,
            cause="what every block saves for its backward is alive at once when the backward begins",
            remedy=Remedy(
                summary=f"call each {best.module} (`{best.first}` and on) by torch.utils.checkpoint.checkpoint(block, "
                "..., use_reentrant=False) where memory is short"
            ),
            related=[*map(_made, one.rank.all(DryModule)[:_MODULES]), *(_other(c, before) for c in tried[1:])],
            measured=Measured(bytes=saved, peak_bytes=before.allocated, share=one.share("activations")),
            device="cuda:0",
        )  # fmt: skip


def _made(module: DryModule) -> Related:
    return Related(role="made in", message=f"{module.name}: {words.size(module.bytes)} in {module.blocks:,} blocks")


def _other(tried: DryCheckpoint, before: DryBatch) -> Related:
    saved = before.allocated - tried.allocated
    amount = f"{words.size(saved)} less" if saved > 0 else "nothing saved"
    return Related(role="also tried", message=f"{tried.blocks} {tried.module} checkpointed: {amount}")
