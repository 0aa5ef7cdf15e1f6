"""Autocast regions in which nothing is cast, and what looks like them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from handmade import FILE, program, recording

from torchvet.recording.records.autocast import AutocastRegion, ProductsOutside
from torchvet.recording.records.base import Place
from torchvet.rules import rule

PROGRAM = """
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        {forward}

def region(**options):
    return torch.autocast("cpu", dtype=torch.bfloat16, **options)

model = Net(){of_model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()
inputs = torch.randn(64, 16){of_inputs}
targets = torch.randint(0, 4, (64,))
{before}
for step in range(24):
    {step}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {after}
print("loss", loss.item())
"""
PARTS = {
    "forward": "return self.head(self.body(x))", "of_model": "", "of_inputs": "", "before": "", "after": "pass",
    "step": "output = model(inputs)\n    with region():\n        loss = criterion(output.float(), targets)",
}  # fmt: skip
WITHIN = "with region():\n        loss = criterion(model(inputs), targets)"
PLAIN = "loss = criterion(model(inputs), targets)"
DOUBLE = {"of_model": ".double()", "of_inputs": ".double()"}
NOTHING: dict[str, dict[str, str]] = {
    "around the loss": {},
    "decorated loss": {"before": "@region()\ndef loss_of(output):\n    return criterion(output, targets)",
                       "step": "loss = loss_of(model(inputs))"},
    "convolutions": {"forward": "return self.head(torch.conv1d(self.body(x)[:, None], torch.ones(1, 1, 3), padding=1)"
                     "[:, 0])"},
    "float64": {**DOUBLE, "step": WITHIN},
    "two regions": {"step": "output = model(inputs)\n    with region():\n        loss = criterion(output, targets)\n"
                    "    with region():\n        loss = loss + output.square().mean()"},
}  # fmt: skip
SOMETHING: dict[str, dict[str, str]] = {
    "around both": {"step": WITHIN},
    "around a part": {"forward": "with region(): x = self.body(x)\n        return self.head(x.float())", "step": PLAIN},
    "a model without": {"forward": "with region(enabled=False): return self.head(self.body(x))", "step": WITHIN},
    "off": {"step": "output = model(inputs)\n    with region(enabled=False):\n        "
            "loss = criterion(output, targets)"},
    "half by itself": {"of_model": ".bfloat16()", "of_inputs": ".bfloat16()"},
    "decorated forward": {"before": "Net.forward = region()(Net.forward)", "step": PLAIN},
    "evaluated in one": {"step": PLAIN, "after": "if step % 4 == 0:\n        with torch.no_grad(), region(): "
                         "model(inputs)"},
    "evaluated in an empty one": {"step": PLAIN, "after": "with torch.no_grad(), region(): inputs.mean()"},
    "a teacher in one": {"before": "teacher = Net()", "step": "with torch.no_grad(), region():\n        wanted = "
                         "teacher(inputs)\n    loss = (model(inputs) - wanted.float()).square().mean()"},
    "attention alone": {"forward": "with region():\n            a = nn.functional.scaled_dot_product_attention("
                        "*[x.view(-1, 2, 2, 4)] * 3)\n        return self.head(self.body(a.float().reshape(-1, 16)))",
                        "step": PLAIN},
    "checkpointed": {"forward": "return torch.utils.checkpoint.checkpoint(lambda x: self.head(self.body(x)), x, "
                     "use_reentrant=False)", "step": WITHIN},
    "in the model's thread": {"before": "from concurrent.futures import ThreadPoolExecutor\n"
                              "pool = ThreadPoolExecutor(1)",
                              "step": "with region():\n        loss = criterion(pool.submit(model, inputs).result(), "
                              "targets)"},
    "logits outside": {"step": "with region():\n        output = model(inputs)\n    logits = output.float() @ "
                       "torch.eye(4)\n    loss = criterion(logits, targets)"},
}  # fmt: skip


def findings(tmp_path: Path, parts: dict[str, str]) -> list[dict[str, Any]]:
    found = forked(PROGRAM.format(**{**PARTS, **parts}), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN122"]


@pytest.mark.parametrize("what", NOTHING)
def test_regions_that_cast_nothing(tmp_path: Path, what: str) -> None:
    found = findings(tmp_path, NOTHING[what])
    assert found and {f["severity"] for f in found} == {"warning"}


@pytest.mark.parametrize("what", SOMETHING)
def test_regions_that_need_not_cast_more(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, SOMETHING[what])


PLACE = Place(FILE, 9, "train")
OUTSIDE: dict[str, Any] = {"device": "cpu", "dtype": "float32", "place": PLACE, "calls": 12, "steps": 6}


@pytest.mark.parametrize(
    ("seen", "outside", "told"),
    [
        ({}, {}, True),
        ({"heard": 2}, {}, False),
        ({"enabled": False}, {}, False),
        ({"casts": 1}, {}, False),
        ({"inside": 4}, {}, False),
        ({"elsewhere": 4, "other": "cuda"}, {}, False),
        ({"inside": 4, "double": 4}, {}, True),
        ({"inside": 4, "double": 3}, {}, False),
        ({}, {"steps": 2}, False),
        ({}, {"dtype": "bfloat16"}, False),
        ({}, {"dtype": "int64"}, False),
        ({}, {"device": "cuda"}, False),
    ],
)
def test_what_shows_that_nothing_is_cast(seen: dict[str, Any], outside: dict[str, Any], told: bool) -> None:
    given: dict[str, Any] = {"enabled": True, "heard": 6, **seen}
    region = AutocastRegion(place=PLACE, device="cpu", dtype="bfloat16", wanted=True, entered=40, **given)
    records = recording(program(), region, ProductsOutside(**{**OUTSIDE, **outside}))
    assert bool(list(rule("TRN122").in_recording(records))) == told
