"""Parts of backward passes that are thrown away are found; what only looks like it is not."""

from __future__ import annotations

import re
from pathlib import Path

from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import ThrownAway

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
N = 64

class Pair:
    '''A generator and a critic with their optimizers.'''
    def __init__(self):
        self.generator = nn.Sequential(nn.Linear(N, N), nn.Tanh(), nn.Linear(N, N), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(N, N), nn.Tanh(), nn.Linear(N, 1))
        self.opt_g = torch.optim.SGD(self.generator.parameters(), lr=0.001)
        self.opt_d = torch.optim.SGD(self.critic.parameters(), lr=0.001)

    def fake(self):
        return self.generator(torch.randn(N, N))

    def train_generator(self):
        loss = -self.critic(self.generator(torch.randn(N, N))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()

{functions}

plain, pairs = Pair(), [{pairs}]
for step in range(24):
    # What steps again first ends a step: so that it begins here.
    plain.train_generator()
    for run, pair in pairs:
        run(pair, torch.randn(N, N), step)
open(__file__ + ".ended", "w").close()
"""


def seen(folder: Path, bodies: dict[str, str]) -> dict[str, list[ThrownAway]]:
    """What is found of functions with these bodies, all of one program, by name: each has a pair of its own."""
    functions, pairs = [], []
    for number, body in enumerate(bodies.values()):
        lines = "\n    ".join(body.strip().splitlines())
        functions.append(f"def run_{number}(p, real, step):\n    {lines}\n")
        pairs.append(f"(run_{number}, Pair())")
    text = PROGRAM.replace("{functions}", "\n".join(functions)).replace("{pairs}", ", ".join(pairs))
    forked(text, folder)
    assert (folder / "program.py.ended").exists()
    found: dict[str, list[ThrownAway]] = {}
    names = list(bodies)
    for one in read(folder / RECORDING).ranks[0].latest(ThrownAway, "id"):
        number = re.search(r"run_(\d+)", one.place.function)
        found.setdefault(names[int(number[1])] if number else one.place.function, []).append(one)
    return found


CRITIC = """
fake = p.generator(torch.randn(N, N))
loss = p.critic(real).mean() - p.critic(fake).mean()
p.opt_d.zero_grad()
loss.backward()
p.opt_d.step()
p.train_generator()
"""
THROWN = {
    "a critic's pass": CRITIC,
    "made by a method": CRITIC.replace("p.generator(torch.randn(N, N))", "p.fake()"),
    "set to zero": CRITIC.replace("p.train", "p.opt_g.zero_grad(set_to_none=False)\np.train"),
    "cleared at the end": CRITIC + "p.opt_g.zero_grad(); p.opt_d.zero_grad()",
    "one fake for both": """
fake = p.generator(torch.randn(N, N))
loss = p.critic(real).mean() - p.critic(fake).mean()
p.opt_d.zero_grad()
loss.backward(retain_graph=True)
p.opt_d.step()
p.opt_g.zero_grad()
(p.critic.requires_grad_(False)(fake) * -1).mean().backward(inputs=list(p.generator.parameters()))
p.critic.requires_grad_(True)
p.opt_g.step()
""",
    "a head on an encoder": """
loss = p.critic(p.generator(real)).square().mean()
p.opt_g.zero_grad(); p.opt_d.zero_grad()
loss.backward()
p.opt_d.step()
p.opt_g.zero_grad()
(p.generator(real) - real).square().mean().backward()
p.opt_g.step()
""",
    "beside a checkpoint": """
fake = p.generator(real)
p.opt_d.zero_grad()
(checkpoint(p.critic, fake, use_reentrant=True).mean() + p.critic(fake).mean()).backward()
p.opt_d.step()
p.opt_g.zero_grad()
""",
    # Each update ends a step. This comes last: the window ends within the loop's iteration.
    "several updates of the critic": "for _ in range(3):\n    "
    + "\n    ".join(CRITIC.strip().splitlines()[:-1])
    + "\np.train_generator()",
}
USED = {
    "detached": CRITIC.replace("fake)", "fake.detach())"),
    "without gradients": "with torch.no_grad(): fake = p.fake()\n" + CRITIC.replace("fake = ", "_ = "),
    "both step on one pass": """
loss = p.critic(p.generator(real)).square().mean()
p.opt_g.zero_grad(); p.opt_d.zero_grad()
loss.backward()
p.opt_g.step(); p.opt_d.step()
""",
    "accumulated over passes": """
p.opt_g.zero_grad(); p.opt_d.zero_grad()
for _ in range(3):
    p.critic(p.generator(torch.randn(N, N))).square().mean().backward()
p.opt_g.step(); p.opt_d.step()
""",
    "two losses, one step": """
fake = p.fake()
p.opt_g.zero_grad()
p.critic(fake).mean().backward(retain_graph=True)
p.opt_d.step(); p.opt_d.zero_grad()
(fake - real).square().mean().backward()
p.opt_g.step()
""",
    "used in the step after": """
p.critic(p.fake()).mean().backward()
p.opt_d.step(); p.opt_d.zero_grad()
if step % 2:
    p.opt_g.step(); p.opt_g.zero_grad()
""",
    "thrown away now and then": """
p.critic(p.fake()).mean().backward()
p.opt_d.step(); p.opt_d.zero_grad()
if step % 2:
    p.opt_g.step()
p.opt_g.zero_grad()
""",
    "frozen": "p.generator.requires_grad_(False)\n" + CRITIC.replace("p.train_generator()", ""),
    "a penalty": """
fake = p.fake().detach().requires_grad_()
(slope,) = torch.autograd.grad(p.critic(fake).sum(), fake, create_graph=True)
p.opt_d.zero_grad()
(p.critic(fake).mean() + slope.norm(dim=1).sub(1).square().mean()).backward()
p.opt_d.step()
p.train_generator()
""",
    "by autograd.grad": """
loss = p.critic(p.fake()).mean()
found = torch.autograd.grad(loss, list(p.critic.parameters()))
with torch.no_grad():
    for one, slope in zip(p.critic.parameters(), found): one -= 0.001 * slope
p.train_generator(); p.opt_d.zero_grad()
""",
    "gradients that are read": """
p.opt_d.zero_grad(); p.opt_g.zero_grad()
p.critic(p.fake()).mean().backward()
kept = [one.grad.clone() for one in p.generator.parameters()]
p.opt_g.zero_grad()
p.opt_d.step()
p.critic(p.fake()).mean().backward()
for one, before in zip(p.generator.parameters(), kept): one.grad = before + one.grad
p.opt_g.step()
""",
    "steps by hand": """
p.critic(p.fake()).mean().backward()
p.opt_d.step(); p.opt_d.zero_grad()
with torch.no_grad():
    for one in p.generator.parameters(): one -= 0.001 * one.grad
p.opt_g.zero_grad()
""",
    "LBFGS": """
if step == 0:
    p.opt_g = torch.optim.LBFGS(p.generator.parameters(), lr=0.01, max_iter=3)
def closure():
    p.opt_g.zero_grad(); p.opt_d.zero_grad()
    loss = p.critic(p.generator(real)).square().mean()
    loss.backward()
    return loss
p.opt_g.step(closure)
p.opt_d.step()
p.opt_d.zero_grad(); p.opt_g.zero_grad()
""",
    "steps within the pass": """
if step == 0:
    p.generator[0].weight.register_post_accumulate_grad_hook(lambda _: p.opt_g.step())
p.critic(p.fake()).mean().backward()
p.opt_d.step(); p.opt_d.zero_grad(); p.opt_g.zero_grad()
""",
    "used after many passes": """
p.critic(p.fake()).mean().backward()
p.opt_d.step(); p.opt_d.zero_grad()
if step % 8 == 7:
    p.opt_g.step(); p.opt_g.zero_grad()
""",
    "used by another optimizer after many passes": """
if step == 0:
    p.both = torch.optim.SGD(p.generator.parameters(), lr=0.001)
    p.opt_g = torch.optim.SGD(p.generator.parameters(), lr=0.001)
p.critic(p.fake()).mean().backward()
p.opt_d.step(); p.opt_d.zero_grad()
if step % 8 == 7:
    p.both.step(); p.both.zero_grad()
""",
    "a pass of one optimizer's own": """
p.fake().square().mean().backward()
p.opt_g.zero_grad()
""",
    "one optimizer only": """
p.critic(p.fake()).mean().backward()
p.opt_g.step(); p.opt_g.zero_grad(); p.opt_d.zero_grad()
""",
}


def test_what_is_thrown_away(tmp_path: Path) -> None:
    found = seen(tmp_path, THROWN)
    text = (tmp_path / "program.py").read_text("utf-8").splitlines()
    assert found.keys() == THROWN.keys()
    for name, (one,) in found.items():
        assert one.steps >= 3 and one.judged == one.thrown, name
        assert one.made is not None and one.made.function == one.place.function, name
        assert re.search(r"p\.(generator|fake)\(", text[one.made.line - 1]), name
        assert 0 < one.share < 1


def test_what_is_used(tmp_path: Path) -> None:
    found = seen(tmp_path, USED)
    # It was thrown away in some steps, as it says, and was kept in others: the rule is silent.
    (now_and_then,) = found.pop("thrown away now and then")
    assert 0 < now_and_then.thrown < now_and_then.judged
    assert found == {}
