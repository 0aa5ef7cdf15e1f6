"""Rules about gradient scalers: what they tell apart beyond their own examples."""

from __future__ import annotations

import pytest

from torchvet.rules import all_rules
from torchvet.source.model import SourceFile

RULES = [r for r in all_rules() if r.code.startswith("AMP1")]
HEAD = """\
import torch
from torch import nn, optim
from torch.cuda.amp import GradScaler, autocast
"""

HEALTHY = {
    "the same question asked again": """
def train(model, loader, optimizer, crit, scaler=None):
    for x, y in loader:
        loss = crit(model(x), y)
        if scaler is not None:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not scaler:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
""",
    "two flags that mean one thing": """
class Trainer:
    def step(self, loss):
        if self.use_amp:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        if self.args.fp16:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
""",
    "a schedule for averaged weights": """
def train(model, loader, optimizer, crit, scaler):
    averaged, swa = optim.swa_utils.AveragedModel(model), optim.swa_utils.SWALR(optimizer, swa_lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(crit(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
        averaged.update_parameters(model)
        swa.step()
""",
    "an early return": """
def step(loss, optimizer, scaler):
    if scaler:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return
    loss.backward()
    optimizer.step()
""",
    "a helper that chooses": """
def backward(total, scaler):
    if scaler is not None:
        scaler.scale(total).backward()
    else:
        total.backward()

def train(model, loader, optimizer, scaler):
    for x in loader:
        backward(model(x).sum(), scaler)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "a pass for each optimizer": """
scaler = GradScaler()

def train(loader, opt_d, opt_g, D, G):
    for x in loader:
        loss_d = D(G(x).detach()).mean()
        scaler.scale(loss_d).backward()
        scaler.step(opt_d)
        scaler.update()
        loss_g = D(G(x)).mean()
        scaler.scale(loss_g).backward()
        scaler.step(opt_g)
        scaler.update()
""",
    "a critic in single precision": """
scaler = GradScaler()

def train(loader, opt_d, opt_g, D, G):
    for x in loader:
        loss_d = D(x).mean()
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = G(x).mean()
        scaler.scale(loss_g).backward()
        scaler.step(opt_g)
        scaler.update()
""",
    "a step left out by hand": """
scaler = GradScaler()

def train(model, loader, optimizer):
    for x in loader:
        scaler.scale(model(x).sum()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "two conditions, one accumulation": """
scaler = GradScaler()

def train(model, loader, optimizer, accum, clip):
    for i, x in enumerate(loader):
        ready = (i + 1) % accum == 0
        scaler.scale(model(x).sum() / accum).backward()
        if ready and clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        if ready:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
""",
    "a plain backward after unscale_": """
scaler = GradScaler()

def train(model, loader, optimizer):
    for x in loader:
        scaler.scale(model(x).sum()).backward()
        scaler.unscale_(optimizer)
        (model.weight.norm() * 1e-3).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "scaled under another name": """
scaler = GradScaler()

def train(model, loader, optimizer):
    for x in loader:
        a, b = model(x).sum(), model(x).mean()
        scaled = scaler.scale(a + b)
        total = scaled * 0.5
        total.backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "a scaler for each fold": """
def train(model, optimizer, loader):
    scaler = GradScaler()
    for epoch in range(3):
        for x in loader:
            scaler.scale(model(x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

for seed in range(5):
    net = nn.Linear(4, 4)
    optimizer = optim.Adam(net.parameters())
    train(net, optimizer, [])
""",
    "halved after training": """
scaler = GradScaler()
model = nn.Linear(4, 4)
teacher = nn.Linear(4, 4).half()
opt = optim.Adam(model.parameters())
for x in []:
    scaler.scale(model(x).sum()).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
model.eval().half()
""",
    "a frozen teacher under fp16": """
def distil(loader, student, teacher, optimizer):
    for x in loader:
        with torch.no_grad(), autocast():
            target = teacher(x)
        loss = (student(x) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "scaled by a method": """
class Trainer:
    def __init__(self, model):
        self.model, self.optimizer, self.scaler = model, optim.Adam(model.parameters()), GradScaler()

    def prepared(self, loss):
        scaled = self.scaler.scale(loss)
        return scaled

    def step(self, x):
        self.optimizer.zero_grad()
        self.prepared(self.model(x).sum()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def other_step(self, x):
        self.optimizer.zero_grad()
        total = self.prepared(self.model(x).sum())
        total.backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
    "a scaler that is off": """
def train(model, loader, optimizer, scaler):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

model = nn.Linear(4, 4)
train(model, [], optim.Adam(model.parameters()), GradScaler(enabled=False))
""",
    "a scaler that is off, called all the same": """
class Trainer:
    def __init__(self, model):
        self.model, self.optimizer = model, optim.Adam(model.parameters())
        self.scaler = GradScaler(enabled=False)

    def step(self, x):
        self.optimizer.zero_grad()
        self.scaler.scale(self.model(x).sum()).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
    "a threshold brought to the scale": """
def train(model, loader, optimizer, scaler):
    for x in loader:
        scaler.scale(model(x).sum()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    "a threshold brought to the scale elsewhere": """
class Trainer:
    def threshold(self):
        return self.limit * self.scaler.get_scale()

    def clip(self, limit):
        nn.utils.clip_grad_norm_(self.model.parameters(), limit)

    def step(self, x):
        self.scaler.scale(self.model(x).sum()).backward()
        self.clip(self.threshold())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
""",
}

FAULTY = {
    "AMP101": """
def train(model, loader, optimizer, scaler):
    for x in loader:
        scaler.scale(model(x).sum()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < before:
            print("the scale is now", scaler.get_scale())
        optimizer.zero_grad()
""",
    "AMP102": """
def train(cfg, model, loader, optimizer, scaler):
    for i, x in enumerate(loader):
        loss = model(x).sum()
        if cfg.accumulation_steps > 1:
            scaler.scale(loss / cfg.accumulation_steps).backward()
            if cfg.clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            if (i + 1) % cfg.accumulation_steps == 0:
                scaler.step(optimizer)
                scaler.update()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
""",
    "AMP105": """
class Trainer:
    def optimize(self, loss):
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
    "AMP106": """
def step(loss, optimizer, scaler):
    if scaler is not None:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
    optimizer.step()
""",
    "AMP107": """
def step(loss, optimizer, scaler):
    torch.autograd.backward(loss)
    scaler.step(optimizer)
    scaler.update()
""",
    "AMP109": """
def step(loss, optimizers, scaler):
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
        scaler.update()
""",
    "AMP117": """
def step(model, loss, optimizer, scaler):
    scaler.scale(loss).backward()
    norm = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    scaler.step(optimizer)
    scaler.update()
    return norm
""",
}


def alarms(text: str) -> set[str]:
    file = SourceFile("train.py", HEAD + text)
    return {f.code for r in RULES for f in r.in_source(file) if f.severity != "info"}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_programs_give_no_alarm(text: str) -> None:
    assert alarms(text) == set()


@pytest.mark.parametrize("code", FAULTY)
def test_faults_in_other_shapes_are_found(code: str) -> None:
    assert alarms(FAULTY[code]) == {code}


def test_a_fix_is_written_in_the_names_of_its_own_function() -> None:
    text = """
def update(sc, opt, value):
    sc.scale(value).backward()
    opt.step()

def train(model, loader, optimizer, scaler):
    for x in loader:
        update(scaler, optimizer, model(x).sum())
        optimizer.zero_grad()
"""
    file = SourceFile("train.py", HEAD + text)
    edits = [e for r in RULES for f in r.in_source(file) if f.code == "AMP106" for e in f.remedy.edits]
    assert all("scaler" not in e.text and "optimizer" not in e.text for e in edits)


CLIPS = """
def train(model, loader, optimizer, crit, scaler):
    for x, y in loader:
        optimizer.zero_grad()
        scaler.scale(crit(model(x), y)).backward()
CLIP
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize(
    ("clip", "is_edited"),
    [
        ("        nn.utils.clip_grad_norm_(model.parameters(), 1.0)", True),
        ("        if limit:\n            nn.utils.clip_grad_norm_(model.parameters(), limit)", True),
        # In a loop of its own the line would unscale again and again, which raises.
        ("        for group in groups:\n            nn.utils.clip_grad_norm_(group, 1.0)", False),
    ],
)
def test_clipping_is_preceded_by_unscale_where_that_runs_once_a_step(clip: str, is_edited: bool) -> None:
    text = HEAD + CLIPS.replace("CLIP", clip)
    (finding,) = next(r for r in RULES if r.code == "AMP101").in_source(SourceFile("t.py", text))
    assert bool(finding.remedy.edits) is is_edited
    if is_edited:
        last = clip.splitlines()[-1]
        margin = last[: len(last) - len(last.lstrip())]
        assert [edit.text for edit in finding.remedy.edits] == [f"{margin}scaler.unscale_(optimizer)\n"]


def test_an_update_in_a_loop_over_the_optimizers_is_moved_behind_it() -> None:
    text = HEAD + (
        "scaler = torch.amp.GradScaler()\n"
        "def step(loss, *optimizers):\n"
        "    scaler.scale(loss).backward()\n"
        "    for one in optimizers:\n"
        "        scaler.step(one)\n"
        "        scaler.update()\n"
    )
    (finding,) = next(r for r in RULES if r.code == "AMP109").in_source(SourceFile("t.py", text))
    assert [edit.text for edit in finding.remedy.edits] == ["    "] and not finding.remedy.safe
