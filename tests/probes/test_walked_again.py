"""Backward passes of a step through the same nodes are found; what only looks like it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.passes import WalkedAgain

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
N = 48

class Net:
    '''A trunk with two heads, each with an optimizer.'''
    def __init__(self):
        self.trunk = nn.Sequential(nn.Linear(N, N), nn.Tanh(), nn.Linear(N, N), nn.Tanh())
        self.a, self.b = nn.Linear(N, 1), nn.Linear(N, 2)
        self.every = [*self.trunk.parameters(), *self.a.parameters(), *self.b.parameters()]
        self.opt = torch.optim.SGD(self.every, lr=0.001)
        self.opt_b = torch.optim.SGD(self.b.parameters(), lr=0.001)
        self.state = torch.zeros(N, N)

    def losses(self, x):
        h = self.trunk(x)
        return self.a(h).square().mean(), self.b(h).square().mean()

{functions}

nets = [{nets}]
clock = nn.Linear(2, 2)
tick = torch.optim.SGD(clock.parameters(), lr=0.001)
for step in range(24):
    # What steps again first ends a step: so that it begins here.
    clock(torch.ones(2)).sum().backward()
    tick.step()
    for run, net in nets:
        run(net, torch.randn(N, N), step)
open(__file__ + ".ended", "w").close()
"""


def seen(folder: Path, bodies: dict[str, str]) -> dict[str, WalkedAgain]:
    """What is found of functions with these bodies, all of one program, by name: each has a network of its own."""
    functions, nets = [], []
    for number, body in enumerate(bodies.values()):
        lines = "\n    ".join(body.strip().splitlines())
        functions.append(f"def run_{number}(p, x, step):\n    {lines}\n")
        nets.append(f"(run_{number}, Net())")
    forked(PROGRAM.replace("{functions}", "\n".join(functions)).replace("{nets}", ", ".join(nets)), folder)
    assert (folder / "program.py.ended").exists()
    found, names = {}, list(bodies)
    for one in read(folder / RECORDING).ranks[0].latest(WalkedAgain, "id"):
        number = re.search(r"run_(\d+)", one.place.function)
        assert number is not None
        found[names[int(number[1])]] = one
    return found


TWO = """
one, two = p.losses(x)
p.opt.zero_grad()
one.backward(retain_graph=True)
two.backward()
p.opt.step()
"""
LOOP = """
losses = p.losses(x)
p.opt.zero_grad()
for loss in losses:
    loss.backward(retain_graph=True)
p.opt.step()
"""
FOUND = {
    "two statements": TWO,
    "a loop": LOOP,
    "gradients clipped after both": TWO.replace("p.opt.step", "nn.utils.clip_grad_norm_(p.every, 1.0)\np.opt.step"),
    "losses read between": TWO.replace("two.b", "print(one.item(), two.item())\ntwo.b"),
    "two optimizers after both": TWO + "p.opt_b.step()\n",
    "of a network and of its head alone": TWO.replace("two.b", "(two + one).b"),
    "a scaler": TWO.replace("one.b", "scaler.scale(one).b").replace(
        "one, two", "scaler = torch.amp.GradScaler('cpu', enabled=True)\none, two"
    ),
    "every loss of a sequence goes back to its beginning": """
h, total = p.trunk(x), []
p.opt.zero_grad()
for _ in range(3):
    p.a(h).square().mean().backward(retain_graph=True)
    h = p.trunk(h)
p.opt.step()
""",
}
SILENT = {
    "one pass": TWO.replace("one.backward(retain_graph=True)\ntwo", "(one + two)"),
    "an optimizer steps between": TWO.replace("two.b", "p.opt_b.step()\ntwo.b"),
    "gradients cleared between": TWO.replace("two.b", "p.opt.zero_grad()\ntwo.b"),
    "gradients of some cleared between": TWO.replace("two.b", "p.trunk.zero_grad(set_to_none=False)\ntwo.b"),
    "gradients read between": TWO.replace("two.b", "norm = p.every[0].grad.norm()\ntwo.b"),
    "gradients copied between": TWO.replace("two.b", "kept = [q.grad.clone() for q in p.every[:4]]\ntwo.b"),
    "gradients clipped between": TWO.replace("two.b", "nn.utils.clip_grad_norm_(p.every[:4], 1.0)\ntwo.b"),
    "gradients read between now and then": TWO.replace("two.b", "step % 2 or p.every[0].grad.norm()\ntwo.b"),
    "gradients taken between": TWO.replace("two.b", "kept = [q.grad for q in p.every]\np.opt.zero_grad()\ntwo.b"),
    "projected by autograd.grad": """
one, two = p.losses(x)
first = torch.autograd.grad(one, p.every[:4], retain_graph=True)
second = torch.autograd.grad(two, p.every[:4])
for q, a, b in zip(p.every, first, second):
    q.grad = a - (a * b).sum() * b
p.opt.step()
""",
    "micro-batches": """
p.opt.zero_grad()
for part in x.chunk(3):
    p.losses(part)[0].backward(retain_graph=True)
p.opt.step()
""",
    "rows of a batch": """
loss, norms = p.a(p.trunk(x)).square(), []
for row in loss[:4]:
    p.opt.zero_grad()
    row.sum().backward(retain_graph=True)
    norms.append([q.grad.norm() for q in p.every[:4]])
p.opt.step()
""",
    "networks of their own": """
p.opt.zero_grad()
p.a(x).square().mean().backward(retain_graph=True)
p.b(x).square().mean().backward()
p.opt.step()
""",
    "a state carried over": """
p.state = p.trunk(x + p.state)
p.opt.zero_grad()
p.a(p.state).square().mean().backward(retain_graph=True)
with torch.no_grad():
    p.opt.zero_grad()
p.opt.step()
p.state = p.state if step % 4 else torch.zeros(N, N)
""".replace("p.opt.step()\n", "p.opt_b.step()\n"),
    "a penalty on the gradient": """
x.requires_grad_()
one, two = p.losses(x)
p.opt.zero_grad()
one.backward(create_graph=True)
two.backward()
p.opt.step()
p.opt.zero_grad()
""",
    "an attack on the input": """
x.requires_grad_()
one, two = p.losses(x)
p.opt.zero_grad()
one.backward(retain_graph=True)
(towards,) = torch.autograd.grad(one, x)
p.losses(x.detach() + 0.1 * towards.sign())[0].backward()
p.opt.step()
""",
    "updates of an inner loop": """
one, two = p.losses(x)
fast = torch.autograd.grad(one, p.every[:4], create_graph=True, retain_graph=True)
p.opt.zero_grad()
(two + sum(q.square().sum() for q in fast)).backward()
p.opt.step()
""",
    "only some leaves are given gradients": """
one, two = p.losses(x)
p.opt.zero_grad()
one.backward(retain_graph=True, inputs=p.every[:2])
two.backward(inputs=p.every[2:])
p.opt.step()
""",
    "a hook of a parameter": TWO.replace(
        "p.opt.zero", "if step == 0:\n    p.every[0].register_hook(lambda g: g.clamp(-1, 1))\np.opt.zero"
    ),
    "a hook of the features": """
h = p.trunk(x)
h.register_hook(lambda g: g / g.norm())
p.opt.zero_grad()
p.a(h).square().mean().backward(retain_graph=True)
p.b(h).square().mean().backward()
p.opt.step()
""",
    "a hook that only keeps": """
h = p.trunk(x)
kept = []
h.register_hook(kept.append)
p.opt.zero_grad()
p.a(h).square().mean().backward(retain_graph=True)
p.b(h).square().mean().backward()
p.opt.step()
""",
    "a gradient of the features": """
h = p.trunk(x)
h.retain_grad()
p.opt.zero_grad()
norms = []
for head in (p.a, p.b):
    head(h).square().mean().backward(retain_graph=True)
    norms.append(h.grad.norm().item())
    h.grad = None
p.opt.step()
""",
    "hooks of modules": """
if step == 0:
    p.trunk[0].register_full_backward_hook(lambda m, i, o: None)
"""
    + TWO,
    "updated by hand between": TWO.replace(
        "two.b", "with torch.no_grad():\n    for q in p.every[4:6]:\n        q -= 0.1 * q.grad\ntwo.b"
    ),
    "gradients of more than one element": TWO.replace(
        "one.backward(", "o = p.trunk(x)\no.backward(torch.ones(N, N), "
    ).replace("two.b", "o.backward(torch.ones(N, N))\ntwo.b"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, WalkedAgain]:
    return seen(tmp_path_factory.mktemp("walked"), FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_passes_through_the_same_nodes_are_found(found: dict[str, WalkedAgain], name: str) -> None:
    one = found[name]
    assert one.steps >= 3
    assert one.passes / one.steps == (3 if "sequence" in name else 2)
    assert 0.1 < one.share < 0.7
    assert not one.kept


def test_the_lines_of_all_passes_are_named(found: dict[str, WalkedAgain]) -> None:
    first, second = found["two statements"].lines
    assert second.line == first.line + 1
    assert len(found["a loop"].lines) == 1


def test_what_only_looks_like_it_is_silent(tmp_path: Path) -> None:
    assert seen(tmp_path, SILENT) == {}


def test_a_graph_that_a_later_step_goes_through_is_told(tmp_path: Path) -> None:
    carried = """
p.state = p.trunk(x + p.state)
p.opt_b.zero_grad()
for head in p.a, p.b:
    head(p.state).square().mean().backward(retain_graph=True)
p.opt_b.step()
"""
    (one,) = seen(tmp_path, {"carried": carried}).values()
    assert one.kept
