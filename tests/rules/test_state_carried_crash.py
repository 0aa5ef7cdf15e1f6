"""A backward that fails in the graph of the pass before: what carried it is named, and its mend runs on."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_runs import forked, printed_by

from torchvet.finding import Finding
from torchvet.fixing.edits import apply

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
cell, rnn, read = nn.GRUCell(4, 8), nn.LSTM(4, 8), nn.Linear(8, 4)
net = nn.ModuleList([cell, rnn, read])
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)


def update(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


"""
UPDATE = """    optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

CARRIED = {
    "a tuple": ("hidden", "out, hidden = rnn(x, hidden)", """
    hidden = None
    for step in range(9):
        x = torch.randn(5, 2, 4)
        out, hidden = rnn(x, hidden)
        loss = (read(out) - x).square().mean()
    """ + UPDATE),
    "two variables of one line": ("h", "h, c = two(x, (h, c))", """
    two = nn.LSTMCell(4, 8)
    h, c = torch.zeros(2, 8), torch.zeros(2, 8)
    for step in range(9):
        x = torch.randn(2, 4)
        h, c = two(x, (h, c))
        loss = (read(h) - x).square().mean()
    """ + UPDATE),
    "a running sum that began as a number": ("total", "total += (read(cell(x)) - x).square().mean()", """
    def train():
        total = 0.0
        for step in range(9):
            x = torch.randn(2, 4)
            total += (read(cell(x)) - x).square().mean()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
        print(total.item())

    train()
    """),
    "bound after the backward": ("state", "state = new", """
    def train(state):
        for step in range(9):
            x = torch.randn(2, 4)
            new = cell(x, state)
            loss = (read(new) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state = new

    train(torch.zeros(2, 8))
    """),
    "through a function that goes backward": ("state", "state = train_step(x, state)", """
    def train_step(x, state):
        state = cell(x, state)
        update((read(state) - x).square().mean())
        return state

    def main():
        state = torch.zeros(2, 8)
        for step in range(9):
            x = torch.randn(2, 4)
            state = train_step(x, state)

    main()
    """),
    "a global of a function": ("state", "state = cell(x, state)", """
    state = torch.zeros(2, 8)
    seen = []

    def train_step(x):
        global state
        state = cell(x, state)
        seen.append(state)
        update((read(state) - x).square().mean())

    for step in range(9):
        train_step(torch.randn(2, 4))
    """),
    "a module's attribute that is None at first": ("hidden", "y, self.hidden = rnn(x, self.hidden)", """
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = None

        def forward(self, x):
            y, self.hidden = rnn(x, self.hidden)
            return read(y)

    class Trainer:
        def __init__(self):
            self.memory = Memory()

        def run(self):
            for step in range(9):
                x = torch.randn(5, 2, 4)
                update((self.memory(x) - x).square().mean())

    Trainer().run()
    """),
    "an attribute that steps in time go through": ("state", "self.state = cell(x, self.state)", """
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.state = torch.zeros(2, 8)

        def forward(self, xs):
            outs = []
            for x in xs:
                self.state = cell(x, self.state)
                outs.append(read(self.state))
            return torch.stack(outs)

    memory = Memory()
    for step in range(9):
        xs = torch.randn(5, 2, 4)
        loss = (memory(xs) - xs).square().mean()
    """ + UPDATE),
    "a state that another name has too": ("state", "box.state = new", """
    class Box:
        state = None

    box = Box()
    box.state = torch.zeros(2, 8)
    for step in range(9):
        x = torch.randn(2, 4)
        new = cell(x, box.state)
        box.state = new
        loss = (read(new) - x).square().mean()
    """ + UPDATE),
    "states by layer": ("states['a']", "states[name] = layer(z, states[name])", """
    layers = {"a": cell, "b": nn.GRUCell(8, 8)}
    states = {name: torch.zeros(2, 8) for name in layers}
    for step in range(9):
        x = z = torch.randn(2, 4)
        for name, layer in layers.items():
            states[name] = layer(z, states[name])
            z = states[name]
        loss = (read(z) - x).square().mean()
    """ + UPDATE),
    "the error in place that retain_graph leads to": ("hidden", "out, hidden = rnn(x, hidden)", """
    hidden = None
    for step in range(9):
        x = torch.randn(5, 2, 4)
        out, hidden = rnn(x, hidden)
        loss = (read(out) - x).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    """),
}  # fmt: skip


def _program(text: str) -> str:
    return HEAD + textwrap.dedent(text)


def _told(found: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    assert found is not None
    return [f for f in found if f["code"] == "MEM103" and f["evidence"] == "observed"]


@pytest.mark.parametrize("name", CARRIED)
def test_what_carries_the_graph_is_named_and_its_fix_runs_through(name: str, tmp_path: Path) -> None:
    held, line, text = CARRIED[name]
    program = _program(text)
    (one,) = _told(forked(program, tmp_path))
    assert one["holder"]["name"].rpartition(".")[2] == held
    assert program.splitlines()[one["location"]["line"] - 1].strip() == line
    assert one["severity"] == "error" and "raised in pass 2" in one["message"]
    finding = msgspec.convert(one, Finding)
    path = str(tmp_path / "program.py")
    fixed, _ = apply({path: program}, [finding])
    assert fixed[path] != program and "retain_graph" not in fixed[path]
    assert printed_by(fixed[path], "mended.py")[1] is None


NOT_CARRIED = {
    "a generator's output that its critic went through": """
    for step in range(9):
        made = read(cell(torch.randn(2, 4)))
        update(-made.square().mean())
        update(made.square().mean())
    """,
    "two backward calls of one pass, late": """
    for step in range(9):
        x = torch.randn(2, 4)
        loss = (read(cell(x)) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 5:
            loss.backward()
        optimizer.step()
    """,
    "a result changed in place": """
    for step in range(9):
        x = torch.randn(2, 4)
        h = torch.tanh(cell(x))
        if step > 3:
            h += 1
        loss = (read(h) - x).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
    """,
    "an error that the program goes on from": """
    state = torch.zeros(2, 8)
    for step in range(9):
        x = torch.randn(2, 4)
        state = cell(x, state)
        try:
            update((read(state) - x).square().mean())
        except RuntimeError:
            state = state.detach()
    """,
}


@pytest.mark.parametrize("name", NOT_CARRIED)
def test_other_errors_of_backward_are_not_blamed_on_what_is_carried(name: str, tmp_path: Path) -> None:
    assert not _told(forked(_program(NOT_CARRIED[name]), tmp_path))


def test_what_is_computed_once_is_told_so_and_left_to_a_person(tmp_path: Path) -> None:
    text = """
    features = cell(torch.randn(16, 4))
    for step in range(9):
        loss = read(features[torch.randint(0, 16, (4,))]).square().mean()
    """
    (one,) = _told(forked(_program(text + UPDATE), tmp_path))
    assert one["message"].startswith("features is computed once, before the loop") and not one["remedy"]["edits"]


def test_losses_that_pile_up_are_named_without_an_edit(tmp_path: Path) -> None:
    text = """
    losses = []
    for step in range(9):
        x = torch.randn(2, 4)
        losses.append((read(cell(x)) - x).square().mean())
        loss = torch.stack(losses).mean()
    """
    (one,) = _told(forked(_program(text + UPDATE), tmp_path))
    assert one["holder"]["name"] == "losses" and not one["remedy"]["edits"]
