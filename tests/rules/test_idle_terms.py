"""A term of a loss that reaches another model alone, whose gradients are cleared; and what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
maker, critic = nn.Linear(8, 8), nn.Linear(8, 1)
first = torch.optim.Adam(maker.parameters(), lr=1e-3)
second = torch.optim.Adam(critic.parameters(), lr=1e-3)
def judged(fake, real):
    loss = critic(real).mean() - critic(fake.detach()).mean()
    second.zero_grad()
    loss.backward()
    second.step()
for step in range(60):
    real = torch.randn(16, 8)
    fake = maker(torch.randn(16, 8))
{body}
"""
DETACHED = (
    """
    loss = critic(fake.detach()).mean() + 0.1 * (fake - real).abs().mean()
    first.zero_grad()
    loss.backward()
    first.step()
    judged(fake, real)
""",
    "loss = critic(fake.detach()).mean() + 0.1 * (fake - real).abs().mean()",
)
MEANT = {
    "the generator's own": """
    loss = critic(fake).mean() + 0.1 * (fake - real).abs().mean()
    shown = fake.detach().mean()
    first.zero_grad()
    loss.backward()
    first.step()
    judged(fake, real)
""",
    "one loss for both": """
    loss = critic(fake.detach()).mean() + 0.1 * (fake - real).abs().mean()
    first.zero_grad()
    second.zero_grad()
    loss.backward()
    first.step()
    second.step()
""",
    "the other's gradients are added up and used": """
    loss = critic(fake.detach()).mean() + 0.1 * (fake - real).abs().mean()
    first.zero_grad()
    loss.backward()
    first.step()
    critic(real).mean().backward()
    second.step()
    second.zero_grad()
""",
    "in turn": """
    judged(fake, real)
    first.zero_grad()
    (0.1 * (fake - real).abs().mean() - critic(fake).mean()).backward()
    first.step()
""",
}


def told(body: str, folder: Path) -> list[tuple[str, str]]:
    """The severity of TRN106's findings, and the text of their lines."""
    text = PROGRAM.format(body=body)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [(f["severity"], lines[f["location"]["line"] - 1].strip()) for f in found if f["code"] == "TRN106"]


def test_a_term_for_nothing(tmp_path: Path) -> None:
    body, line = DETACHED
    assert told(body, tmp_path) == [("warning", line)]


@pytest.mark.parametrize("body", MEANT.values(), ids=MEANT)
def test_terms_that_are_used(body: str, tmp_path: Path) -> None:
    assert told(body, tmp_path) == []
