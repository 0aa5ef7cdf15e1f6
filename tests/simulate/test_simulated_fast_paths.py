"""Masked transformer layers that would take their fast path on a GPU are noted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torchvet.simulate.refusals import asked

MASK = [[False, False, True], [True, True, True]]


@pytest.mark.parametrize(
    ("masked", "learns", "noted"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_masked_layers_in_evaluation_are_noted(
    masked: bool, learns: bool, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what in list(asked):
        monkeypatch.delitem(asked, what)
    layer = nn.TransformerEncoderLayer(4, 2, 16, batch_first=True).cuda().eval()
    mask = torch.tensor(MASK, device="cuda") if masked else None
    with torch.set_grad_enabled(learns):
        layer(torch.randn(2, 3, 4, device="cuda"), src_key_padding_mask=mask)
    assert ("the fast path of masked transformer layers in evaluation" in asked) is noted
    asked.clear()
