"""Large tables of which a step looks up few rows are seen, with who steps on them."""

from __future__ import annotations

from pathlib import Path

from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import DenseTable

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
plain, heavy, adam = nn.Embedding(40_000, 32), nn.Embedding(40_001, 32), nn.Embedding(40_002, 32)
twins = nn.ModuleList([nn.Embedding(50_000, 32), nn.Embedding(50_000, 32)])
third = torch.optim.Adagrad(twins.parameters(), lr=0.1)
sparse, small, frozen = nn.Embedding(40_003, 32, sparse=True), nn.Embedding(50, 32), nn.Embedding(40_004, 32)
frozen.requires_grad_(False)
head = nn.Linear(32, 1)
sgd = torch.optim.SGD([{"params": [plain.weight, small.weight, sparse.weight, *head.parameters()]},
                       {"params": [heavy.weight], "weight_decay": 0.1}], lr=0.1)
other = torch.optim.Adam(adam.parameters(), lr=0.1)
for step in range(12):
    x = torch.randint(50, (4, 6))
    words = sum(table(x) for table in (plain, heavy, adam, sparse, small, frozen, *twins))
    loss = head(words.mean(1)).square().mean()
    sgd.zero_grad()
    other.zero_grad()
    third.zero_grad()
    loss.backward()
    sgd.step()
    other.step()
    third.step()
"""


def test_tables_with_a_dense_gradient(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    found = read(tmp_path / RECORDING).ranks[0].latest(DenseTable, "rows")
    seen = {one.rows: (one.optimizer, one.exact) for one in found}
    assert seen == {40_000: ("SGD", True), 40_001: ("SGD", False), 40_002: ("Adam", False), 50_000: ("Adagrad", True)}
    for one in found:
        tables = 2 if one.rows == 50_000 else 1
        assert 4 < one.touched <= 24 and one.calls == tables * one.sampled > 2 and one.seconds > 0
        # SGD steps on two such tables, a sparse one of that size, and next to nothing else.
        assert 0.3 < one.part < 0.36 if one.optimizer == "SGD" else abs(one.part - 1) < 1e-9
