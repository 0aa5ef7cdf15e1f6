"""What a program ended by is told by name, value, bound, row and line; what it caught and went on from is not told."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import torchvet
from torchvet.finding import Finding
from torchvet.recording import Recording
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Place
from torchvet.recording.records.device import BadValue
from torchvet.rules import rule

HEAD = """\
import sys
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
scores = torch.randn(4, 3)
batch = {"labels": torch.tensor([0, -100, 3, 1]), "actions": torch.tensor([0, 5, 2, 1])}
rows, picked = torch.arange(4), torch.tensor([0, 3, 2, 1])
shares = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
spoilt = torch.tensor([[0.5, 0.5], [float("nan"), 0.5]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, tokens, lengths=None):
        return self.table(tokens[:, :6]).mean(1)


model = Net()
tokens = torch.randint(0, 10, (5, 7))
tokens[3, 2] = 12
tokens[0, 6] = 11  # beyond what forward looks at
"""

FAULTS = {
    "F.cross_entropy(scores, batch['labels'])": "batch['labels'] holds 3 at row 2, the only one of 4",
    "nn.CrossEntropyLoss(ignore_index=3)(scores, torch.tensor([0, 3, -1, 1]))": "torch.tensor([0, 3, -1, 1]) holds -1",
    "scores.gather(1, batch['actions'].unsqueeze(1))": "batch['actions'] holds 5 at row 1",
    "torch.gather(picked.view(4, 1) + 9, 1, rows.unsqueeze(1))": "rows holds 1 at row 1, and 2 more of 4",
    "scores.index_select(1, picked)": "picked holds 3 at row 1, the only one of 4",
    "torch.zeros(1, 3).scatter_(1, picked.view(1, 4), 1.0)": "picked holds 3 at row 1",
    "scores[rows, picked]": "picked holds 3 at row 1, the only one of 4: indexing takes -3 to 2",
    "scores[:, picked + 2]": "picked + 2 holds 5",
    "[scores[i] for i in range(9)]": "i holds 4",
    "F.one_hot(picked, 3)": "picked holds 3 at row 1",
    "scores.flatten().take(picked * 9)": "picked * 9 holds 27",
    "model(tokens)": "tokens[:, :6] holds 12 at row 3, position 2, the only one of 30: embedding takes 0 to 9",
    "F.binary_cross_entropy(scores, torch.rand(4, 3))": "scores holds ",
    "F.binary_cross_entropy(scores.sigmoid(), scores)": "scores holds ",
    "torch.multinomial(shares, 1)": "shares holds a row that sums to zero at row 1",
    "torch.multinomial(-shares, 1)": "-shares holds a value that is no probability",
    "torch.multinomial(torch.softmax(spoilt - 3, -1), 1)": "spoilt, of which torch.softmax(spoilt - 3, -1) is made, "
    "holds NaN at row 1, position 0",
    "torch.bernoulli(scores)": "scores holds ",
    "Categorical(logits=spoilt)": "spoilt holds NaN at row 1",
    "Categorical(shares - 0.5)": "shares - 0.5 holds",
    "Categorical(logits=scores).log_prob(picked)": "picked holds 3 at row 1",
}

PROBING = """\
def fits(number):
    try:
        model(torch.tensor([[number] * 7]))
    except IndexError as error:
        return False
    return True

rows = max(n for n in range(12) if fits(n)) + 1
print(rows)
"""
ELSEWHERE = {
    "went on": PROBING,
    "left well": PROBING + "sys.exit(0)\n",
    "died of something else": PROBING + "raise KeyError('another fault')\n",
    "died of something else while handling one": """\
try:
    model(tokens)
except IndexError:
    open("/nowhere/to/be/found")
""",
    "a list": "[1, 2][5]",
    "another message": "raise ValueError('index out of range')",
}


def found_in(text: str, folder: Path) -> list[Finding]:
    """What a watched run says of errors of devices."""
    path = folder / "program.py"
    path.write_text(HEAD + text + "\n", encoding="utf-8")
    watch = torchvet.watch(record=folder / "run.vet")
    try:
        with watch:
            runpy.run_path(str(path), run_name="__main__")
    except (Exception, SystemExit):
        pass
    assert watch.report is not None
    gaps = [g for g in watch.report.not_checked if g.check == "finish" or "device" in g.check]
    assert gaps == []
    return [f for f in watch.report.findings if f.code.startswith("DEV")]


@pytest.mark.parametrize("text", FAULTS)
def test_the_value_is_told_with_its_name_and_place(text: str, tmp_path: Path) -> None:
    (found,) = found_in(text, tmp_path)
    assert found.message.startswith(FAULTS[text]), found.message
    assert found.severity == "error" and found.location is not None
    line = (HEAD + text).splitlines()[found.location.line - 1]
    assert line == text or "self.table(" in line


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_did_not_end_the_program_is_not_told(name: str, tmp_path: Path) -> None:
    assert found_in(ELSEWHERE[name], tmp_path) == []


@pytest.mark.parametrize("ending", ["sys.exit(1)", "raise RuntimeError('training failed') from error"])
def test_what_was_caught_and_ended_the_program_is_told(ending: str, tmp_path: Path) -> None:
    text = f"try:\n    model(tokens)\nexcept IndexError as error:\n    {ending}\n"
    assert [f.code for f in found_in(text, tmp_path)] == ["DEV104"]


def test_a_tensor_that_was_not_converted_is_told(tmp_path: Path) -> None:
    (found,) = [f for f in found_in(rule("DEV102").BAD, tmp_path) if f.evidence == "observed"]
    assert found.message == "model.rotation is a plain tensor: it is float32 where model was moved to float64"
    assert (
        found.location is not None
        and "self.rotation = " in (HEAD + rule("DEV102").BAD).splitlines()[found.location.line - 1]
    )


def test_types_that_differ_otherwise_are_not_told(tmp_path: Path) -> None:
    assert found_in("nn.Linear(3, 2).double()(scores)", tmp_path) == []


HIDDEN = """\
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(2)]
        PLANTED
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


net = Deep()
optimizer = torch.optim.SGD(OWNED, lr=0.1)
x = torch.randn(8, 4)
for step in range(6):
    loss = net(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OF_NET = "net.parameters()"
OF_ALL = "[*net.parameters(), *(p for l in net.layers for p in l.parameters())]"
LOOKALIKES = [
    ("pass", OF_ALL),
    ("self.registered = nn.ModuleList(self.layers)", OF_NET),
    ("[layer.requires_grad_(False) for layer in self.layers]", OF_NET),
    ("[layer.eval() for layer in self.layers]", OF_NET),
    ("self.layers = [torch.tanh, torch.relu]", OF_NET),
]


def test_layers_that_nothing_trains_are_told(tmp_path: Path) -> None:
    found = found_in(HIDDEN.replace("PLANTED", "pass").replace("OWNED", OF_NET), tmp_path)
    (one,) = [f for f in found if f.evidence == "observed"]
    assert (one.code, one.severity, one.measured.bytes) == ("DEV109", "error", 2 * (4 * 4 + 4) * 4)
    assert one.message.startswith("2 modules in Deep.layers are not registered: their 4 parameters")


@pytest.mark.parametrize(("planted", "owned"), LOOKALIKES)
def test_layers_in_lists_that_are_taken_care_of_are_not_told(planted: str, owned: str, tmp_path: Path) -> None:
    found = found_in(HIDDEN.replace("PLANTED", planted).replace("OWNED", owned), tmp_path)
    assert [f for f in found if f.evidence == "observed"] == []


REPLACED = """\
import copy
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
image = torch.randn(8, 4, requires_grad=True)
optimizer = torch.optim.SGD(OWNED, lr=0.1)
PLANTED
for step in range(6):
    loss = net(image).mean()
    optimizer.zero_grad()
    loss.backward()
    BETWEEN
    optimizer.step()
"""
COPIED = "net = copy.deepcopy(net)"
KEPT = [
    ("net.parameters()", "net.double().float()", "pass"),
    ("[image]", "pass", "pass"),
    (OF_NET, COPIED, "[p.requires_grad_(False).sub_(0.1 * p.grad).requires_grad_() for p in net.parameters()]"),
    (OF_NET, "masters = net\n" + COPIED, "[setattr(m, 'grad', p.grad) for m, p in zip(masters.parameters(), "
     "net.parameters())]"),
]  # fmt: skip


def replaced_in(folder: Path, owned: str, planted: str, between: str) -> list[Finding]:
    text = REPLACED.replace("OWNED", owned).replace("PLANTED", planted).replace("BETWEEN", between)
    return [f for f in found_in(text, folder) if f.evidence == "observed"]


def test_an_optimizer_of_parameters_that_are_gone_is_told(tmp_path: Path) -> None:
    """Once: by what source shows of the line that replaces them, where it does."""
    (found,) = replaced_in(tmp_path, "net.parameters()", COPIED, "pass")
    assert (found.code, found.severity, found.measured.bytes) == ("DEV103", "error", (4 * 8 + 8 + 8 + 1) * 4)
    assert "net is a copy" in found.message and "4 parameters of Sequential are never stepped" in found.message
    hidden = COPIED.replace("copy.deepcopy", "(lambda model: copy.deepcopy(model))")
    (found,) = replaced_in(tmp_path, "net.parameters()", hidden, "pass")
    assert (found.code, found.severity, found.measured.bytes) == ("DEV103", "error", (4 * 8 + 8 + 8 + 1) * 4)
    assert found.message.startswith("SGD updates 4 parameters that Sequential does not have any more")


@pytest.mark.parametrize(("owned", "planted", "between"), KEPT)
def test_parameters_that_are_stepped_in_another_way_are_not_told(
    owned: str, planted: str, between: str, tmp_path: Path
) -> None:
    assert replaced_in(tmp_path, owned, planted, between) == []


def test_an_assert_of_a_real_gpu_is_said_to_come_late() -> None:
    place = Place("train.py", 7, "main")
    record = BadValue(place=place, kind="unknown", operation="sum", message="CUDA error", asserted=True)
    recording = Recording([RankRecording(0, [record])])
    (found,) = rule("DEV104").in_recording(recording)
    assert "late" in found.cause and "--simulate-gpu" in found.remedy.summary
    assert list(rule("DEV105").in_recording(recording)) == []
