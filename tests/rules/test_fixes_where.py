"""Edits for a branch that is singular where it is not taken: the same values, and gradients that are numbers."""

from __future__ import annotations

import pytest
import torch
from observed_fixes import fixed_lines
from source_fixes import fixed

from torchvet.source.model import SourceFile

METHOD = """
    class Loss(nn.Module):
        def forward(self, x):
            x = self.layer(x)
            {body}
    """


def body_of(body: str) -> list[str]:
    out, put = fixed("NUM111", METHOD.format(body=body.replace("\n", "\n            ")))
    assert len(out) == len(put)
    return [one.strip() for one in put]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("torch.where(x > 0, torch.log(x), 0.0)", "torch.where(x > 0, torch.log(torch.where(x > 0, x, 1.0)), 0.0)"),
        ("torch.where(x <= 0, x, x.sqrt())", "torch.where(x <= 0, x, torch.where(x <= 0, 1.0, x).sqrt())"),
        ("torch.where(x != 0, 1 / x, x)", "torch.where(x != 0, 1 / torch.where(x != 0, x, 1.0), x)"),
        ("torch.where(x > 0, 2 * (x + x) ** 0.5, x)",
         "torch.where(x > 0, 2 * (torch.where(x > 0, x + x, 1.0)) ** 0.5, x)"),
        ("torch.where(x.abs() < 1, x.acos(), x)",
         "torch.where(x.abs() < 1, torch.where(x.abs() < 1, x, 0.0).acos(), x)"),
        ("torch.where(x > 1, x.acosh(), x)", "torch.where(x > 1, torch.where(x > 1, x, 2.0).acosh(), x)"),
        ("torch.where(x > 0, torch.log(torch.sqrt(x)), x)",
         "torch.where(x > 0, torch.log(torch.sqrt(torch.where(x > 0, x, 1.0))), x)"),
        ("torch.where(x > 0, x.log() / x, x)",
         "torch.where(x > 0, torch.where(x > 0, x, 1.0).log() / torch.where(x > 0, x, 1.0), x)"),
    ],
)  # fmt: skip
def test_the_argument_is_chosen_first_and_the_values_are_the_same(chosen: str, expected: str) -> None:
    assert body_of(f"return {chosen}") == [f"return {expected}"]
    x = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0])
    before, after = (eval(text, {"torch": torch, "x": x.clone().requires_grad_()}) for text in (chosen, expected))
    assert torch.equal(before, after)
    leaf = x.clone().requires_grad_()
    eval(expected, {"torch": torch, "x": leaf}).sum().backward()
    assert leaf.grad is not None and not leaf.grad.isnan().any()


def test_a_name_that_the_choice_alone_reads_is_made_safe_where_it_is_bound() -> None:
    body = "root = torch.sqrt(x)\nreturn torch.where(x > 0, root, 0.0)"
    assert body_of(body) == ["root = torch.sqrt(torch.where(x > 0, x, 1.0))"]
    assert body_of("known = x > 0\nroot = x.sqrt()\nreturn torch.where(known, root, x)") == [
        "root = torch.where(known, x, 1.0).sqrt()"
    ]


@pytest.mark.parametrize(
    "body",
    [
        "root = torch.sqrt(x)\nreturn torch.where(x > 0, root, 0.0) + root",
        "root = torch.sqrt(x)\nknown = x > 0\nreturn torch.where(known, root, 0.0)",
        "root = torch.sqrt(x)\nx = x - 1\nreturn torch.where(x > 0, root, 0.0)",
        "root = torch.sqrt(x)\nx.sub_(1)\nreturn torch.where(x > 0, root, 0.0)",
        "return torch.where(x > 0, torch.log(x).sum(-1), 0.0)",
        "return torch.where(x > torch.rand(3), torch.log(x), 0.0)",
        "root = torch.sqrt(x)\nreturn torch.where(root > 0, 1 / root, x)",
        "return torch.where((x\n    > 0), torch.log(x), 0.0)",
    ],
)
def test_nothing_where_another_value_might_come_out(body: str) -> None:
    assert body_of(body) == []


def test_torch_goes_by_its_name_in_the_file() -> None:
    from torchvet.rules import rule

    text = "import torch as th\n\ndef loss(x):\n    y = th.where(x > 0, th.log(x), x)\n    y.sum().backward()\n"
    (found,) = rule("NUM111").in_source(SourceFile("a.py", text))
    assert [e.text for e in found.remedy.edits] == ["th.where(x > 0, x, 1.0)"]


@pytest.mark.parametrize(
    ("at", "body", "expected"),
    [
        ("soft =", "soft = torch.log1p(torch.exp(x))\nreturn torch.where(x > 20, x, soft)",
         "soft = torch.log1p(torch.exp(torch.where(x > 20, 0.0, x)))"),
        ("return", "return torch.where(x > 0, x, torch.exp(x) - 1)",
         "return torch.where(x > 0, x, torch.exp(torch.where(x > 0, 0.0, x)) - 1)"),
        ("return", "return torch.where(x < 9, x.sinh() * 2, x)",
         "return torch.where(x < 9, torch.where(x < 9, x, 0.0).sinh() * 2, x)"),
        ("soft =", "soft = torch.log1p(torch.exp(x))\nreturn torch.where(x > 20, x, soft) + soft", ""),
        ("gate =", "gate = torch.exp(x)\nreturn gate * torch.where(x > 20, x, x.tanh())", ""),
    ],
)  # fmt: skip
def test_what_a_run_saw_overflow_in_the_branch_not_taken(at: str, body: str, expected: str) -> None:
    """By source alone it would be unknown whether the argument ever gets so large."""
    text = METHOD.format(body=body.replace("\n", "\n            "))
    out, put = fixed_lines("NUM111", text, at)
    assert ([one.strip() for one in put], len(out)) == ([expected] if expected else [], len(put))
    assert not fixed("NUM111", text)[1]
