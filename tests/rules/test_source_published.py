"""Look-alikes met in published training code, each beside the fault that it was taken for."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import itertools\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n"

PAIRS = {
    "AMP109 one of the optimizers is picked": (
        """
def step(scaler, loss, optimizers):
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
        scaler.update()
""",
        """
def step(scaler, loss, optimizers, chosen):
    scaler.scale(loss).backward()
    for number, optimizer in enumerate(optimizers):
        if chosen is not None and number != chosen:
            continue
        scaler.step(optimizer)
        scaler.update()
""",
    ),
    "DEV101 the model is another one than was moved": (
        """
from torchvision.datasets import MNIST
loader = DataLoader(MNIST("."))
net = nn.Linear(2, 2)
net.to("cuda")
with torch.no_grad():
    for x, y in loader:
        print(net(x))
""",
        """
from torchvision.datasets import MNIST
loader = DataLoader(MNIST("."))
net = nn.Linear(2, 2)
net.to("cuda")
net = nn.Linear(2, 2)
with torch.no_grad():
    for x, y in loader:
        print(net(x))
""",
    ),
    "DEV108 the run saved it before": (
        """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(2, 2).to(device)
model.load_state_dict(torch.load("best.pt"))
""",
        """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(2, 2).to(device)

def keep(where):
    torch.save(model.state_dict(), where)

def train():
    keep("best.pt")

train()
model.load_state_dict(torch.load("best.pt"))
""",
    ),
    "DEV108 a resume comes before the run saves": (
        """
def main(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(2, 2).to(device)
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    torch.save(model.state_dict(), args.resume)
""",
        """
def main(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(2, 2).to(device)
    torch.save(model.state_dict(), args.resume)
    model.load_state_dict(torch.load(args.resume))
""",
    ),
    "DEV109 a list taken apart": (
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = [nn.Linear(2, 2) for _ in range(2)]
""",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = [nn.Linear(2, 2) for _ in range(2)]
""",
    ),
    "DEV109 modules of the file that hold nothing": (
        """
class Average(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.pool, self.norm = nn.AvgPool1d(size), nn.BatchNorm1d(4)

class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.parts = [Average(size) for size in sizes]
""",
        """
class Average(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.pool = nn.AvgPool1d(size)

class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.parts = [Average(size) for size in sizes]
""",
    ),
    "MEM101 a function sums up what it was given": (
        """
def rollout(model, states):
    total = 0
    for state in states:
        value = model(state)
        total = value + 0.9 * total
    return total

model = nn.Linear(4, 1).eval()
score = rollout(model, torch.randn(9, 4))
print(score.item())
""",
        """
def discounted(following, rewards, values):
    values = values + [following]
    total, returns = 0, []
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + values[step + 1] - values[step]
        total = delta + 0.9 * total
        returns.insert(0, total + values[step])
    return returns

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x) > 0, self.layer(x)

model = Critic()
optimizer = torch.optim.Adam(model.parameters())
while True:
    values, rewards = [], []
    for state in torch.randn(9, 4):
        _, value = model(state)
        values.append(value)
        rewards.append(torch.ones(1))
    _, following = model(state)
    returns = discounted(following, rewards, values)
    returns = torch.cat(returns).detach()
    values = torch.cat(values)
    optimizer.zero_grad()
    (returns - values).pow(2).mean().backward()
    optimizer.step()
""",
    ),
    "MEM101 what forward returns": (
        """
kept = []
model = nn.Linear(4, 1).eval()
for x in batches:
    kept.append(model(x))
print(len(kept))
""",
        """
class Separator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        sources = []
        for part in x:
            sources.append(self.layer(part))
        return sources

model = Separator().eval()
print(len(model.forward(batch)))
brain = Brain({"model": model})
""",
    ),
    "DEV101 a data set of what is on the device": (
        """
class Pairs(torch.utils.data.Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return read(self.paths[index])

net = nn.Linear(2, 2).to("cuda")
with torch.no_grad():
    for x in DataLoader(Pairs(paths)):
        print(net(x))
""",
        """
class Pairs(torch.utils.data.Dataset):
    def __init__(self, x):
        self.x = x

    def __getitem__(self, index):
        return self.x[index]

net = nn.Linear(2, 2).to("cuda")
inputs = inputs.to("cuda")
with torch.no_grad():
    for x in DataLoader(Pairs(inputs)):
        print(net(x))
""",
    ),
    "DEV101 a model that went back to the host": (
        """
net = nn.Linear(2, 2).to("cuda")
net.eval()
x = torch.zeros(3, 2)
print(net(x))
""",
        """
net = nn.Linear(2, 2).to("cuda")
net = net.cpu()
net.eval()
x = torch.zeros(3, 2)
print(net(x))
""",
    ),
    "DEV101 a list that is filled anew": (
        """
from torchvision.datasets import MNIST
net = nn.Linear(2, 2).to("cuda")
with torch.no_grad():
    for blocks in DataLoader(MNIST(".")):
        print(net(blocks))
""",
        """
from torchvision.datasets import MNIST
net = nn.Linear(2, 2).to("cuda")
with torch.no_grad():
    for blocks in DataLoader(MNIST(".")):
        for i in range(len(blocks)):
            blocks[i] = blocks[i].to("cuda")
        print(net(blocks))
""",
    ),
    "OPS205 a kernel": (
        """
def scaled(x: torch.Tensor, w: torch.Tensor, s):
    for i in range(x.size(0)):
        s = s + x[i] * w[i]
    return s
""",
        """
from numba import cuda

@cuda.jit
def scaled(x: torch.Tensor, w: torch.Tensor, s):
    for i in range(x.size(0)):
        s = s + x[i] * w[i]
    return s
""",
    ),
    "OPS208 an evaluation that goes nowhere": (
        """
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in batches:
    logits = model(x)
    probs = nn.functional.softmax(logits, dim=-1)
    probs *= 2
    optimizer.zero_grad()
    probs.sum().backward()
    optimizer.step()
""",
        """
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in batches:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
model.eval()
for x in batches:
    logits = model(x)
    probs = nn.functional.softmax(logits, dim=-1)
    probs *= 2
    print(torch.argmax(probs[0, -1]))
""",
    ),
    "OPS204 over a list of a few": (
        """
def gather(dataloader, model):
    out = torch.empty(0)
    for batch in tqdm(dataloader):
        out = torch.cat([out, model(batch)])
    return out
""",
        """
def gather(branches, x):
    out = torch.empty(0)
    for branch in branches:
        out = torch.cat([out, branch(x)])
    return out
""",
    ),
    "MEM103 a demonstration of three passes": (
        """
rnn = nn.GRU(4, 4).eval()
h = torch.zeros(1, 1, 4)
for i in range(300):
    out, h = rnn(x[i], h)
    print(out.size())
""",
        """
rnn = nn.GRU(4, 4).eval()
h = torch.zeros(1, 1, 4)
for i in range(3):
    out, h = rnn(x[i], h)
    print(out.size())
""",
    ),
    "MEM302 once in an epoch, which is a function": (
        """
class Trainer:
    def run(self, loader, epochs):
        for epoch in range(epochs):
            for x in loader:
                torch.cuda.empty_cache()
                self.optimizer.zero_grad()
                self.model(x).sum().backward()
                self.optimizer.step()
""",
        """
class Trainer:
    def run(self, loader, epochs):
        for epoch in range(epochs):
            torch.cuda.empty_cache()
            self.one(loader)

    def one(self, loader):
        for x in loader:
            self.optimizer.zero_grad()
            self.model(x).sum().backward()
            self.optimizer.step()
""",
    ),
    "OPS204 over a module's own parts": (
        """
def gather(loader, model):
    out = torch.empty(0)
    for batch in loader:
        out = torch.cat([out, model(batch)])
    return out
""",
        """
class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        out = None
        for layer in self.layers:
            if out is None:
                out = layer(x)
            else:
                out = torch.cat([out, layer(x)])
        return out
""",
    ),
    "OPS204 at an interval": (
        """
def sample(model, image):
    chain = image
    for t in range(1000):
        image = model(image, t)
        chain = torch.cat([chain, image])
    return chain
""",
        """
def sample(model, image):
    chain = image
    for t in range(1000):
        image = model(image, t)
        if t % 100 == 0:
            chain = torch.cat([chain, image])
    return chain
""",
    ),
    "TRN101 an optimizer for one turn's tensor": (
        """
def guide(model, latents):
    x = latents.clone().requires_grad_()
    optimizer = torch.optim.SGD([x], lr=0.1)
    for t in range(50):
        model(x, t).sum().backward()
        optimizer.step()
""",
        """
def guide(model, latents):
    for t in range(50):
        x = latents.clone().requires_grad_()
        optimizer = torch.optim.SGD([x], lr=0.1)
        model(x, t).sum().backward()
        optimizer.step()
        latents = x.detach()
""",
    ),
    "TRN103 a generator is sampled from noise": (
        """
generator = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
optimizer = torch.optim.Adam(generator.parameters())
loader = DataLoader(data)
for i, batch in enumerate(loader):
    generator.train()
    optimizer.zero_grad()
    generator(batch).sum().backward()
    optimizer.step()
for i, batch in enumerate(loader):
    with torch.no_grad():
        sample = generator(batch)
""",
        """
generator = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
optimizer = torch.optim.Adam(generator.parameters())
loader = DataLoader(data)
noise = torch.randn(8, 4)
for i, batch in enumerate(loader):
    generator.train()
    optimizer.zero_grad()
    generator(batch).sum().backward()
    optimizer.step()
for i, batch in enumerate(loader):
    with torch.no_grad():
        sample = generator(noise)
""",
    ),
}


def alarms(code: str, text: str, path: str = "train.py") -> int:
    """How often a rule speaks at warning or above."""
    return sum(f.severity != "info" for f in rule(code).in_source(SourceFile(path, HEAD + text)))


@pytest.mark.parametrize("name", PAIRS)
def test_the_fault_is_told_from_its_look_alike(name: str) -> None:
    faulty, healthy = PAIRS[name]
    assert alarms(name.split()[0], faulty) and not alarms(name.split()[0], healthy)


def test_gradients_held_back_by_hand() -> None:
    text = rule("DST105").BAD
    held = text.replace("    loss.backward()", "    model.disable_allreduce()\n    loss.backward()")
    assert held != text and alarms("DST105", text) and not alarms("DST105", held)


RANKS = """
from torch.utils.data.distributed import DistributedSampler

def loaders(train, held_out):
    sampler = DistributedSampler(train)
    loader = DataLoader(train, sampler=sampler)
    return loader, DataLoader(held_out)

def main(train, held_out, engine, epochs):
    loader, rest = loaders(train, held_out)
    for epoch in range(epochs):
        for batch in {over}:
            engine.backward(engine(batch))
            engine.step()
"""


@pytest.mark.parametrize(("over", "expected"), [("loader", 1), ("rest", 0)])
def test_a_loader_is_followed_out_of_the_function_that_makes_it(over: str, expected: int) -> None:
    assert alarms("DST107", RANKS.format(over=over)) == expected


HELPER = """
def portrait(net, image):
    out = net(image){more}
    return out.argmax(1).item()

net = nn.Linear(2, 2)
net.eval()
for image in images:
    print(portrait(net, image))
"""


@pytest.mark.parametrize(("more", "expected"), [("", 1), ("; cam = GradCAM(net)", 0)])
def test_a_helper_runs_the_model_for_the_loop(more: str, expected: int) -> None:
    assert alarms("MEM104", HELPER.format(more=more)) == expected


SCHEDULED = """
class Finder(torch.optim.lr_scheduler._LRScheduler):
    def {method}(self):
        return [group["lr"] * 2 for group in self.optimizer.param_groups]

net = nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
finder = Finder(optimizer)
for batch in batches:
    finder.step()
    optimizer.zero_grad()
    net(batch).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("method", "expected"), [("get_lr", 1), ("step", 0)])
def test_a_scheduler_of_ones_own_steps_like_torchs(method: str, expected: int) -> None:
    assert alarms("TRN109", SCHEDULED.format(method=method)) == expected


@pytest.mark.parametrize("code", ["MEM102", "MEM203", "OPS101", "OPS204"])
def test_a_test_suite_takes_too_few_steps_to_matter(code: str) -> None:
    text = rule(code).BAD
    assert alarms(code, text) and not alarms(code, text, "tests/test_loop.py")


def test_what_is_kept_at_one_step_only_does_not_pile_up() -> None:
    text = rule("MEM102").BAD
    direct = text.replace("    accuracy.update(logits, target)", "    {}outputs.append(logits.detach())")
    direct = (
        direct.replace("for step in", "outputs = []\nfor step in").replace("{loss", "{{loss").replace("{acc", "{{acc")
    )
    direct = direct.replace(":.4f}", ":.4f}}").replace("{step + 1}", "{{step + 1}}")
    assert alarms("MEM102", direct.format("")) and not alarms("MEM102", direct.format("if step == 0: "))


def test_a_hook_that_gathers_is_told_once() -> None:
    text = rule("MEM117").BAD
    assert alarms("MEM117", text) and not alarms("MEM102", text)
