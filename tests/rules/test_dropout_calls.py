"""TRN103: dropout that is active in every mode, and such as knows the mode or is meant so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from example_runs import forked
from torch import nn

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

class {name}(nn.Module):
    def __init__(self, width, p=0.1, off=0.0):
        super().__init__()
        self.fc, self.drop, self.p, self.off = nn.Linear(width, width), nn.Dropout(p), p, off

    def {method}(self, x{more}):
        x = self.fc(x)
{body}
        return x

    def forward(self, x):
        return self.fc(x)
"""
EVALUATED = "\nmodel = {name}(8)\nmodel.eval()\n"
FAULTY = {
    "a share": ("x = F.dropout(x, 0.3)", "warning", "x = F.dropout(x, 0.3, training=self.training)"),
    "torch's half": ("x = F.dropout(x)", "warning", "x = F.dropout(x, training=self.training)"),
    "of channels": ("x = F.dropout2d(x, p=self.p)", "warning", "x = F.dropout2d(x, p=self.p, training=self.training)"),
    "off by default": ("x = F.dropout(x, p=self.off)", "info", "x = F.dropout(x, p=self.off, training=self.training)"),
    "attention": (
        "x = F.scaled_dot_product_attention(x, x, x, dropout_p=self.p)",
        "warning",
        "x = F.scaled_dot_product_attention(x, x, x, dropout_p=self.p if self.training else 0.0)",
    ),
    "attention, a layer's share": (
        "x = F.scaled_dot_product_attention(x, x, x, None, self.drop.p)",
        "info",
        "x = F.scaled_dot_product_attention(x, x, x, None, self.drop.p if self.training else 0.0)",
    ),
    "a name in between": ("p = self.p\n        x = F.dropout(x, p)", "warning", "p = self.p"),
    "a new layer": ("x = nn.Dropout(0.2)(x)", "warning", ""),
    "beside one that knows": (
        "x = F.dropout(x, 0.3)\n        x = F.dropout(x, 0.3, training=self.training)",
        "warning",
        "x = F.dropout(x, 0.3, training=self.training)",
    ),
}
HEALTHY = {
    "knows the mode": "x = F.dropout(x, 0.3, training=self.training)",
    "knows the mode by its place": "x = F.dropout(x, 0.3, self.training)",
    "on purpose": "x = F.dropout(x, 0.3, training=True)",
    "in a branch": "if self.training and self.p > 0:\n            x = F.dropout(x, self.p)",
    "after an early return": "if not self.training:\n            return x\n        x = F.dropout(x, self.p)",
    "a share by the mode": (
        "p = self.p if self.training else 0.0\n        x = F.scaled_dot_product_attention(x, x, x, dropout_p=p)"
    ),
    "a share by a branch": (
        "p = 0.0\n        if self.training:\n            p = self.p\n"
        "        x = F.scaled_dot_product_attention(x, x, x, dropout_p=p)"
    ),
    "nothing is dropped": (
        "x = F.dropout(x, 0)\n"
        "        x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.0)\n        x = nn.Dropout(0)(x)"
    ),
    "a caller's share": "x = F.dropout(x, share)",
    "said to be meant": "x = F.dropout(x, self.p)  # Monte Carlo: active in evaluation",
    "said to be always on": "x = F.dropout(x, self.p)  # always applies dropout",
    "the module's layer": "x = self.drop(x)",
    "another package's": "from ops import dropout\n        x = dropout(x, 0.3)",
}


def found(body: str, name: str = "Net", method: str = "encode", more: str = "", end: str = EVALUATED) -> list[Finding]:
    text = HEAD.format(name=name, method=method, more=more, body=f"        {body}") + end.format(name=name)
    return list(rule("TRN103").in_source(SourceFile("model.py", text)))


@pytest.mark.parametrize("name", FAULTY)
def test_dropout_that_knows_no_mode_is_found(name: str) -> None:
    body, severity, line = FAULTY[name]
    (finding,) = found(body)
    assert finding.severity == severity
    text = HEAD.format(name="Net", method="encode", more="", body=f"        {body}")
    rows = text.split("\n")
    for edit in finding.remedy.edits:
        row, (start, end) = edit.start[0] - 1, (edit.start[1] - 1, edit.end[1] - 1)
        rows[row] = rows[row][:start] + edit.text + rows[row][end:]
    assert not line or any(row.strip() == line for row in rows)
    assert bool(finding.remedy.edits) == bool(line) and not finding.remedy.safe


def test_a_file_that_evaluates_nothing_makes_it_info() -> None:
    assert [f.severity for f in found("x = F.dropout(x, 0.3)", end="")] == ["info"]


@pytest.mark.parametrize("name", HEALTHY)
def test_dropout_that_knows_the_mode_is_not(name: str) -> None:
    assert not found(HEALTHY[name], more=", share=0.1" if name == "a caller's share" else "")


@pytest.mark.parametrize("name", ["MonteCarloNet", "MCDropoutNet", "PreNet", "BayesianNet"])
def test_classes_that_are_made_for_it(name: str) -> None:
    assert not found("x = F.dropout(x, 0.3)", name=name)


def test_methods_that_only_train() -> None:
    assert not found("x = F.dropout(x, 0.3)", method="training_step")


def test_what_torch_does_in_evaluation() -> None:
    """The cause, measured: a function that is told nothing drops in eval mode, and so does a new layer."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            attention = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
            return [nn.functional.dropout(x), nn.Dropout(0.5)(x), attention]

    torch.manual_seed(0)
    x = torch.rand(1, 8, 8)
    for one, other in zip(Net().eval()(x), Net().eval()(x), strict=True):
        assert not torch.equal(one, other)


@pytest.mark.parametrize("method", ["compute_loss", "contrastive_views", "augment", "stochastic_forward", "loss"])
def test_methods_that_only_training_calls(method: str) -> None:
    assert not found("x = F.dropout(x, 0.3)", method=method)


@pytest.mark.parametrize(
    "body",
    [
        "x = x if deterministic else F.dropout(x, 0.3)",
        "if not is_eval: x = F.dropout(x, 0.3)",
        "x = F.dropout(*x)",
    ],
)
def test_what_asks_by_another_word_or_is_not_sure(body: str) -> None:
    assert not found(body, more=", deterministic=False, is_eval=False")


def test_a_method_that_is_called_in_training_alone() -> None:
    text = (
        "from torch import nn\nimport torch.nn.functional as F\n\nclass Net(nn.Module):\n"
        "    def noisy(self, x):\n        return F.dropout(x, 0.2)\n\n"
        "    def forward(self, x):\n        return self.noisy(x) if {asked} else x\n\nNet().eval()\n"
    )
    asked, other = (SourceFile("t.py", text.format(asked=one)) for one in ("self.training", "x is not None"))
    assert not list(rule("TRN103").in_source(asked)) and len(list(rule("TRN103").in_source(other))) == 1


RUN = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self, width, p=0.4):
        super().__init__()
        self.fc, self.drop, self.p = nn.Linear(width, width), nn.Dropout(p), p

    def forward(self, x):
        x = self.fc(x)
        BODY
        return x

model, x = Net(8), torch.randn(32, 8)
rule = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(6):
    model.train()
    for _ in range(5):
        rule.zero_grad()
        model(x).square().mean().backward()
        rule.step()
    model.train(MODE)
    with torch.no_grad():
        for _ in range(3):
            model(x)
"""
"""Nothing here says `.eval()`: the file alone is no evidence that something is evaluated."""


def seen(body: str, folder: Path, mode: str = "False") -> list[tuple[str, str]]:
    """TRN103's findings at warning or above of a run: line and message."""
    text = RUN.replace("BODY", body).replace("MODE", mode)
    observed = forked(text, folder)
    assert observed is not None
    return [
        (text.splitlines()[f["location"]["line"] - 1].strip(), f["message"])
        for f in observed
        if f["code"] == "TRN103" and f["severity"] != "info"
    ]


@pytest.mark.parametrize(
    "body",
    [
        "x = F.dropout(x, self.p)",
        "x = F.dropout(\n            x, 0.3\n        )",
        "x = F.dropout1d(x, self.p)",
        "x = F.scaled_dot_product_attention(x, x, x, dropout_p=self.p)",
    ],
    ids=["a share", "over several lines", "channels", "attention"],
)
def test_a_run_says_that_it_dropped_in_eval_mode(body: str, tmp_path: Path) -> None:
    ((line, message),) = seen(body, tmp_path)
    assert line == body.splitlines()[0]
    assert "Net was in eval mode in" in message and message.endswith("that dropped")


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        ("x = F.dropout(x, self.p, self.training)", "False"),
        ("x = self.drop(x)", "False"),
        ("x = F.dropout(x, self.p, training=True)", "False"),
        ("x = F.dropout(x, self.p)  # Monte Carlo: active in evaluation", "False"),
        ("x = torch.bernoulli(torch.sigmoid(x))", "False"),
        ("x = x * torch.empty_like(x).bernoulli_(0.5)", "False"),
        ("x = F.dropout(x, self.p)", "True"),
    ],
    ids=["knows the mode", "a layer", "on purpose", "said to be meant", "samples", "noise of its own", "only trained"],
)
def test_a_run_without_such_dropout_says_nothing(body: str, mode: str, tmp_path: Path) -> None:
    assert not [message for _, message in seen(body, tmp_path, mode) if "eval mode in" in message]
