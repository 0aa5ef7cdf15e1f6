"""TRN140: trainings whose random state is set back, and what looks like it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from example_runs import forked
from observed_fixes import fixed_lines
from source_fixes import fixed

from torchvet.finding import About
from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def net(dropout=0.2):
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 1))


def update(model, optimizer, x, y):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


torch.manual_seed(0)
X = torch.randn(64, 8)
Y = X[:, :1] * X[:, 1:2]
DATA = TensorDataset(X, Y)
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
"""


class Case(NamedTuple):
    """A program behind `HEAD`; the marked line is found. What stands in braces is replaced."""

    program: str
    severity: str = "warning"


FAULTY = {
    "each epoch": Case("""
for epoch in range(6):
    torch.manual_seed(42)  # here
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
"""),
    "only the order": Case("""
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
loader = DataLoader(DATA, batch_size=16, shuffle=True)
for epoch in range(6):
    torch.manual_seed(42)  # here
    for x, y in loader:
        update(model, optimizer, x, y)
"""),
    "only the order, drawn by hand": Case("""
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
def train_epoch():
    torch.manual_seed(42)  # here
    order = torch.randperm(64)
    for rows in order.split(16):
        update(model, optimizer, X[rows], Y[rows])
for epoch in range(6):
    train_epoch()
"""),
    "a helper that seeds": Case("""
for epoch in range(6):
    set_seed(42)  # here
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
"""),
    "an evaluation": Case("""
def evaluate():
    torch.manual_seed(0)  # here
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(DATA, batch_size=32, shuffle=True):
            model(x)
    model.train()
for epoch in range(6):
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
    evaluate()
"""),
    "a generator that is handed over": Case("""
for step in range(40):
    update(model, optimizer, X, Y)
    if step % 8 == 0:
        with torch.no_grad():
            model(torch.randn(4, 8, generator=torch.manual_seed(0)))  # here
"""),
    "a kept state": Case("""
state = torch.get_rng_state()
for epoch in range(6):
    torch.set_rng_state(state)  # here
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
"""),
    "workers": Case("""
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
if __name__ == "__main__":
    for epoch in range(5):
        torch.manual_seed(42)  # here
        for x, y in DataLoader(DATA, batch_size=16, shuffle=True, num_workers=1):
            update(model, optimizer, x, y)
"""),
    "Python's generator": Case("""
class Flipped(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return X[index] * random.choice((-1, 1)), Y[index]
loader = DataLoader(Flipped(), batch_size=16)
def validate():
    random.seed(0)  # here
    return sum(random.random() for _ in range(5))
for epoch in range(6):
    for x, y in loader:
        update(model, optimizer, x, y)
    validate()
""", "info"),
    "NumPy's generator": Case("""
def rows():
    np.random.seed(0)  # here
    return np.random.permutation(64).reshape(4, 16)
for epoch in range(6):
    for one in rows():
        noise = np.random.normal(0, 0.1, (16, 8))
        update(model, optimizer, X[one] + torch.tensor(noise, dtype=torch.float32), Y[one])
"""),
    "a data set": Case("""
class Noisy(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        torch.manual_seed(0)  # here
        return X[index] + 0.1 * torch.randn(8), Y[index]
for epoch in range(4):
    for x, y in DataLoader(Noisy(), batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
"""),
}  # fmt: skip

HEALTHY = {
    # What is drawn after a seed of each step may be all that the seed is for: fixed draws, as of a projection.
    "each step": """
for step in range(12):
    torch.manual_seed(0)
    update(model, optimizer, X, Y)
""",
    "a sample of an evaluation": """
def show():
    random.seed(0)
    return random.sample(range(64), 3)
for epoch in range(6):
    for start in range(0, 64, 16):
        update(model, optimizer, X[start : start + 16], Y[start : start + 16])
    show()
""",
    "one seed before training": """
set_seed(0)
for epoch in range(6):
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
""",
    "a forked state": """
for epoch in range(6):
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with torch.no_grad():
            model(torch.randn(4, 8))
""",
    "a state that is put back": """
for epoch in range(6):
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    with torch.no_grad():
        model(torch.randn(4, 8))
    torch.set_rng_state(state)
""",
    "a seed for each epoch": """
for epoch in range(8):
    set_seed(42 + epoch)
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
""",
    "a trial for each seed": """
for trial in range(6):
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * (trial + 1))
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
""",
    "trials that begin from the same weights": """
start = {k: v.clone() for k, v in model.state_dict().items()}
for trial in range(8):
    model.load_state_dict(start)
    optimizer.param_groups[0]["lr"] = 0.01 * (trial + 1)
    torch.manual_seed(0)
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
""",
    "a zeroth-order method": """
def perturb(seed, scale):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(scale * torch.randn_like(p))
for step in range(12):
    seed = random.randrange(1 << 30)
    for scale in (1e-3, -2e-3, 1e-3):
        perturb(seed, scale)
    update(model, optimizer, X, Y)
""",
    "a recomputed pass": """
for step in range(12):
    loss = F.mse_loss(checkpoint(model, X, use_reentrant=False), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "a recomputed pass, reentrant": """
x = X.clone().requires_grad_()
for step in range(12):
    loss = F.mse_loss(checkpoint(model, x, use_reentrant=True), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "two passes with the same masks": """
for step in range(12):
    state = torch.get_rng_state()
    F.mse_loss(model(X), Y).backward()
    torch.set_rng_state(state)
    update(model, optimizer, X, Y)
""",
    "training that draws nothing": """
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for epoch in range(8):
    for x, y in DataLoader(DATA, batch_size=16):
        update(model, optimizer, x, y)
    torch.manual_seed(0)
    with torch.no_grad():
        model(torch.randn(4, 8))
""",
    "training that draws nothing, without a loader": """
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
def sample():
    torch.manual_seed(0)
    with torch.no_grad():
        return model(torch.randn(4, 8)[torch.randperm(4)])
for epoch in range(8):
    for rows in torch.arange(64).split(16):
        update(model, optimizer, X[rows], Y[rows])
    sample()
""",
    "an evaluation that shuffles": """
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for epoch in range(8):
    torch.manual_seed(0)
    for x, y in DataLoader(DATA, batch_size=32, shuffle=True):
        with torch.no_grad():
            model(x)
    for x, y in DataLoader(DATA, batch_size=16):
        update(model, optimizer, x, y)
""",
    "generators of its own": """
for epoch in range(8):
    order = torch.Generator().manual_seed(0)
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True, generator=order):
        update(model, optimizer, x, y)
""",
    "an order by a generator of its own": """
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
own = torch.Generator()
loader = DataLoader(DATA, batch_size=16, sampler=RandomSampler(DATA, generator=own))
for epoch in range(8):
    torch.manual_seed(0)
    own.manual_seed(epoch)
    for x, y in loader:
        update(model, optimizer, x, y)
""",
    "workers that seed": """
def seeds(worker):
    set_seed(worker)
if __name__ == "__main__":
    for epoch in range(5):
        for x, y in DataLoader(DATA, batch_size=16, shuffle=True, num_workers=1, worker_init_fn=seeds):
            update(model, optimizer, x, y)
""",
    "a generator that training does not draw from": """
for epoch in range(8):
    random.seed(0)
    np.random.seed(0)
    shown = random.sample(range(64), 4), np.random.permutation(64)
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
""",
    "workers that get the same order": """
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
if __name__ == "__main__":
    for epoch in range(5):
        torch.manual_seed(0)
        for x, y in DataLoader(DATA, batch_size=16, num_workers=1):
            update(model, optimizer, x, y)
""",
    "a few epochs": """
for epoch in range(3):
    torch.manual_seed(0)
    for x, y in DataLoader(DATA, batch_size=16, shuffle=True):
        update(model, optimizer, x, y)
""",
    "one noise for two optimizers": """
other = net()
second = torch.optim.SGD(other.parameters(), lr=0.02)
for step in range(12):
    state = torch.get_rng_state()
    update(model, optimizer, X, Y)
    torch.set_rng_state(state)
    update(other, second, X, Y)
""",
    "a line search": """
search = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
def closure():
    torch.manual_seed(0)
    search.zero_grad()
    loss = F.mse_loss(model(X), Y)
    loss.backward()
    return loss
for step in range(10):
    search.step(closure)
""",
    "samples with seeds of their own": """
model = net(0.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
class Noisy(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        torch.manual_seed(index)
        return X[index] + 0.1 * torch.randn(8), Y[index]
for epoch in range(8):
    for x, y in DataLoader(Noisy(), batch_size=16):
        update(model, optimizer, x, y)
""",
}  # fmt: skip


def findings(tmp_path: Path, program: str) -> list[dict[str, Any]]:
    found = forked(HEAD + program, tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN140"]


@pytest.mark.parametrize("what", FAULTY)
def test_a_state_that_is_set_back(tmp_path: Path, what: str) -> None:
    case = FAULTY[what]
    (found,) = findings(tmp_path, case.program)
    lines = (HEAD + case.program).splitlines()
    assert lines[found["location"]["line"] - 1].endswith("# here")
    assert found["severity"] == case.severity


@pytest.mark.parametrize("what", HEALTHY)
def test_a_state_that_goes_on(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, HEALTHY[what])


EPOCHS = """
for epoch in range(8):
    {line}
    for x, y in loader:
        update(x, y)
"""
EVALUATES = """
@torch.no_grad()
def evaluate(model):
    torch.manual_seed(0)
    model(torch.randn(4, 8))
"""


@pytest.mark.parametrize(
    ("text", "at", "put_in"),
    [
        (
            "x = draw(4, generator=torch.manual_seed(seed))",
            "draw",
            "x = draw(4, generator=torch.Generator().manual_seed(seed))",
        ),
        (EPOCHS.format(line="torch.manual_seed(42)"), "manual_seed", "torch.manual_seed(42 + epoch)"),
        (EPOCHS.format(line="set_seed(a or b)"), "set_seed", "set_seed((a or b) + epoch)"),
        (EPOCHS.format(line="set_seed(a, b)"), "set_seed", ""),
        (EPOCHS.format(line="set_seed(a + epoch)"), "set_seed", ""),
        (EPOCHS.format(line="torch.set_rng_state(a)"), "set_rng", ""),
        (EVALUATES, "manual_seed", "@torch.random.fork_rng()"),
        (EVALUATES.replace("evaluate", "seed_all"), "manual_seed", ""),
        (EVALUATES.replace("model(", "yield model("), "manual_seed", ""),
    ],
)  # fmt: skip
def test_edits(text: str, at: str, put_in: str) -> None:
    _, new = fixed_lines("TRN140", textwrap.dedent(text) + "\n", at, about=About(variant="ended"))
    assert [line.strip() for line in new] == ([put_in] if put_in else [])


def test_all_seeds_of_a_loop_are_each_epochs_own() -> None:
    line = "random.seed(s)\n    np.random.seed(s)\n    torch.manual_seed(s)"
    _, new = fixed_lines("TRN140", EPOCHS.format(line=line), "torch.manual_seed")
    assert [one.strip() for one in new] == [f"{one.strip()[:-1]} + epoch)" for one in line.splitlines()]


def test_a_function_that_trains_keeps_its_state() -> None:
    assert fixed_lines("TRN140", EVALUATES, "manual_seed") == ([], [])


LOOP = """
optimizer = optim.SGD(model.parameters(), lr=0.1)
def train(model, loader, optimizer):
    for x, y in loader:
        loss = F.mse_loss(F.dropout(model(x)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
for epoch in range(9):
    {line}
    train(model, loader, optimizer)
"""
SUSPECTED = {
    "torch.manual_seed(42)": "torch.manual_seed(42 + epoch)",
    "torch.manual_seed(args.seed)": "torch.manual_seed(args.seed + epoch)",
    "draw(generator=torch.manual_seed(0))": "draw(generator=torch.Generator().manual_seed(0))",
}
UNSUSPECTED = (
    "torch.manual_seed(seed + epoch)",
    "torch.manual_seed(draw())",
    "seed = 3; torch.manual_seed(seed)",
    "torch.manual_seed(seeds[0])",
    "optimizer = optim.SGD(model.parameters(), lr=0.1); torch.manual_seed(0)",
    "model.load_state_dict(first); torch.manual_seed(0)",
    "if epoch == 0: torch.manual_seed(0)",
    "with torch.random.fork_rng(): torch.manual_seed(0)",
    "state = torch.get_rng_state(); torch.manual_seed(0); sample(); torch.set_rng_state(state)",
    "generator.manual_seed(0)",
    "draw(generator=torch.Generator().manual_seed(0))",
)


@pytest.mark.parametrize("line", SUSPECTED)
def test_a_seed_in_a_loop_that_trains(line: str) -> None:
    assert fixed("TRN140", LOOP.format(line=line)) == ([f"    {line}"], [f"    {SUSPECTED[line]}"])


@pytest.mark.parametrize("line", UNSUSPECTED)
def test_what_may_be_meant(line: str) -> None:
    assert not [*rule("TRN140").in_source(SourceFile("train.py", LOOP.format(line=line)))]


def test_nothing_is_drawn_or_trained() -> None:
    text = LOOP.format(line="torch.manual_seed(42)")
    for other in (text.replace("F.dropout(model(x))", "model(x)"), text.replace("    train(", "    test(")):
        assert not [*rule("TRN140").in_source(SourceFile("train.py", other))]
