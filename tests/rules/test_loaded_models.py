"""TRN103 where a program loads a model, runs it and never puts it into eval mode; and what only resembles that."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch, torchvision\nfrom torch import nn\nfrom elsewhere import Known, Base, judge\n"
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def forward(self, x):
        return self.layers(x)
"""
SCRIPT = """
net = {built}
net.load_state_dict(torch.load("net.pt"))
{between}
with torch.no_grad():
    print(net(x).argmax(1))
"""
GIVEN = """
def predict(model, x):
    with torch.no_grad():
        return model(x).softmax(1)

def main(x):
    net = Net()
    net.load_state_dict(torch.load("net.pt"))
    print(predict(net, x))
"""
KEPT = """
class Predictor{base}:
    def __init__(self):
        self.net = Net()
        self.net.load_state_dict(torch.load("net.pt"))

    @torch.no_grad()
    def predict(self, x):
        return self.net(x)
"""
WHOLE = """
with open("net.pt", "rb") as file:
    net = torch.load(file, weights_only=False)
with torch.inference_mode():
    for x in batches:
        print(net.generate(x))
"""
OWN = NET + SCRIPT.replace("{built}", "Net()")
FAULTY = {
    "a class with dropout": (OWN.replace("{between}", ""), "warning"),
    "moved first": (OWN.replace("{between}", "net = net.cuda()"), "warning"),
    "a known architecture": (SCRIPT.format(built="torchvision.models.resnet18()", between=""), "warning"),
    "a class from elsewhere": (SCRIPT.format(built="Known()", between="print(net)"), "info"),
    "given to a function": (NET + GIVEN, "warning"),
    "kept by an object": (NET + KEPT.replace("{base}", ""), "warning"),
    "the model itself": (WHOLE, "info"),
    "with gradients, in one script": (
        OWN.replace("{between}", "").replace("torch.no_grad()", "open(x)"),
        "info",
    ),
}
HEALTHY = {
    "switched": OWN.replace("{between}", "net.eval()"),
    "switched by train": OWN.replace("{between}", "net.train(False)"),
    "nothing to switch": OWN.replace("{between}", "").replace("nn.Dropout(0.5)", "nn.ReLU()"),
    "given to what may switch": OWN.replace("{between}", "judge(net)"),
    "kept by a module": NET + KEPT.replace("{base}", "(nn.Module)"),
    "kept by an object with a base": NET + KEPT.replace("{base}", "(Base)"),
    "a file that trains": OWN.replace("{between}", "net(x).sum().backward()"),
    "the model itself, with gradients": WHOLE.replace("torch.inference_mode()", "open(x)"),
    "given to a function, with gradients": NET + GIVEN.replace("torch.no_grad()", "open(x)"),
    "a class that is called": SCRIPT.format(built="Known", between="net = net(**sizes)").replace(
        "net(x).argmax(1)", "1"
    ),
    "run before": OWN.replace("{between}", "").replace('net.load_state_dict(torch.load("net.pt"))', "")
    + 'net.load_state_dict(torch.load("net.pt"))\n',
    "a dict of weights": 'net = torch.load("net.pt")\nwith torch.no_grad():\n    print(net["scale"] * 2)\n',
    "for its noise": (
        "def mc_dropout(x, n):\n    net = Known()\n    net.load_state_dict(torch.load('a.pt'))\n"
        "    with torch.no_grad():\n        return torch.stack([net(x) for _ in range(n)])\n"
    ),
    "for its statistics": (
        "def recalibrate(batches):\n    net = Known()\n    net.load_state_dict(torch.load('a.pt'))\n"
        "    with torch.no_grad():\n        for x in batches:\n            net(x)\n"
    ),
    "the state of something else": "seen = Known()\nseen.load_state_dict(torch.load('a.pt'))\nprint(seen.sample(3))\n",
}


def found(text: str) -> list[str]:
    compile(HEAD + text, "t.py", "exec")
    return [f.severity for f in rule("TRN103").in_source(SourceFile("t.py", HEAD + text))]


@pytest.mark.parametrize("name", FAULTY)
def test_a_loaded_model_in_train_mode_is_found(name: str) -> None:
    text, severity = FAULTY[name]
    assert found(text) == [severity]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_look_alike_stays_silent(name: str) -> None:
    assert found(HEALTHY[name]) == []


def test_the_edit_switches_it_where_it_is_loaded() -> None:
    (one,) = rule("TRN103").in_source(SourceFile("t.py", HEAD + FAULTY["a class with dropout"][0]))
    assert [edit.text.strip() for edit in one.remedy.edits] == ["net.eval()"] if one.remedy else False
