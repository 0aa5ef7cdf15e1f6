"""Plain tensors that come by branches and functions, moves thrown away, tensors made beside others."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import torch\nfrom torch import nn\nfrom typing import List\nfrom .parts import Base\n"


def found(code: str, text: str) -> list[str]:
    return [f.severity for f in rule(code).in_source(SourceFile("t.py", HEAD + text))]


NET = """
def table(n):
    made = torch.arange(n).float()
    return made.view(1, -1)
class Net({base}):
    def __init__(self, n, dims=None, levels: List[int] = None):
        super().__init__()
        {made}
    def {method}(self, x):
        return {use}
    {more}
"""
PLAIN = {"base": "nn.Module", "made": "pass", "method": "forward", "use": "x * self.k", "more": "pass"}
CHOSEN = "if dims is not None:\n            dims = torch.tensor(dims, dtype=torch.long)\n        self.k = dims"


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        ({"made": "self.k = table(n)"}, ["info"]),
        ({"made": "self.k = torch.linspace(0, 1, n)", "method": "scores"}, ["info"]),
        ({"made": "self.k = torch.linspace(0, 1, n)", "base": "Base", "more": "part: nn.Module"}, ["info"]),
        ({"made": "self.k = torch.tensor(levels)"}, ["info"]),
        ({"made": CHOSEN, "use": "x.index_select(-1, self.k)"}, ["info"]),
        # An index, a number, what is moved, registered, replaced or made on a device.
        ({"made": CHOSEN, "use": "x[:, self.k]"}, []),
        ({"made": "self.k = torch.tensor(n)"}, []),
        ({"made": "self.k = table(n)", "use": "x * self.k.to(x.device)"}, []),
        ({"made": "self.k = table(n)", "more": "def to(self, device): self.k = self.k.to(device)"}, []),
        ({"made": "self.register_buffer('k', table(n))"}, []),
        ({"made": "self.k = table(n)", "more": "def set(self, k): self.k = k"}, []),
        ({"made": "self.k = table(n)\n        if n == 1:\n            self.k = 1.0"}, []),
        ({"made": "self.k = table(n)", "base": "object"}, []),
        ({"made": "self.k = table(n)", "use": "x.view(-1, self.k.size(0))"}, []),
    ],
)
def test_a_plain_tensor_is_found_wherever_it_comes_from(changed: dict[str, str], severities: list[str]) -> None:
    assert found("DEV102", NET.format(**PLAIN | changed)) == severities


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        ({"made": "self.k = torch.randperm(n)", "use": "x[:, self.k]"}, ["info"]),
        ({"made": "self.k = torch.randn(n, device='cuda').to(n.device)", "use": "self.k"}, ["info"]),
        ({"made": "torch.manual_seed(0)\n        self.k = torch.randperm(n)", "use": "x[:, self.k]"}, []),
        ({"made": "self.k = nn.Parameter(torch.randn(n))", "use": "self.k"}, []),
        ({"made": "self.k = torch.randperm(n)", "use": "x"}, []),
        ({"made": "self.k = torch.randn(n)", "use": "self.k", "more": "def draw(self): self.k = torch.randn(3)"}, []),
        ({"made": "self.k = torch.randperm(n)", "use": "x[self.k]", "more": "def state_dict(self): return {}"}, []),
    ],
)
def test_a_checkpoint_lacks_what_is_drawn_and_not_registered(changed: dict[str, str], severities: list[str]) -> None:
    assert found("DEV102", NET.format(**PLAIN | changed)) == severities


APPLIED = "def _apply(self, fn):\n        self.k = {}\n        return super()._apply(fn)"


def test_what_apply_moves_by_hand_is_not_saved() -> None:
    made = {"made": "self.k = torch.as_tensor(n).float()"}
    assert found("DEV102", NET.format(**PLAIN | made | {"more": APPLIED.format("fn(self.k)")})) == ["info"]
    assert found("DEV102", NET.format(**PLAIN | made | {"more": APPLIED.format("None")})) == []


MOVED = """
class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.k = self.made(n)
        {more}
        self.k.cuda()
    def made(self, n){said}:
        k = torch.FloatTensor(n, 1).fill_(0)
        for i in range(n):
            k[i, 0] = i
        return {given}
"""


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        ({}, ["error"]),
        ({"given": "other(k)", "said": " -> torch.Tensor"}, ["error"]),
        ({"given": "other(k)"}, []),
        ({"given": "nn.Linear(n, n)"}, []),
        ({"given": "[k]"}, []),
        ({"more": "self.k = nn.Linear(n, n)"}, []),
        ({"given": "k.tolist()"}, []),
    ],
)
def test_what_a_function_of_the_file_gives_back_is_known_to_be_a_tensor(
    changed: dict[str, str], severities: list[str]
) -> None:
    assert found("DEV110", MOVED.format(**{"more": "pass", "said": "", "given": "k"} | changed)) == severities


BESIDE = """
def widened(x, y):
    {before}
    added = {made}
    {after}
    return {joined}
"""
MADE = {
    "before": "x = x.double()",
    "made": "torch.zeros((x.shape[0], 1), dtype=x.dtype)",
    "after": "pass",
    "joined": "torch.cat((x, added), 1)",
}


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        ({}, ["info"]),
        ({"joined": "x + added"}, ["info"]),
        ({"made": "torch.zeros((x.shape[0], 1), dtype=x.dtype, device=x.device)"}, []),
        ({"made": "torch.tensor(0.5, dtype=x.dtype)", "joined": "x + added"}, []),
        ({"made": "torch.zeros_like(x)", "joined": "x + added"}, []),
        ({"after": "added = added.to(x.device)"}, []),
        ({"after": "added = added.type_as(x)"}, []),
        ({"before": "x = torch.zeros(4, 4)"}, []),
        ({"before": "x = x.cpu()"}, []),
        ({"joined": "x[added.long()]"}, []),
        ({"joined": "added"}, []),
    ],
)
def test_a_tensor_that_takes_anothers_dtype_and_not_its_device(changed: dict[str, str], severities: list[str]) -> None:
    assert found("DEV101", BESIDE.format(**MADE | changed)) == severities


def test_the_fix_takes_the_device_along() -> None:
    text = HEAD + BESIDE.format(**MADE)
    (finding,) = rule("DEV101").in_source(SourceFile("t.py", text))
    assert [edit.text for edit in finding.remedy.edits] == [", device=x.device"]
