"""Look-alikes of faults that keep memory or raise its peak: what has to stay silent, and what must be found beside."""

from __future__ import annotations

import textwrap

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

IMPORTS = """\
import itertools
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""


def severities(code: str, text: str) -> list[str]:
    """What a rule says of a program, mildness and all."""
    file = SourceFile("train.py", IMPORTS + textwrap.dedent(text))
    return [finding.severity for finding in rule(code).in_source(file)]


NEEDED = {
    "two losses over one graph": """
        for x, y in loader:
            features = encoder(x)
            first = F.mse_loss(head(features), y)
            first.backward(retain_graph=True)
            second = penalty(features).mean()
            second.backward()
            optimizer.step()
        """,
    "a graph from before the loop": """
        def fit(encoder, head, x, optimizer):
            features = encoder(x)
            for k in range(3):
                loss = head(features).square().mean()
                loss.backward(retain_graph=True)
            optimizer.step()
        """,
    "a hidden state that is carried": """
        lstm = nn.LSTM(8, 8)
        hidden = None
        for x, y in loader:
            output, hidden = lstm(x, hidden)
            loss = F.mse_loss(output, y)
            loss.backward(retain_graph=True)
            optimizer.step()
        """,
    "a model that keeps its state itself": """
        class Memory(nn.Module):
            def forward(self, x):
                self.state = torch.tanh(self.cell(x) + self.state)
                return self.state

        model = Memory()
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            loss.backward(retain_graph=True)
            optimizer.step()
        """,
    "a state that an object of its own carries": """
        def fit(net, memory, loader, optimizer):
            for x, y in loader:
                logits, state = net(x, (memory.h, memory.c))
                memory.update(state)
                loss = F.cross_entropy(logits, y)
                loss.backward(retain_graph=True)
                optimizer.step()
        """,
    "a state that is put on an object": """
        for x, y in loader:
            logits, run.state = net(x, run.state)
            loss = F.cross_entropy(logits, y)
            loss.backward(retain_graph=True)
            optimizer.step()
        """,
    "losses of a container, one after the other": """
        for x, y in loader:
            losses = {name: F.mse_loss(head(model(x)), y) for name, head in heads.items()}
            for loss in losses.values():
                loss.backward(retain_graph=True)
            optimizer.step()
        """,
    "losses of a list, one after the other": """
        def back(losses, optimizer):
            for loss in losses:
                loss.backward(retain_graph=True)
            optimizer.step()
        """,
    "not in every pass": """
        for i, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x), y)
            loss.backward(retain_graph=i < 3)
            optimizer.step()
        """,
}


@pytest.mark.parametrize("text", NEEDED.values(), ids=NEEDED)
def test_a_graph_that_is_used_again_may_be_retained(text: str) -> None:
    assert severities("MEM109", text) == []


def test_the_last_of_two_backwards_retains_for_nothing() -> None:
    text = NEEDED["two losses over one graph"].replace("second.backward()", "second.backward(retain_graph=True)")
    assert severities("MEM109", text) == ["warning"]


@pytest.mark.parametrize(
    ("fix", "expected"), [("optimizer.zero_grad()", "info"), ("optimizer.zero_grad(set_to_none=False)", "error")]
)
def test_parameters_are_released_where_their_gradients_become_none(fix: str, expected: str) -> None:
    text = f"""
        for x, y in loader:
            F.mse_loss(model(x), y).backward(create_graph=True)
            optimizer.step()
            {fix}
        """
    assert severities("MEM110", text) == [expected]


def test_a_total_that_goes_backward_itself_is_no_log() -> None:
    text = """
        total = 0
        for i, (x, y) in enumerate(loader):
            loss = F.mse_loss(model(x), y)
            total = total + loss
            if i % 4 == 3:
                total.backward()
                optimizer.step()
                total = 0
        """
    assert severities("MEM112", text) == []


def test_a_count_beside_the_loss_is_no_loss() -> None:
    text = """
        seen = 0
        for x, y in loader:
            loss, n = evaluate(model, x, y)
            loss.backward()
            optimizer.step()
            seen += n
        """
    assert severities("MEM112", text) == []


@pytest.mark.parametrize("value", ["hidden[0].clone()", "hidden[:, :200]", "hidden[index]", "hidden[0, 0].item()"])
def test_copies_and_large_parts_pin_nothing(value: str) -> None:
    text = f"""
        seen = []
        layer = nn.Linear(16, 256)
        with torch.no_grad():
            for _ in range(10):
                hidden = layer(torch.randn(64, 16))
                seen.append({value})
        """
    assert severities("MEM113", text) == []


@pytest.mark.parametrize(
    "call", ["cycle(loader)", "itertools.cycle(loaders)", "itertools.cycle([1, 2])", "iter(loader)"]
)
def test_a_cycle_of_ones_own_remembers_nothing(call: str) -> None:
    text = f"""
        def cycle(loader):
            while True:
                yield from loader

        batches = {call}
        """
    assert severities("MEM114", text) == []


def test_sparse_gradients_that_another_function_clears() -> None:
    text = """
        table = nn.Embedding(10, 4, sparse=True)

        def update(optimizer, loss):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for ids in loader:
            update(optimizer, table(ids).mean())
        """
    assert severities("MEM116", text) == []


def test_gradients_that_are_added_to_stay_in_place() -> None:
    text = """
        for p, g in zip(model.parameters(), received):
            p.grad += g
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        """
    assert severities("MEM203", text) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [("loss.backward()\n            {zeroed}\n            optimizer.step()", []),
     ("loss.backward()\n            optimizer.step()\n            {zeroed}", ["warning"]),
     ("{zeroed}\n            loss.backward()\n            optimizer.step()", ["warning"])],
)  # fmt: skip
def test_throwing_a_step_away_is_no_clearing_for_the_next(body: str, expected: list[str]) -> None:
    zeroed = "for p in model.parameters():\n                p.grad.zero_()"
    text = f"""
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            {body.format(zeroed=zeroed)}
        """
    assert severities("MEM203", text) == expected


@pytest.mark.parametrize(
    "loss",
    [
        "F.mse_loss(model(x).squeeze(-1), y)",
        "F.mse_loss(model(x), y.unsqueeze(1))",
        "F.mse_loss(model(x), y[:, None])",
        "F.mse_loss(model(x).view(-1), y)",
        "(model(x)[:, 0] - y).pow(2).mean()",
        "(model(x).unsqueeze(1) - y).abs().mean()",
        "F.mse_loss(model(x), unknown(y))",
    ],
)
def test_columns_against_columns_and_pairs_on_purpose(loss: str) -> None:
    text = f"""
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        loader = DataLoader(TensorDataset(torch.randn(100, 4), torch.randn(100)), batch_size=10)
        for x, y in loader:
            loss = {loss}
            loss.backward()
        """
    assert severities("MEM204", text) == []


@pytest.mark.parametrize(
    "call",
    [
        "if i % 100 == 0:\n            torch.cuda.empty_cache()",
        "try:\n            pass\n        except RuntimeError:\n            torch.cuda.empty_cache()",
    ],
)
def test_a_rare_emptying_of_the_cache(call: str) -> None:
    text = f"""
    for i, (x, y) in enumerate(loader):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        {call}
    torch.cuda.empty_cache()
    """
    assert severities("MEM302", text) == []


def test_a_cache_emptied_once_an_epoch() -> None:
    text = """
        for epoch in range(10):
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
            torch.cuda.empty_cache()
        """
    assert severities("MEM302", text) == []


@pytest.mark.parametrize("value", ["loss.item()", "self.metric(logits, y)"])
def test_numbers_may_be_gathered_by_hooks(value: str) -> None:
    text = f"""
        class Model(LightningModule):
            def __init__(self):
                self.seen = []

            def validation_step(self, batch, index):
                x, y = batch
                logits = self(x)
                loss = F.mse_loss(logits, y)
                self.seen.append({value})
        """
    assert severities("MEM117", text) == []
