"""What the autocast rules tell from source: look-alikes that stay silent, and fixes that hold."""

from __future__ import annotations

import ast

import pytest

from torchvet.finding import Edit, Finding
from torchvet.rules import rule
from torchvet.source.model import SourceFile

STEP = """\
import torch
from torch import nn
criterion = nn.{loss}()
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    with torch.autocast("cuda"):
        out = model(x)
    loss = criterion({given}, y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def found(code: str, text: str) -> list[Finding]:
    return list(rule(code).in_source(SourceFile("train.py", text)))


def applied(text: str, edits: list[Edit]) -> str:
    """A text with edits made, from the last to the first."""
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        lines = text.splitlines(keepends=True)
        start, end = (sum(map(len, lines[: line - 1])) + column - 1 for line, column in (edit.start, edit.end))
        text = text[:start] + edit.text + text[end:]
    return text


@pytest.mark.parametrize(
    ("loss", "given", "times"),
    [("CrossEntropyLoss", "out", 1), ("CrossEntropyLoss", "out.float()", 0), ("MSELoss", "out", 0),
     ("BCEWithLogitsLoss", "out", 0), ("NLLLoss", "out", 0), ("CrossEntropyLoss", "out.flatten(0, 1)", 1)],
)  # fmt: skip
def test_a_loss_is_judged_by_what_it_does_to_half_logits(loss: str, given: str, times: int) -> None:
    assert len(found("AMP201", STEP.format(loss=loss, given=given))) == times


def test_the_model_may_give_float32_by_itself() -> None:
    text = (
        "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x):\n        return self.body(x).float()\n"
    )
    assert found("AMP201", text + "model = Net()\n" + STEP.format(loss="CrossEntropyLoss", given="out")) == []


def test_a_region_by_another_name_is_one() -> None:
    text = """\
import torch
from functools import partial
from contextlib import nullcontext
amp = nullcontext
if use_amp:
    amp = partial(torch.autocast, device_type="cuda", dtype=torch.bfloat16)
with amp():
    for x in loader:
        loss = model(x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    assert [f.location.line for f in found("AMP203", text)] == [7]
    assert found("AMP203", text.replace("torch.bfloat16)", "torch.bfloat16, cache_enabled=False)")) == []


def test_an_evaluation_may_share_one_region() -> None:
    text = """\
import torch
with torch.no_grad(), torch.autocast("cuda"):
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum()
"""
    assert found("AMP203", text) == found("AMP204", text) == found("AMP202", text) == []


def test_steps_of_another_model_leave_the_copies_right() -> None:
    text = """\
import torch
opt = torch.optim.Adam(critic.parameters())
for x in loader:
    with torch.autocast("cuda"):
        fake = generator(x)
        loss = critic(fake).mean()
        loss.backward()
        opt.step()
        again = generator(x)
"""
    assert found("AMP204", text) == []
    assert len(found("AMP204", text.replace("again = generator(x)", "again = critic(fake)"))) == 1


def test_what_was_made_float32_is_full_precision() -> None:
    text = """\
import torch
import torch.nn.functional as F
with torch.autocast("cuda"):
    out = model(x)
    with torch.autocast("cuda", enabled=False):
        out = out.float()
        loss = F.cross_entropy(out, y) + F.softmax(out, -1, dtype=torch.float32).sum()
"""
    assert found("AMP205", text) == []
    assert len(found("AMP205", text.replace("        out = out.float()\n", ""))) == 1


def test_threads_that_compute_nothing_are_fine() -> None:
    text = """\
import threading, torch
def save(state):
    torch.save(state, "last.pt")
with torch.autocast("cuda"):
    threading.Thread(target=save, args=(model.state_dict(),)).start()
    out = model(x)
"""
    assert found("AMP208", text) == []


def test_the_fix_of_backward_moves_it_out_with_what_follows() -> None:
    text = """\
import torch
for x in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).mean()

        loss.backward()  # here
        optimizer.step()
    optimizer.zero_grad()
"""
    [finding] = found("AMP202", text)
    fixed = applied(text, finding.remedy.edits)
    assert "    loss.backward()  # here\n    optimizer.step()\n    optimizer.zero_grad()\n" in fixed
    assert found("AMP202", fixed) == []


OLD = [
    ("from torch.cuda.amp import autocast\nwith autocast(): pass\n",
     'from torch.amp import autocast\nwith autocast("cuda"): pass\n'),
    ("from torch.cuda import amp\nwith amp.autocast(flag, torch.float16): s = amp.GradScaler(2.0)\n",
     'from torch import amp\nwith amp.autocast("cuda", enabled=flag, dtype=torch.float16): '
     's = amp.GradScaler("cuda", 2.0)\n'),
    ("import torch as th\nwith th.cpu.amp.autocast(\n    dtype=d,  # why\n): pass\n",
     'import torch as th\nwith th.amp.autocast(\n    "cpu", dtype=d,  # why\n): pass\n'),
    ("from torch.cuda.amp import custom_fwd\nclass F(A):\n    @staticmethod\n    @custom_fwd\n"
     "    def forward(ctx): pass\n",
     "from torch.amp import custom_fwd\nclass F(A):\n    @staticmethod\n    @custom_fwd(device_type=\"cuda\")\n"
     "    def forward(ctx): pass\n"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), OLD)
def test_deprecated_names_are_fixed_once(old: str, new: str) -> None:
    edits = [e for f in found("AMP210", old) for e in f.remedy.edits]
    assert applied(old, edits) == new
    ast.parse(new)
    assert found("AMP210", new) == []


@pytest.mark.parametrize(
    "text",
    ["try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\nwith autocast(): pass\n",
     "from torch.cuda.amp import autocast\nrun(autocast if amp else None)\n",
     "from torch.cuda.amp import autocast\nwith autocast(*flags): pass\n",
     "import torch\nif isinstance(s, torch.cuda.amp.GradScaler): pass\ns = torch.cuda.amp.GradScaler()\n"],
)  # fmt: skip
def test_uses_that_are_not_plain_get_advice_only(text: str) -> None:
    findings = found("AMP210", text)
    assert findings and not any(f.remedy.edits for f in findings)


def test_a_branch_for_old_versions_is_left_alone() -> None:
    text = 'import torch\nif hasattr(torch, "amp"):\n    c = new("cuda")\nelse:\n    c = torch.cuda.amp.autocast()\n'
    assert found("AMP210", text) == []
