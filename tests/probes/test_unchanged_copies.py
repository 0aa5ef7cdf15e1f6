"""Copies of a trained model that run beside it: whether they ever change, and which lines load weights into them."""

from __future__ import annotations

from pathlib import Path

from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.training import UnchangedCopy

PROGRAM = """
import copy
import torch
from torch import nn
torch.manual_seed(0)
def made():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
online, kept, late, by_hand, unlike = made(), made(), made(), made(), nn.Linear(8, 1)
kept.load_state_dict(online.state_dict())
kept.__class__ = type("Kept", (nn.Sequential,), {})
late.__class__ = type("Late", (nn.Sequential,), {})
by_hand.__class__ = type("ByHand", (nn.Sequential,), {})
rule = torch.optim.SGD(online.parameters(), lr=0.01)
for step in range(160):
    x = torch.randn(16, 8)
    with torch.no_grad():
        wanted = kept(x) + late(x) + by_hand(x) + unlike(x)
    loss = (online(x) - wanted).square().mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
    if step == 100:
        late.load_state_dict(online.state_dict())
        for mine, theirs in zip(by_hand.parameters(), online.parameters()):
            mine.data.copy_(theirs.data)
"""


def test_only_a_copy_that_never_changes_is_one(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    found = {one.model: one for one in read(tmp_path / RECORDING).ranks[0].latest(UnchangedCopy, "id")}
    assert found.keys() == {"Kept", "Late", "ByHand"}
    assert found["Kept"].changes == 0 and found["Kept"].passes > 1 and found["Kept"].last - found["Kept"].first > 50
    # What was written before they changed is taken back.
    assert found["Late"].changes > 0 and found["ByHand"].changes > 0
    text = PROGRAM.splitlines()
    loaded = [text[at.line - 1] for at in found["Kept"].loaded if at.path.endswith("program.py")]
    assert loaded == ["kept.load_state_dict(online.state_dict())"]
