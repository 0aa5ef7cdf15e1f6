"""Tensors on different devices are told by name, with what to move; asserts as a GPU's, with the value they hide."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

import torchvet
from torchvet.finding import Finding

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, hide):
        super().__init__()
        if not hide:
            self.register_buffer("scale", torch.rand(1, 4))
        if hide:
            self.scale = torch.rand(1, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, x):
        return self.mix(x) * self.scale[:, : x.size(1)]


class Net(nn.Module):
    def __init__(self, hide=False, plain=False):
        super().__init__()
        self.encoder = Encoder(hide)
        layers = [nn.Linear(4, 4) for _ in range(2)]
        self.layers = layers if plain else nn.ModuleList(layers)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.encoder(x)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


gpu, host = torch.randn(5, 4, device="cuda"), torch.randn(5, 4)
labels, index = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 2], device="cuda")
batch = {"x": host}
"""

STATE = """\
import io
file, model = io.BytesIO(), nn.Linear(4, 3).cuda()
optimizer = torch.optim.Adam(model.parameters(), foreach=False)


def train():
    model(gpu).sum().backward()
    optimizer.step()


def load(where):
    file.seek(0)
    return torch.load(file, map_location=where)


train()
torch.save(optimizer.state_dict(), file)
"""
FAULTS = {
    "Net().cuda()(batch['x'])": ("DEV101", "batch['x'] is on cpu where ", "linear in Net.encoder.mix"),
    "model = Net()\nmodel(gpu)": ("DEV101", "model.encoder.mix.weight is on cpu where gpu is on cuda:0", ""),
    "model = Net().cuda()\nmodel.head = nn.Linear(4, 3)\nmodel(gpu)": (
        "DEV101",
        "model.head.weight is on cpu",
        "2 of the 9 parameters and buffers of model are on cpu, 7 are not",
    ),
    "loss = F.cross_entropy(Net().cuda()(gpu), labels)": ("DEV101", "labels is on cpu where ", "cross_entropy takes"),
    "criterion = nn.CrossEntropyLoss(weight=torch.ones(3))\nloss = criterion(Net().cuda()(gpu), labels.cuda())": (
        "DEV101",
        "criterion.weight is on cpu",
        'criterion.to("cuda:0")',
    ),
    "total = gpu * torch.ones(5, 1)": ("DEV101", "torch.ones(5, 1) is on cpu where gpu is on cuda:0", "mul"),
    "both = torch.cat([gpu, host])": ("DEV101", "host is on cpu where gpu is on cuda:0: cat", ""),
    "host[index]": ("DEV101", "host is on cpu where index is on cuda:0", ""),
    "nn.LSTM(4, 2).cuda()(gpu, (torch.zeros(1, 2), torch.zeros(1, 2)))": ("DEV101", "hx[0] is on cpu", ""),
    "model = Net(hide=True).cuda()\nmodel(gpu)": ("DEV102", "model.encoder.scale is a plain tensor", "was moved"),
    "model = Net(plain=True).cuda()\nmodel(gpu)": ("DEV109", "the modules in model.layers are not registered", ""),
    "model = nn.Linear(4, 3)\noptimizer = torch.optim.Adagrad(model.parameters())\nmodel.cuda()\n"
    "model(gpu).sum().backward()\noptimizer.step()": ("DEV103", "Adagrad's sum of weight is on cpu", "moved since"),
    STATE + "for p, kept in zip(model.parameters(), load('cpu')['state'].values()):\n"
    "    optimizer.state[p] = kept\ntrain()": (
        "DEV103",
        "Adam's exp_avg of weight is on cpu",
        "loaded this state from",
    ),
    STATE + "model.cpu()\noptimizer.load_state_dict(load('cpu'))\nmodel.cuda()\ntrain()": (
        "DEV103",
        "Adam's exp_avg of weight is on cpu",
        "loaded this state from a file to cpu, and nothing has moved it since",
    ),
    STATE + "for p in model.parameters():\n    optimizer.state[p] |= {'exp_avg': torch.zeros(p.shape)}\ntrain()": (
        "DEV103",
        "Adam's exp_avg of weight is on cpu",
        "what put it there was not seen",
    ),
    "F.cross_entropy(gpu, labels.cuda() + 9)": ("DEV104", "labels.cuda() + 9 holds 9 at row 0", "takes 0 to 3"),
    "F.one_hot(index, 2)": ("DEV104", "index holds 2 at row 1", "the simulated GPU raises it at the line itself"),
    "nn.Embedding(2, 3).cuda()(index)": ("DEV104", "index holds 2 at row 1", "device-side assert"),
    "gpu[:, index + 3]": ("DEV104", "index + 3 holds 5", "device-side assert"),
    "nn.BCELoss()(gpu, gpu.sigmoid())": ("DEV105", "gpu holds ", "a kernel of the GPU asserts here"),
    "torch.multinomial(gpu * 0, 1)": ("DEV105", "gpu * 0 holds a row that sums to zero", ""),
}

HEALTHY = """\
model, frozen = Net().cuda(), Net(hide=True)
frozen.scale = torch.ones(1)
for x in (gpu, batch["x"].cuda()):
    out = model(x) * torch.tensor(0.5) + host[0, 0]
    out = out[torch.tensor([1, 2])]
    F.cross_entropy(out, torch.tensor([0, -100], device="cuda")).backward()
frozen(host)
try:
    frozen(gpu)
except RuntimeError:
    frozen(gpu.cpu())
try:
    nn.Embedding(2, 3).cuda()(index)
except torch.AcceleratorError:
    print("caught")
"""


def watched(text: str, folder: Path) -> list[Finding]:
    """What a run says of devices."""
    path = folder / "program.py"
    path.write_text(HEAD + text + "\n", encoding="utf-8")
    watch = torchvet.watch(record=folder / "run.vet")
    try:
        with watch:
            runpy.run_path(str(path), run_name="__main__")
    except (RuntimeError, IndexError):
        pass
    assert watch.report is not None
    assert [
        g
        for g in watch.report.not_checked
        if g.check == "finish" or (not g.check.startswith("growth") and "device" in g.check)
    ] == []
    return [f for f in watch.report.findings if f.code.startswith("DEV") and f.evidence == "observed"]


def test_what_is_where_is_told_by_name(tmp_path: Path) -> None:
    wrong = []
    for number, (text, (code, beginning, also)) in enumerate(FAULTS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = watched(text, folder)
        said = [f"{f.message} {f.cause} {f.remedy.summary}" for f in found]
        right = [(f.code, f.severity) for f in found] == [(code, "error")]
        if not (right and said[0].startswith(beginning) and also in said[0]):
            wrong.append((text, said))
    assert wrong == []


def test_the_line_is_where_the_module_keeps_it_or_where_a_batch_is_handed_on(tmp_path: Path) -> None:
    lines = (HEAD + "Net(hide=True).cuda()(gpu)").splitlines()
    (hidden,) = watched("Net(hide=True).cuda()(gpu)", tmp_path)
    assert hidden.location is not None and "self.scale = " in lines[hidden.location.line - 1]
    assert [lines[(r.line or 0) - 1].strip()[:9] for r in hidden.related if r.role == "raised"] == ["return se"]
    (plain,) = watched("Net(plain=True).cuda()(gpu)", tmp_path)
    assert plain.location is not None and "self.layers = " in lines[plain.location.line - 1]
    (batch,) = watched("Net().cuda()(batch['x'])", tmp_path)
    assert batch.location is not None and batch.location.line == len(lines)


def test_what_goes_together_and_what_is_caught_is_not_told(tmp_path: Path) -> None:
    assert watched(HEALTHY, tmp_path) == []


def test_state_that_the_optimizer_takes_from_a_file_moves_with_it(tmp_path: Path) -> None:
    assert watched(STATE + "optimizer.load_state_dict(load('cpu'))\ntrain()\ntrain()", tmp_path) == []


def test_the_assert_is_cudas() -> None:
    index = torch.tensor([0, 9], device="cuda")
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered") as raised:
        torch.nn.functional.embedding(index, torch.ones(3, 2, device="cuda"))
    assert vars(raised.value)["hides"] == "index out of range in self"
    assert torch.nn.functional.one_hot(index, 10).sum().item() == 2
    with pytest.raises(IndexError):
        torch.ones(3)[9]
