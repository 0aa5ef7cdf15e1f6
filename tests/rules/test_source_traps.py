"""Programs that look like the faults that the programs of the casebook once hid from `check`, and have none."""

from __future__ import annotations

import textwrap

import pytest

from torchvet.rules import all_rules, rule
from torchvet.source.model import SourceFile

HEAD = """\
import copy
import sys
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)

    def forward(self, x):
        return self.fc(self.drop(x))

model, criterion = Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
loader, val_loader = torch.load("loaders.pt")

"""

STEP = """
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""

SILENT = {
    "TRN110 a copy within a tuple": """
        best = (0.0, None)
        for x, y in loader:STEP
            if loss < best[0]:
                best = (loss.item(), copy.deepcopy(model.state_dict()))
        model.load_state_dict(best[1])
    """,
    "TRN110 saved at once": """
        for x, y in loader:STEP
            if loss < 1:
                checkpoint = {"loss": loss.item(), "model": model.state_dict()}
                torch.save(checkpoint, "best.pt")
    """,
    "MEM112 as many keys as there are": """
        last = {}
        for step, (x, y) in enumerate(loader):STEP
            last[step % 10] = loss
    """,
    "MEM112 one key for each model": """
        worst = {}
        for x, y in loader:
            for name in ("a", "b"):
                loss = criterion(model(x), y)
                loss.backward()
                worst[name] = loss
            optimizer.step()
            optimizer.zero_grad()
    """,
    "MEM101 parts of one pass": """
        def contrast(rows):
            parts = []
            for i in range(len(rows)):
                parts.append(torch.relu(rows[i].max() - rows[i].min()))
            return parts

        def main():
            for x, y in loader:
                parts = contrast(model(x))
                print(len(parts))
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        main()
    """,
    "MEM101 a meter that is given numbers": """
        class Meter:
            def __init__(self):
                self.total, self.n = 0.0, 0

            def update(self, value, n):
                self.total += value * n
                self.n += n

        meter = Meter()
        for x, y in loader:STEP
            meter.update(loss.item(), len(x))
    """,
    "MEM102 samples now and then": """
        fixed, samples = torch.randn(8, 4), []
        for step, (x, y) in enumerate(loader):STEP
            if (step % 500 == 0) or (step == len(loader) - 1):
                with torch.no_grad():
                    samples.append(model(fixed).cpu())
    """,
    "MEM102 samples now and then, in a function": """
        fixed, samples = torch.randn(8, 4), []

        def look():
            with torch.no_grad():
                samples.append(model(fixed).cpu())

        for step, (x, y) in enumerate(loader):STEP
            if not step % 500:
                look()
    """,
    "MEM103 reset in each step": """
        class Memory(nn.Module):
            def __init__(self):
                super().__init__()
                self.write, self.memory = nn.Linear(4, 4), None

            def reset(self):
                self.memory = torch.zeros(4)

            def forward(self, x):
                self.memory = torch.tanh(self.write(self.memory + x))
                return self.memory

        cell = Memory()
        for x, y in loader:
            cell.reset()
            loss = criterion(cell(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "MEM103 statistics of the data": """
        class Whiten(nn.Module):
            def __init__(self):
                super().__init__()
                self.mean, self.memory = torch.zeros(4), 0

            def forward(self, x):
                self.mean = torch.lerp(self.mean, x.mean(0), 0.1)
                return x - self.mean

        whiten = Whiten()
        for x, y in loader:
            loss = criterion(model(whiten(x)), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "MEM107 a function kept for backward": """
        class Checkpoint(torch.autograd.Function):
            @staticmethod
            def forward(ctx, run, length, *tensors):
                ctx.run, ctx.length = run, length
                ctx.save_for_backward(*tensors)
                return run(*tensors)

            @staticmethod
            def backward(ctx, *gradients):
                return (None, None) + torch.autograd.grad(ctx.run(*ctx.saved_tensors), ctx.saved_tensors, gradients)
    """,
    "MEM108 ways that are tried in turn": """
        def choose(ways, x):
            failed = {}
            for way in ways:
                try:
                    return torch.matmul(way(x), x)
                except RuntimeError as error:
                    failed[way] = error
            raise RuntimeError(failed)

        for x, y in loader:
            choose([model], x)
    """,
    "MEM302 a helper that empties the cache now and then": """
        def tidy():
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

        for step, (x, y) in enumerate(loader):STEP
            if step % 100 == 0:
                tidy()
    """,
    "TRN103 a target computed while training": """
        model.train()
        for x, y in loader:
            with torch.no_grad():
                target = model(x).softmax(1)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
    """,
    "TRN103 frozen layers in eval mode": """
        def train(net, frozen, opt):
            for epoch in range(9):
                net.train()
                frozen.eval()
                for x, y in loader:
                    opt.zero_grad()
                    criterion(net(frozen(x)), y).backward()
                    opt.step()
    """,
    "TRN104 another file goes backward": """
        from engine import compute
        for x, y in loader:
            optimizer.zero_grad()
            loss = compute(model, x, y)
            optimizer.step()
    """,
    "TRN104 a function that uses autograd.grad": """
        def loss_of(x, y):
            loss = criterion(model(x), y)
            for p, g in zip(model.parameters(), torch.autograd.grad(loss, model.parameters())):
                p.grad = g
            return loss

        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(x, y)
            optimizer.step()
    """,
    "TRN106 terms on a leaf that have graphs": """
        for x, y in loader:
            total = torch.zeros(1, requires_grad=True)
            total = total + 0.5 * criterion(model(x), y)
            total = total + 0.1 * model(x).square().mean()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    """,
    "TRN107 a module of the file divides": """
        class WithLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.parts = nn.Linear(4, 4), 4

            def forward(self, x, y):
                out = self.fc(x)
                return out, F.cross_entropy(out, y) / self.parts

        net = WithLoss()
        sgd = torch.optim.SGD(net.parameters(), 0.1)
        for i, (x, y) in enumerate(loader):
            out, loss = net(x, y)
            loss.backward()
            if (i + 1) % 4 == 0:
                sgd.step()
                sgd.zero_grad()
    """,
    "TRN108 one caller normalises, and one does not": """
        def loss_of(scores, y):
            return F.cross_entropy(scores, y)

        for x, y in loader:
            loss_of(model(x), y).backward()
            loss_of(model(x).softmax(1), y)
    """,
    "TRN111 new parameters in each epoch": """
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(0, 8)

            def grow(self, size):
                old, self.table = self.table.weight, nn.Embedding(size, 8)
                with torch.no_grad():
                    self.table.weight[: len(old)] = old

        words = Words()
        for epoch in range(9):
            words.grow(100 * (epoch + 1))
            adam = torch.optim.Adam(words.parameters())
            for x, y in loader:
                adam.zero_grad()
                criterion(words.table(x), y).backward()
                adam.step()
    """,
    "TRN111 new parameters before each call": """
        class Tower(nn.Module):
            def __init__(self):
                super().__init__()
                self.floors = nn.ModuleList()

            def build(self):
                self.floors.append(nn.Linear(4, 4))

        tower = Tower()

        def train_epoch():
            adam = torch.optim.Adam(tower.parameters())
            for x, y in loader:
                adam.zero_grad()
                criterion(tower(x), y).backward()
                adam.step()

        for epoch in range(9):
            tower.build()
            train_epoch()
    """,
    "TRN111 each sample starts from the first weights": """
        class Adapter:
            def __init__(self, net):
                self.net, self.first = net, copy.deepcopy(net.state_dict())

            def update(self, x, y):
                self.net.load_state_dict(self.first)
                adam = torch.optim.Adam(self.net.parameters())
                adam.zero_grad()
                criterion(self.net(x), y).backward()
                adam.step()

        adapter = Adapter(model)
        for x, y in loader:
            adapter.update(x, y)
    """,
    "DEV109 a layer bound beside another": """
        class Head(nn.Module):
            def __init__(self, backbone):
                super().__init__()
                self.backbone, self.fc = backbone, nn.Linear(4, 4)
                self.seen = []
    """,
    "DEV110 made with the dtype that it is converted to": """
        def attention(query, key):
            bias = torch.zeros(query.size(-2), key.size(-2), dtype=query.dtype)
            bias.masked_fill_(torch.ones_like(bias).tril().logical_not(), float("-inf"))
            bias.to(query.dtype)
            return query @ key.transpose(-2, -1) + bias
    """,
    "TRN103 a new model in each fold": """
        def cross_validate(build, folds):
            for training, validation in folds:
                model = build()
                optimizer = torch.optim.Adam(model.parameters())
                for epoch in range(5):
                    for x, y in training:
                        optimizer.zero_grad()
                        criterion(model(x), y).backward()
                        optimizer.step()
                model.eval()
                with torch.no_grad():
                    print(sum(criterion(model(x), y).item() for x, y in validation))
    """,
    "TRN103 a new model in each call": """
        def objective(rate):
            model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate))
            optimizer = torch.optim.Adam(model.parameters())
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                return sum(criterion(model(x), y).item() for x, y in val_loader)

        print(min(objective(rate) for rate in (0.1, 0.3)))
        for rate in (0.2, 0.4):
            print(objective(rate))
    """,
    "TRN103 a new trainer in each turn": """
        class Trainer:
            def __init__(self, rate):
                self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(rate))
                self.optimizer = torch.optim.Adam(self.model.parameters())

            def fit(self):
                for x, y in loader:
                    self.optimizer.zero_grad()
                    criterion(self.model(x), y).backward()
                    self.optimizer.step()
                self.model.eval()
                with torch.no_grad():
                    return sum(criterion(self.model(x), y).item() for x, y in val_loader)

        for rate in (0.2, 0.4):
            trainer = Trainer(rate)
            print(trainer.fit())
    """,
    "TRN103 a context manager that restores the mode": """
        @contextlib.contextmanager
        def evaluating(model):
            training = model.training
            try:
                model.eval()
                yield model
            finally:
                if training:
                    model.train()

        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with evaluating(model), torch.no_grad():
                for x, y in val_loader:
                    hits = model(x).argmax(1) == y
    """,
    "TRN103 a class that restores the mode": """
        class Evaluating:
            def __init__(self, model):
                self.model = model

            def __enter__(self):
                self.was = self.model.training
                self.model.eval()

            def __exit__(self, *error):
                self.model.train(self.was)

        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                with Evaluating(model):
                    for x, y in val_loader:
                        hits = model(x).argmax(1) == y
    """,
    "TRN103 a context manager from elsewhere": """
        from modes import evaluating
        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with evaluating(model), torch.no_grad():
                for x, y in val_loader:
                    hits = model(x).argmax(1) == y
    """,
    "TRN103 a function from elsewhere that switches": """
        from modes import set_eval
        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            set_eval(model)
            with torch.no_grad():
                for x, y in val_loader:
                    hits = model(x).argmax(1) == y
    """,
    "TRN103 a decorator that switches": """
        from modes import in_eval_mode

        @in_eval_mode
        @torch.no_grad()
        def validate(model, batches):
            hits = 0
            for x, y in batches:
                hits += (model(x).argmax(1) == y).sum()
            return hits

        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            validate(model, val_loader)
    """,
    "TRN103 another model in each turn": """
        def train_all(models, training, validation):
            for model in models:
                optimizer = torch.optim.Adam(model.parameters())
                for x, y in training:
                    optimizer.zero_grad()
                    criterion(model(x), y).backward()
                    optimizer.step()
                model.eval()
                with torch.no_grad():
                    print(sum(criterion(model(x), y).item() for x, y in validation))
    """,
}


def findings(body: str, code: str) -> list[str]:
    """What a rule says of a program that the head begins."""
    body = textwrap.dedent(body)
    indented = textwrap.dedent(STEP)
    lines = []
    for line in body.splitlines():
        before, step, _ = line.partition("STEP")
        lines.append(before)
        if step:
            lines += [" " * (len(line) - len(line.lstrip()) + 4) + one for one in indented.strip().splitlines()]
    file = SourceFile("train.py", HEAD + "\n".join(lines) + "\n")
    return [f"{f.code} {f.severity} {f.message}" for f in rule(code).in_source(file)]


@pytest.mark.parametrize("name", SILENT)
def test_a_look_alike_stays_silent(name: str) -> None:
    assert findings(SILENT[name], name.split()[0]) == []


def test_every_name_begins_with_a_rule() -> None:
    assert {name.split()[0] for name in SILENT} <= {r.code for r in all_rules()}


PART = """
from dataclasses import dataclass, field

@dataclass
class Stats:
    losses: list = field(default_factory=list)

class Trainer:
    def __init__(self, model):
        self.model, self.criterion = model, nn.CrossEntropyLoss()
        self.stats = Stats()

    def evaluate(self, loader):
        self.model.eval(){renewed}
        for x, y in loader:
            self.stats.losses.append({value})
        return float(sum(self.stats.losses))

def main(model, loader):
    trainer = Trainer(nn.Linear(2, 2))
    for epoch in range(10):
        print(trainer.evaluate(loader))
"""


@pytest.mark.parametrize(
    ("value", "renewed", "expected"),
    [
        ("self.criterion(self.model(x), y)", "", 1),
        ("self.criterion(self.model(x), y).item()", "", 0),
        ("self.criterion(self.model(x), y)", "\n        self.stats = Stats()", 0),
    ],
)
def test_what_an_object_keeps_for_its_owner(value: str, renewed: str, expected: int) -> None:
    found = rule("MEM101").in_source(SourceFile("a.py", HEAD + PART.format(value=value, renewed=renewed)))
    assert len(list(found)) == expected
