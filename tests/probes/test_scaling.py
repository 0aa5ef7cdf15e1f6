"""Gradient scalers watched in real programs: faults at their lines, healthy look-alikes silent, results untouched."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import forked

import torchvet
from torchvet.finding import Finding

HEAD = """\
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
torch.manual_seed(0)
def make():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
def loss_of(model):
    x = torch.randn(16, 16)
    with torch.autocast("cpu", torch.float16):
        return nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
def clip():
    clip_grad_norm_(model.parameters(), 1.0)
model = make()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
class Wrapper:
    def __init__(self, inner):
        self.inner, self.param_groups = inner, inner.param_groups
    def step(self, *args, **kwargs):
        return self.inner.step(*args, **kwargs)
GAN = {"D": make(), "G": nn.Linear(16, 16)}
def fakes(detached):
    with torch.autocast("cpu", torch.float16):
        made = GAN["G"](torch.randn(16, 16))
        return GAN["D"](made.detach() if detached else made).float().mean()
"""


def run(program: str, folder: Path) -> list[Finding]:
    """What a run says of a program about loss scaling."""
    file = folder / "program.py"
    file.write_text(HEAD + textwrap.dedent(program))
    watched = torchvet.watch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with watched:
                exec(compile(file.read_text(), str(file), "exec"), {"__name__": "program"})
        except (RuntimeError, AssertionError, ValueError):
            pass
    assert watched.report is not None
    assert not [gap for gap in watched.report.not_checked if "scaler" in gap.check], watched.report.not_checked
    return [f for f in watched.report.findings if f.code.startswith("AMP1") and f.evidence == "observed"]


FAULTY = {
    "by value": ("AMP101", "clip_grad_value_", """
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            clip_grad_value_(model.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
        """),
    "accumulated": ("AMP101", "clip_grad_norm_(", """
        for i in range(24):
            scaler.scale(loss_of(model)).backward()
            if i % 2:
                clip_grad_norm_(list(model.parameters()), 1.0, foreach=False)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad(set_to_none=False)
        """),
    "unscaled at each micro-step": ("AMP102", "scaler.unscale_(opt)", """
        for i in range(24):
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(opt)
            if i % 2:
                scaler.step(opt)
                scaler.update()
        """),
    "unscaled for each part": ("AMP102", "# again", """
        try:
            for i in range(12):
                opt.zero_grad()
                scaler.scale(loss_of(model)).backward()
                for part in (model[0], model[3]):
                    scaler.unscale_(opt)  # again
                    clip_grad_norm_(part.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
        except RuntimeError as error:
            print(f"stopped: {error}")
        """),
    "never updated": ("AMP105", "scaler.step(opt)", """
        try:
            for i in range(12):
                opt.zero_grad()
                scaler.scale(loss_of(model)).backward()
                scaler.step(opt)
        except RuntimeError as error:
            print(f"stopped: {error}")
        """),
    "half weights": ("AMP113", "scaler.step(opt)", """
        model.half()
        try:
            for i in range(12):
                opt.zero_grad()
                scaler.scale(model(torch.randn(16, 16).half()).float().pow(2).mean()).backward()
                for q in model.parameters():
                    q.grad.clamp_(-1, 1)
                scaler.step(opt)
        except ValueError as error:
            print(f"stopped: {error}")
        """),
    "fused": ("AMP103", "# late", """
        opt = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(opt)
            scaler.scale(loss_of(model)).backward()  # late
            scaler.step(opt)
            scaler.update()
        """),
    "updated at each micro-step": ("AMP104", "scaler.update()", """
        for i in range(24):
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(opt)
            if i % 2:
                scaler.step(opt)
                opt.zero_grad()
            scaler.update()
        """),
    "updated before the step": ("AMP105", "# early", """
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(opt)
            scaler.update()  # early
            scaler.step(opt)
            scaler.update()
        """),
    "unscaled after the update": ("AMP105", "scaler.unscale_(opt)", """
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(opt)
            scaler.update()
            scaler.unscale_(opt)
        """),
    "one of two": ("AMP106", "other.step()", """
        net = make()
        other = torch.optim.Adam(net.parameters(), 1e-3)
        for i in range(12):
            opt.zero_grad()
            other.zero_grad()
            scaler.scale(loss_of(net)).backward()
            other.step()
            scaler.scale(loss_of(model)).backward()
            scaler.step(opt)
            scaler.update()
        """),
    "a term": ("AMP107", ".backward()", """
        for i in range(12):
            opt.zero_grad()
            (scaler.scale(loss_of(model)) + 0.01 * model[0].weight.pow(2).sum()).backward()
            scaler.step(opt)
            scaler.update()
        """),
    "another scaler": ("AMP107", ".backward()", """
        second = torch.amp.GradScaler("cpu", init_scale=16.0)
        second.scale(torch.zeros(()))
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            second.step(opt)
            second.update()
        """),
    "scaled, divided, scaled": ("AMP108", "scaler.scale(loss)", """
        for i in range(24):
            opt.zero_grad()
            loss = scaler.scale(loss_of(model)) / 4
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        """),
    "two optimizers": ("AMP109", "# between", """
        first = torch.optim.SGD(list(model.parameters())[:2], lr=0.01)
        second = torch.optim.SGD(list(model.parameters())[2:], lr=0.01)
        for i in range(12):
            model.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(first)
            scaler.unscale_(second)
            clip()
            scaler.step(first)
            scaler.update()  # between
            scaler.step(second)
            scaler.update()
        """),
    "at every step": ("AMP110", "own = ", """
        for i in range(12):
            own = torch.amp.GradScaler("cpu")
            opt.zero_grad()
            own.scale(loss_of(model)).backward()
            own.step(opt)
            own.update()
        """),
    "a wrapper": ("AMP112", "scaler.unscale_(wrapper)", """
        wrapper = Wrapper(opt)
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(wrapper)
            scaler.step(opt)
            scaler.update()
        """),
    "one cycle": ("AMP116", "schedule.step()", """
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=100)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
        for i in range(30):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(opt)
            scaler.update()
            schedule.step()
        """),
    "a norm": ("AMP117", "q.grad.norm()", """
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            total = sum(q.grad.norm() ** 2 for q in model.parameters()) ** 0.5
            scaler.step(opt)
            scaler.update()
        """),
    "a detached loss": ("AMP117", "scaled.detach()", """
        for i in range(12):
            opt.zero_grad()
            scaled = scaler.scale(loss_of(model))
            scaled.backward()
            value = scaled.detach().item()
            scaler.step(opt)
            scaler.update()
        """),
    "skips under a fused optimizer": ("AMP118", "scaler.step(opt)", """
        opt = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        for i in range(40):
            opt.zero_grad()
            scaler.scale(loss_of(model) * (float("nan") if i > 9 else 1.0)).backward()
            scaler.step(opt)
            scaler.update()
        """),
    "off": ("AMP119", "scaler = torch.amp.GradScaler(enabled=True)", """
        scaler = torch.amp.GradScaler(enabled=True)
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(opt)
            scaler.update()
        """),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    code, text, program = FAULTY[name]
    if name == "off" and torch.cuda.is_available():
        pytest.skip("such a scaler is on where CUDA is")
    found = [f for f in run(program, tmp_path) if f.code == code]
    assert found and found[0].severity != "info", found
    lines = (tmp_path / "program.py").read_text().splitlines()
    assert found[0].location is not None and text in lines[found[0].location.line - 1]


HEALTHY = {
    "accumulation with clipping": """
        for i in range(40):
            scaler.scale(loss_of(model) / 4).backward()
            if i % 4 == 3:
                scaler.unscale_(opt)
                clip()
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
        """,
    "two optimizers, one update": """
        first = torch.optim.SGD(list(model.parameters())[:2], lr=0.01)
        second = torch.optim.SGD(list(model.parameters())[2:], lr=0.01)
        for i in range(12):
            model.zero_grad(set_to_none=False)
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(first)
            scaler.unscale_(second)
            clip()
            scaler.step(first)
            scaler.step(second)
            scaler.update()
        """,
    **{f"a GAN, {given}": f"""
        critic = torch.optim.Adam(GAN["D"].parameters(), 1e-3, fused={fused})
        maker = torch.optim.Adam(GAN["G"].parameters(), 1e-3, fused={fused})
        scaler = torch.amp.GradScaler("cpu", growth_interval=5)
        for i in range(30):
            critic.zero_grad(set_to_none={to_none})
            scaler.scale(fakes(True)).backward()
            scaler.step(critic)
            {update}
            maker.zero_grad(set_to_none={to_none})
            scaler.scale(-fakes(False)).backward()
            scaler.step(maker)
            scaler.update()
        """ for given, fused, to_none, update in (
            ("two updates", False, True, "scaler.update()"), ("one update", False, True, "pass"),
            ("zeroed in place", False, False, "scaler.update()"), ("fused", True, True, "scaler.update()"),
        )},
    "two scalers made at one line": """
        second, nets = make(), []
        scalers = [torch.amp.GradScaler("cpu") for _ in range(2)]
        pairs = [(model, opt), (second, torch.optim.Adam(second.parameters(), 1e-3))]
        for i in range(12):
            for (net, optimizer), own in zip(pairs, scalers):
                optimizer.zero_grad()
                own.scale(loss_of(net)).backward()
                own.unscale_(optimizer)
                clip_grad_norm_(net.parameters(), 1.0)
                own.step(optimizer)
                own.update()
        """,
    "off under bf16": """
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        for i in range(12):
            opt.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(8, 16)).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip()
            scaler.step(opt)
            scaler.update()
        """,
    "a schedule that asks": """
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=100)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
        for i in range(30):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            if scaler.get_scale() >= before:
                schedule.step()
        """,
    "checkpointing of both kinds": """
        from torch.utils.checkpoint import checkpoint
        for i in range(12):
            opt.zero_grad()
            x = torch.randn(8, 16, requires_grad=True)
            with torch.autocast("cpu", torch.float16):
                loss = model[3](checkpoint(model[:2], x, use_reentrant=bool(i % 2))).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip()
            scaler.step(opt)
            scaler.update()
        """,
    "a closure that is refused": """
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            try:
                scaler.step(opt, closure=lambda: 0.0)
            except RuntimeError:
                scaler.step(opt)
            scaler.update()
        """,
    "half weights that are given up": """
        model.half()
        for i in range(24):
            opt.zero_grad()
            try:
                scaler.scale(loss_of(model)).backward()
                scaler.step(opt)
                scaler.update()
            except ValueError:
                model.float()
        """,
    "half weights that go on without a scaler": """
        model.half()
        for i in range(24):
            opt.zero_grad()
            try:
                scaler.scale(loss_of(model)).backward()
                scaler.step(opt)
            except ValueError:
                break
        model.float()
        for i in range(24):
            opt.zero_grad()
            loss_of(model).backward()
            opt.step()
        """,
    "a threshold times the scale": """
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
            scaler.step(opt)
            scaler.update()
        """,
    "scaled by hand": """
        scaler.scale(torch.zeros(()))
        for i in range(12):
            opt.zero_grad()
            (loss_of(model) * scaler.get_scale()).backward()
            scaler.step(opt)
            scaler.update()
        """,
    "several losses": """
        for i in range(12):
            opt.zero_grad()
            torch.autograd.backward(scaler.scale([loss_of(model), loss_of(model)]))
            (scaler.scale(loss_of(model)) + scaler.scale(loss_of(model)) / 2).backward()
            scaler.step(opt)
            scaler.update()
        """,
    "a gradient penalty": """
        for i in range(12):
            opt.zero_grad()
            loss = model(torch.randn(8, 16)).pow(2).mean()
            gradients = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
            norm = sum((g / scaler.get_scale()).pow(2).sum() for g in gradients).sqrt()
            scaler.scale(loss + 0.01 * norm).backward()
            scaler.step(opt)
            scaler.update()
        """,
    **{f"divided afterwards, {what}": f"""
        for i in range(12):
            opt.zero_grad()
            scaled = scaler.scale(loss_of(model))
            scaled.backward()
            value = {read} / scaler.get_scale()
            scaler.step(opt)
            scaler.update()
        """ for what, read in (
            ("a loss", "scaled.item()"),
            ("a norm", "torch.stack([p.grad.norm() for p in model.parameters()]).norm()"),
        )},
    "resumed each epoch": """
        for epoch in range(4):
            if epoch:
                state = scaler.state_dict()
                scaler = torch.amp.GradScaler("cpu")
                scaler.load_state_dict(state)
            for i in range(6):
                opt.zero_grad()
                scaler.scale(loss_of(model)).backward()
                scaler.step(opt)
                scaler.update()
        """,
    "folds": """
        for fold in range(4):
            model = make()
            opt, scaler = torch.optim.Adam(model.parameters(), 1e-3), torch.amp.GradScaler("cpu")
            for i in range(6):
                opt.zero_grad()
                scaler.scale(loss_of(model) * 1000).backward()
                scaler.step(opt)
                scaler.update()
        """,
    "another model without a scaler": """
        other = make()
        plain = torch.optim.Adam(other.parameters(), 1e-3)
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.step(opt)
            scaler.update()
            plain.zero_grad()
            loss_of(other).backward()
            clip_grad_norm_(other.parameters(), 1.0)
            plain.step()
        """,
    "one bad batch": """
        for i in range(30):
            opt.zero_grad()
            scaler.scale(loss_of(model) * (float("inf") if i == 15 else 1.0)).backward()
            scaler.unscale_(opt)
            clip()
            scaler.step(opt)
            scaler.update()
        """,
    "a wrapper for both": """
        wrapper = Wrapper(opt)
        for i in range(12):
            opt.zero_grad()
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(wrapper)
            clip()
            scaler.step(wrapper)
            scaler.update()
        """,
    "gradients changed by hand": """
        for i in range(12):
            for q in model.parameters():
                q.grad = None
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(opt)
            for q in model.parameters():
                q.grad.clamp_(-1, 1)
            total = sum(q.grad.norm() for q in model.parameters())
            scaler.step(opt)
            scaler.update()
        """,
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_is_silent(name: str, tmp_path: Path) -> None:
    assert [(f.code, f.message) for f in run(HEALTHY[name], tmp_path) if f.severity != "info"] == []


def train(seed: int, fused: bool) -> list[torch.Tensor]:
    """Fifty steps with dropout, batch normalisation, clipping, skips and a schedule; the weights and buffers."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(0.2),
        torch.nn.Linear(32, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=7)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    for _ in range(50):
        x = torch.randn(16, 16)
        with torch.autocast("cpu", torch.float16):
            loss = torch.nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    return [t.clone() for t in model.state_dict().values()] + [torch.tensor(scaler.get_scale())]


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_results_are_the_same_bit_for_bit(seed: int, fused: bool) -> None:
    bare = train(seed, fused)
    with torchvet.watch():
        watched = train(seed, fused)
    assert len(bare) == len(watched) and all(torch.equal(a, b) for a, b in zip(bare, watched, strict=True))


def test_warnings_of_torch_point_at_the_programs_line() -> None:
    with warnings.catch_warnings(record=True) as caught, torchvet.watch():
        warnings.simplefilter("always")
        torch.amp.GradScaler("cpu", enabled=False)
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        scaler.scale(parameter * 1e30).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        torch.nn.utils.clip_grad_norm_((p for p in ()), 1.0)
    told: list[Any] = [w for w in caught if "lr_scheduler" in str(w.message) or "generator" in str(w.message)]
    assert len(told) == 2 and all(w.filename == __file__ for w in told), told


def test_an_exception_of_the_scaler_reaches_the_program() -> None:
    with torchvet.watch() as watched:
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        with pytest.raises(AssertionError, match="No inf checks"):
            scaler.update()
    assert watched.report is not None
    assert [f.severity for f in watched.report.findings if f.code == "AMP105"] == ["info"]


ENDS = """
import torch
from torch import nn
torch.manual_seed(0)
one, other = nn.Linear(4, 1), nn.Linear(4, 1)
first, second = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (one, other))
scaler = torch.amp.GradScaler("cpu")
ways = {{"tensor": torch.tensor}}
for step in range(12):
    first.zero_grad(), second.zero_grad()
    loss = one(torch.randn(8, 4)).square().mean()
    {loss}
    scaler.scale(loss).backward()
    {between}
    scaler.step(first)
    scaler.step(second)
    scaler.update()
"""
BOTH = "loss = loss + other(torch.randn(8, 4)).square().mean()"
ENDED = [
    ("loss = torch.tensor([loss, loss], requires_grad=True).mean()", "", "TRN106", "loss = torch.tensor"),
    ("loss = ways['tensor'](loss.item(), requires_grad=True)", "", "TRN106", "scaler.scale(loss).backward()"),
    ("", "", "TRN104", "scaler.step(second)"),
    (f"{BOTH} if step < 5 else loss", "", "TRN104", "scaler.step(second)"),
    (BOTH, "getattr(first, 'zero_grad')()", "TRN102", "getattr(first, 'zero_grad')()"),
]


@pytest.mark.parametrize(("loss", "between", "code", "line"), ENDED)
def test_a_step_that_a_scaler_refuses_is_explained(
    loss: str, between: str, code: str, line: str, tmp_path: Path
) -> None:
    program = ENDS.format(loss=loss, between=between)
    found = forked(program, tmp_path)
    told = [f for f in found or () if f["severity"] == "error"]
    assert [(f["code"], "the program ended" in f["message"]) for f in told] == [(code, True)]
    assert program.splitlines()[told[0]["location"]["line"] - 1].strip().startswith(line)


def test_a_refusal_that_the_program_lives_with_is_no_fault(tmp_path: Path) -> None:
    program = ENDS.format(loss=BOTH, between="").replace("scaler.step(second)", "second.step()")
    program += (
        "try:\n    scaler.step(torch.optim.SGD([nn.Parameter(torch.ones(1))]))\nexcept AssertionError:\n    pass\n"
    )
    found = forked(program, tmp_path)
    assert not [f for f in found or () if f["code"].startswith("TRN1")]
