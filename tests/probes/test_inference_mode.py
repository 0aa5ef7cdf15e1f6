"""A window that is open across `inference_mode` must not leave its dispatch key behind."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchvet
from torchvet.probes.numerics import half_sums
from torchvet.recording.records.base import Place


def test_evaluation_in_inference_mode_leaves_the_dispatcher_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(24, 8), torch.randint(0, 2, (24,))), batch_size=4)

    @torch.inference_mode()
    def evaluate() -> float:
        model.eval()
        total = sum(nn.functional.cross_entropy(model(x), y).item() for x, y in loader)
        model.train()
        return total

    with torchvet.watch() as watched:
        for _ in range(20):
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            evaluate()
            # Without tensor arguments: fails if the mode's key is on while the mode is not.
            assert torch.zeros(3).sum() == 0
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)
    assert watched.report is not None
    assert [f.message for f in watched.report.findings if f.severity != "info"] == []


def test_optimizers_stepped_from_within_backward_are_survived() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    with torchvet.watch():
        for _ in range(40):
            model(torch.randn(4, 8)).square().mean().backward()
            torch.zeros(3)
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)


def test_a_sum_first_looked_at_during_an_evaluation_is_looked_at_again_in_training() -> None:
    total = torch.zeros(3, dtype=torch.bfloat16)
    followed = half_sums._Sum(Place("train.py", 1, "main"), "add_", total, 0)
    followed.addend = torch.ones(3, dtype=torch.float64)
    with torch.inference_mode():
        followed.look(1)
    total += 1
    followed.look(2)
    assert followed.changed is not None and followed.changed.tolist() == [2, 2, 2]
