"""Views behind operations that keep a permuted layout: found where torch raises, silent where it does not."""

from __future__ import annotations

import pytest
import torch

from torchvet.finding import Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

LINES = [
    "a = x.t(); return a.eq(y.view(1, -1).expand_as(a))[:3].view(-1)",
    "a = x.t(); return a.eq(y.view(1, -1)).view(-1)",
    "a = x.t(); return (a == y[None]).float().view(-1)",
    "a = x.t() * 2; return a.view(-1)",
    "a = x.T.relu(); return a.view(-1)",
    "a = torch.exp(x.t()); return a[:, 1:3].view(-1)",
    "_, a = x.topk(3, 1); a = a.t(); return a[:2].view(-1)",
    "if x.dim() == 2: a = x.t()\n    else: a = x.exp().t()\n    return a.clone().view(-1)",
    # What lies in order, or may:
    "a = x.t(); return a.eq(y.view(1, -1).expand_as(a))[:3].contiguous().view(-1)",
    "a = x.t(); return a.eq(y.view(1, -1).expand_as(a))[:3].reshape(-1)",
    "a = x.t(); return a.eq(y.view(1, -1).expand_as(a))[:1].view(-1)",
    "a = x.t(); return a.softmax(0).view(-1)",
    "a = x.t(); return a.masked_fill(a > 0, 0).view(-1)",
    "a = x.t(); return a.cumsum(0).view(-1)",
    "a = x.t(); return a.sum(0).view(-1)",
    "a = x.t(); return a[0].view(-1)",
    "a = x.t(); return torch.ones(4, 6).eq(a).view(-1)",
    "a = x.t(); return a.contiguous().exp().view(-1)",
    "a = x.t(); a = a @ x; return a.view(-1)",
    "a = x.t(); return a.relu().t().view(-1)",
    "a = x.t(); a = x * 2; return a.view(-1)",
    "a = x\n    if y.sum() > 99: a = x.t()\n    return a.exp().view(-1)",
]


def findings(text: str) -> list[Finding]:
    return list(rule("OPS209").in_source(SourceFile("t.py", "import torch\n" + text)))


def raises(text: str) -> bool:
    names: dict[str, object] = {"torch": torch}
    exec(text, names)
    try:
        names["f"](torch.randn(6, 4), torch.randn(6))  # type: ignore[operator]
    except RuntimeError as error:
        return "view size is not compatible" in str(error)
    return False


@pytest.mark.parametrize("lines", LINES)
def test_what_is_found_is_what_raises(lines: str) -> None:
    text = "def f(x, y):\n    " + lines.replace("; ", "\n    ") + "\n"
    assert bool(findings(text)) is raises(text)


COUNTED = """
def rates(scores, labels, {parameter}):
    _, best = scores.topk(5, 1)
    best = best.t()
    hits = best.eq(labels.view(1, -1).expand_as(best))
    for k in ks:
        print(hits[:k].view(-1).sum())
{call}
"""


@pytest.mark.parametrize(
    ("parameter", "call", "severity"),
    [
        ("ks=(1,)", "", "info"),
        ("ks=(1, 5)", "", "warning"),
        ("ks=(1,)", "rates(a, b, (1, 5))", "warning"),
        ("ks=(1,)", "rates(a, b, ks=(1,))", "info"),
        ("ks", "", "info"),
    ],
)
def test_a_slice_of_one_row_can_be_viewed(parameter: str, call: str, severity: str) -> None:
    (one,) = findings(COUNTED.replace("{parameter}", parameter).replace("{call}", call))
    assert one.severity == severity
    assert "unless one of them has the size 1" in one.message


def test_the_cause_names_what_keeps_the_layout() -> None:
    (one,) = findings("def f(x, y):\n    a = x.t()\n    return a.eq(y.view(1, -1)).float().view(-1)\n")
    assert one.cause == "line 3 permutes the dimensions without moving the data, and eq and float keep this layout"


@pytest.mark.parametrize("shape", ["2, 1, 4", "1, 3, 4", "2, 3, 1", "2, 3, 4", "1, 1, 4", "1, 1, 1"])
@pytest.mark.parametrize("end", ["transpose(1, 2).view(-1)", "permute(2, 0, 1).view(-1)"])
def test_of_sizes_that_are_written_down_as_one_it_is_known_what_raises(shape: str, end: str) -> None:
    text = f"import torch\ndef f(x, y):\n    return torch.randn({shape}).{end}\n"
    assert bool(findings(text)) is raises(text)
