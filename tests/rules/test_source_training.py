"""Training loops that look like faults and are none, and shapes of faults that are easily missed."""

from __future__ import annotations

import pytest

from torchvet.rules import all_rules
from torchvet.source.model import SourceFile

HEAD = """
import copy
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)

    def forward(self, x):
        return self.fc(self.drop(x))

model = Net()
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
loader, val_loader = torch.load("loaders.pt")
"""

HEALTHY = {
    "closure of LBFGS": """
        lbfgs = torch.optim.LBFGS(model.parameters())
        for x, y in loader:
            def closure():
                lbfgs.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                return loss
            lbfgs.step(closure)
    """,
    "cleared by hand": """
        for x, y in loader:
            for p in model.parameters():
                p.grad = None
            criterion(model(x), y).backward()
            optimizer.step()
    """,
    "cleared by a function from elsewhere": """
        from helpers import clear_gradients
        for x, y in loader:
            clear_gradients(model)
            criterion(model(x), y).backward()
            optimizer.step()
    """,
    "DeepSpeed clears": """
        import deepspeed
        engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters())
        for x, y in loader:
            loss = criterion(engine(x), y)
            engine.backward(loss)
            engine.step()
    """,
    "the other optimizer's parameters are cleared between backward and step": """
        critic = Net()
        other = torch.optim.Adam(critic.parameters())
        for x, y in loader:
            optimizer.zero_grad()
            criterion(critic(model(x)), y).backward()
            other.zero_grad()
            optimizer.step()
            criterion(critic(x), y).backward()
            other.step()
    """,
    "gradients written back by hand": """
        for x, y in loader:
            criterion(model(x), y).backward()
            kept = [p.grad.clone() for p in model.parameters()]
            optimizer.zero_grad()
            for p, g in zip(model.parameters(), kept):
                p.grad = g.sign()
            optimizer.step()
    """,
    "Monte Carlo dropout": """
        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                samples = torch.stack([model(x) for _ in range(20)])
    """,
    "the mode is switched elsewhere": """
        from engine import train_mode
        for epoch in range(9):
            train_mode(model)
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for x, y in val_loader:
                    hits = model(x).argmax(1) == y
    """,
    "frozen batch norm": """
        for x, y in loader:
            model.eval()
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    """,
    "an adversarial perturbation is a leaf": """
        for x, y in loader:
            delta = torch.zeros_like(x).requires_grad_()
            loss = criterion(x + delta, y)
            loss.backward()
            x = x + delta.grad.sign()
    """,
    "a tensor that is filled row by row": """
        rows = torch.empty(8, 4)
        for x, y in loader:
            for i in range(8):
                rows[i] = model(x[i])
            loss = criterion(rows, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "summed, and divided by what was counted": """
        total = nn.CrossEntropyLoss(reduction="sum")
        for i, (x, y) in enumerate(loader):
            loss = total(model(x), y)
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    """,
    "probabilities as the target": """
        teacher = Net().eval()
        for x, _ in loader:
            with torch.no_grad():
                wanted = teacher(x).softmax(dim=1)
            loss = F.cross_entropy(model(x), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "probabilities outside training only": """
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 4)

            def forward(self, x):
                if self.training:
                    return self.fc(x)
                return self.fc(x).softmax(1)

        head = Head()
        for x, y in loader:
            loss = criterion(head(x), y)
    """,
    "not before the second epoch": """
        for epoch in range(9):
            if epoch > 0:
                scheduler.step()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    """,
    "saved in the same pass": """
        for epoch in range(9):
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            state = model.state_dict()
            torch.save(state, "last.pt")
        torch.save(model.state_dict(), "final.pt")
    """,
    "copied at once into another model": """
        target = Net()
        for epoch in range(9):
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            if epoch % 3 == 0:
                state = model.state_dict()
                target.load_state_dict(state)
    """,
    "a validation that computes targets where it trains": """
        def validate_and_learn(batches):
            for x, y in batches:
                with torch.no_grad():
                    wanted = run(x)
                optimizer.zero_grad()
                F.mse_loss(model(x), wanted).backward()
                optimizer.step()

        def run(x):
            return model(x)

        for epoch in range(9):
            validate_and_learn(loader)
    """,
    "truncated in time, piece by piece": """
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            sgd.zero_grad()
            for piece in x.split(16, dim=1):
                loss = F.mse_loss(model(piece), piece)
                loss.backward()
            sgd.step()
    """,
    "an epoch for each of several models": """
        def train_epoch(net, batches):
            adam = torch.optim.Adam(net.parameters())
            for x, y in batches:
                adam.zero_grad()
                criterion(net(x), y).backward()
                adam.step()

        nets = [Net() for _ in range(4)]
        for k in range(4):
            net = nets[k]
            train_epoch(net, loader)
        for k in range(4):
            train_epoch(nets[k], loader)
    """,
    "a new model in every fold": """
        for fold in range(5):
            net = Net()
            sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for x, y in loader:
                sgd.zero_grad()
                criterion(net(x), y).backward()
                sgd.step()
    """,
    "clients start from the global weights": """
        for i in range(9):
            model.load_state_dict(torch.load("global.pt", weights_only=True))
            sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for x, y in loader:
                sgd.zero_grad()
                criterion(model(x), y).backward()
                sgd.step()
    """,
    "a sampler that does not shuffle": """
        from torch.utils.data import DataLoader, DistributedSampler
        sampler = DistributedSampler(loader.dataset, shuffle=False)
        batches = DataLoader(loader.dataset, sampler=sampler)
        for epoch in range(9):
            for x, y in batches:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    """,
    "a device of its own for each rank": """
        import os
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group("nccl")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        ddp = DDP(model.to(device))
    """,
}

FAULTY = {
    "TRN101 the second optimizer is never cleared": """
        other = Net()
        second = torch.optim.SGD(other.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            criterion(other(model(x)), y).backward()
            optimizer.step()
            second.step()
    """,
    "TRN104 a model under no_grad has an optimizer": """
        encoder = Net()
        encoder_optimizer = torch.optim.Adam(encoder.parameters())
        for x, y in loader:
            with torch.no_grad():
                features = encoder(x)
            optimizer.zero_grad()
            encoder_optimizer.zero_grad()
            criterion(model(features), y).backward()
            optimizer.step()
            encoder_optimizer.step()
    """,
    "TRN103 evaluated right after train()": """
        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                for x, y in val_loader:
                    hits = model(x).argmax(1) == y
        model.eval()
    """,
    "TRN103 evaluated after a context manager has switched back": """
        @contextlib.contextmanager
        def evaluating(model):
            model.eval()
            yield model
            model.train()

        for epoch in range(9):
            model.train()
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
            with evaluating(model), torch.no_grad():
                seen = [model(x) for x, y in loader]
            with torch.no_grad():
                for x, y in val_loader:
                    hits = model(x).argmax(1) == y
    """,
    "TRN103 a method validates by way of another": """
        class Run:
            def __init__(self, net):
                self.net = net
                self.adam = torch.optim.Adam(net.parameters())

            def loss(self, batch):
                x, y = batch
                return F.cross_entropy(self.net(x), y)

            def fit(self, batches):
                for batch in batches:
                    self.adam.zero_grad()
                    self.loss(batch).backward()
                    self.adam.step()

            def validate(self, batches):
                with torch.no_grad():
                    losses = [self.loss(batch) for batch in batches]
                return sum(losses)

        run = Run(Net())
        for epoch in range(9):
            run.fit(loader)
            run.validate(val_loader)
    """,
    "TRN107 a batch in pieces": """
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            sgd.zero_grad()
            for some_x, some_y in zip(x.chunk(4), y.chunk(4)):
                loss = criterion(model(some_x), some_y)
                loss.backward()
            sgd.step()
    """,
    "TRN107 a batch in pieces of a size": """
        def learn(x, y, size):
            sgd.zero_grad()
            for number, piece in enumerate(torch.split(x, size)):
                loss = F.mse_loss(model(piece), piece)
                loss.backward()
            sgd.step()

        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            learn(x, y, 16)
    """,
    "TRN111 a function that trains an epoch builds its own": """
        def train_epoch(net, batches):
            adam = torch.optim.Adam(net.parameters())
            for x, y in batches:
                adam.zero_grad()
                criterion(net(x), y).backward()
                adam.step()

        for _ in range(passes):
            train_epoch(model, loader)
    """,
    "TRN110 a reset between trials resets nothing": """
        initial = model.state_dict()
        for trial in range(5):
            model.load_state_dict(initial)
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
    """,
    "TRN107 in an inner loop of micro-batches": """
        accum_steps = 8
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(100):
            sgd.zero_grad()
            for micro_step in range(accum_steps):
                x, y = next(loader)
                loss = criterion(model(x), y)
                loss.backward()
            sgd.step()
    """,
    "TRN108 a function of the file normalises": """
        def predict(x):
            scores = model(x)
            return torch.softmax(scores, dim=1)

        for x, y in loader:
            loss = criterion(predict(x), y)
    """,
    "TRN106 the flag is set afterwards": """
        for x, y in loader:
            predicted = model(x).detach()
            loss = F.mse_loss(predicted, y.float().detach())
            loss.requires_grad = True
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
}


def found(body: str) -> list[str]:
    lines = [line[8:] for line in body.splitlines()]
    file = SourceFile("train.py", HEAD + "\n".join(lines) + "\n")
    mine = [r for r in all_rules() if r.code.startswith(("TRN", "DST"))]
    return [f"{f.code} line {f.location.line if f.location else 0}" for r in mine for f in r.in_source(file)
            if f.severity != "info"]  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_look_alike_stays_silent(name: str) -> None:
    assert found(HEALTHY[name]) == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_in_an_unusual_shape_is_found(name: str) -> None:
    assert any(name.startswith(one.split()[0]) for one in found(FAULTY[name]))
