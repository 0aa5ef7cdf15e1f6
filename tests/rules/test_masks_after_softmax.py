"""NUM115: masks of -inf after a softmax, and such as stand where they belong."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn

def attend(q, k, v, mask):
    scores = q @ k.transpose(-2, -1)
"""
FAULTY = {
    "the same name": (
        "scores = scores.softmax(-1)",
        "if mask is not None:",
        "    scores = scores.masked_fill(mask, float('-inf'))",
        "return scores @ v",
    ),
    "another name": ("w = F.softmax(scores, -1)", "p = w.masked_fill(mask, -1e9)", "return torch.matmul(p, v)"),
    "in place": ("w = torch.softmax(scores, -1)", "w.masked_fill_(mask, -torch.inf)", "return torch.bmm(w, v)"),
    "in one expression": ("return scores.softmax(-1).masked_fill(mask, -math.inf) @ v",),
    "torch's function": (
        "w = scores.softmax(-1)",
        "w = torch.masked_fill(w, mask, -10000.0)",
        "w = F.dropout(w, 0.1, training=True)",
        "return torch.einsum('ij,jd->id', w, v)",
    ),
    "a layer": (
        "soft = nn.Softmax(dim=-1)",
        "w = soft(scores)",
        "w = w.masked_fill(mask, torch.finfo(w.dtype).min)",
        "return w @ v",
    ),
    "in another shape": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "w = w.unsqueeze(1).float()",
        "return torch.matmul(w, v)",
    ),
}
HEALTHY = {
    "before": ("scores = scores.masked_fill(mask, float('-inf'))", "w = scores.softmax(-1)", "return w @ v"),
    "zeros": ("w = scores.softmax(-1)", "w = w.masked_fill(mask, 0.0)", "return w @ v"),
    "zeros after -inf": (
        "scores = scores.masked_fill(mask, float('-inf'))",
        "w = scores.softmax(-1).masked_fill(mask, 0)",
        "return w @ v",
    ),
    "the largest are chosen": (
        "w = scores.softmax(-1)",
        "chosen = w.masked_fill(mask, float('-inf'))",
        "top = torch.topk(chosen, 2).indices",
        "return w.gather(-1, top) @ v",
    ),
    "the best one": ("w = scores.softmax(-1).masked_fill(mask, -1e9)", "return w.argmax(-1), w.sum()"),
    "softened again": (
        "w = scores.softmax(-1).masked_fill(mask, float('-inf'))",
        "w = w.softmax(-1)",
        "return w @ v",
    ),
    "bounded before the product": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "w = torch.relu(w)",
        "return w @ v",
    ),
    "compared before the product": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "w = (w > 0).float()",
        "return w @ v",
    ),
    "compared in the product": ("w = scores.softmax(-1).masked_fill(mask, -1e9)", "return w.ge(0).float() @ v"),
    "through a module": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "w = nn.Sigmoid()(w)",
        "return torch.bmm(w, v)",
    ),
    "filled again": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "w[w < 0] = 0",
        "return torch.bmm(w, v)",
    ),
    "cut off in place": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "w.clamp_(min=0)",
        "return w @ v",
    ),
    "another one in the end": (
        "w = scores.softmax(-1).masked_fill(mask, -1e9)",
        "print(w.sum())",
        "w = scores",
        "return w @ v",
    ),
    "a product with the mask": ("w = scores.softmax(-1)", "w = w * ~mask", "return w @ v"),
    "what is no softmax": ("w = scores.sigmoid()", "w = w.masked_fill(mask, -1e9)", "return w @ v"),
    "another array": ("w = scores.softmax(-1)", "other = scores.masked_fill(mask, -1e9)", "return w @ v, other"),
}


def found(*lines: str) -> list[str]:
    text = HEAD + "".join(f"    {line}\n" for line in lines)
    return [f.severity for f in rule("NUM115").in_source(SourceFile("model.py", text))]


@pytest.mark.parametrize("name", FAULTY)
def test_a_mask_after_the_softmax_is_found(name: str) -> None:
    assert found(*FAULTY[name]) == ["warning"]


@pytest.mark.parametrize("name", HEALTHY)
def test_other_masks_are_not(name: str) -> None:
    assert not found(*HEALTHY[name])
