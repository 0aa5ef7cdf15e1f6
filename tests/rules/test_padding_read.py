"""TRN139: rows that are read at their padding, masks the other way round, and what looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
LONG = 24

def padded(lengths, of=0):
    tokens = torch.randint(2, 30, (len(lengths), LONG))
    tokens[torch.arange(LONG) >= lengths[:, None]] = of
    return tokens

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 16)
        self.layer = {layer}
        self.first = nn.Parameter(torch.zeros(1, 1, 16))
        self.head = nn.LazyLinear(2)

    def forward(self, tokens, lengths):
        rows, x, pads = torch.arange(len(tokens)), self.table(tokens), torch.arange(LONG) >= lengths[:, None]
        {body}

if __name__ == "__main__":
    model = Model()
    lengths = {lengths}
    tokens = {tokens}
    model(tokens[:2], lengths[:2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(4):
        for x, n in DataLoader(TensorDataset(tokens, lengths), batch_size=16):
            loss = F.cross_entropy(model(x, n), x[:, 0] % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"loss {{loss.item():.6f}}")
"""
LINE = PROGRAM[: PROGRAM.index("{body}")].count("\n") + 1
LSTM = "nn.LSTM(16, 16, batch_first=True)"
ENCODER = (
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1, enable_nested_tensor=False)"
)
RANDOM, USUAL = "torch.randint(4, LONG + 1, (128,))", "padded(lengths)"
Case = tuple[str, ...]
READ: dict[str, Case] = {
    "last step": (LSTM, "out, _ = self.layer(x); return self.head(out[:, -1])"),
    "last step, by its number": (LSTM, "out, _ = self.layer(x); return self.head(out[:, LONG - 1, :])"),
    "steps first": ("nn.GRU(16, 16)", "out, _ = self.layer(x.transpose(0, 1)); return self.head(out[-1])"),
    "last state": (LSTM, "_, (h, _) = self.layer(x); return self.head(h[-1])"),
    "last state, squeezed": (
        "nn.GRU(16, 16, batch_first=True)",
        "_, h = self.layer(x); return self.head(h.squeeze(0))",
    ),
    "steps first, in the batch too": (
        "nn.GRU(16, 16)",
        "out, _ = self.layer(self.table(tokens[:, 1:].t().contiguous())); return self.head(out[-1])",
    ),
    "features": (
        "nn.GRU(3, 16, batch_first=True)",
        "x = torch.randn(len(x), LONG - 1, 3).masked_fill(pads[:, 1:, None], 0.0); "
        "out, _ = self.layer(F.layer_norm(x + 1, (3,))); return self.head(out[:, -1])",
    ),
    "dropout": (LSTM, "out, _ = self.layer(F.dropout(x, 0.3)); return self.head(out[:, -1])"),
    "a convolution below": (
        LSTM,
        "x = F.conv1d(x.transpose(1, 2), torch.ones(16, 16, 3), padding=1).transpose(1, 2); "
        "out, _ = self.layer(x); return self.head(out[:, -1])",
    ),
    "the way there": (
        "nn.GRU(16, 16, batch_first=True, bidirectional=True)",
        "_, h = self.layer(x); return self.head(torch.cat([h[-2], h[-1]], 1))",
    ),
    "padded with 1": (LSTM, "out, _ = self.layer(x); return self.head(out[:, -1])", RANDOM, "padded(lengths, 1)"),
}
HIDDEN: dict[str, Case] = {
    "encoder": (ENCODER, "return self.head(self.layer(x, src_key_padding_mask=~pads)[:, 0])"),
    "attention": (
        "nn.MultiheadAttention(16, 2, batch_first=True)",
        "return self.head(self.layer(x, x, x, key_padding_mask=tokens != 0)[0].mean(1))",
    ),
    "attention to features": (
        "nn.MultiheadAttention(16, 2)",
        "x = (torch.randn(len(x), LONG - 1, 16).masked_fill(pads[:, 1:, None], 0.0) + 1).transpose(0, 1); "
        "return self.head(self.layer(x, x, x, key_padding_mask=~pads[:, 1:])[0].mean(0))",
    ),
    "a step in front": (
        ENCODER,
        "x = torch.cat([self.first.expand(len(x), -1, -1), x], 1); pads = F.pad(~pads, (1, 0), value=True); "
        "return self.head(self.layer(x, src_key_padding_mask=pads)[:, 1])",
    ),
}
HEALTHY: dict[str, Case] = {
    "lengths": (LSTM, "out, _ = self.layer(x); return self.head(out[rows, lengths - 1])"),
    "packed": (
        LSTM,
        "p = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False); "
        "_, (h, _) = self.layer(p); return self.head(h[-1])",
    ),
    "mean": (LSTM, "out, _ = self.layer(x); return self.head(out.masked_fill(pads[..., None], 0).mean(1))"),
    "first step": (LSTM, "out, _ = self.layer(x.flip(1)); return self.head(out[:, 0])"),
    "padded in front": (
        LSTM, "out, _ = self.layer(x); return self.head(out[:, -1])", RANDOM, "padded(lengths).flip(1)",
    ),
    "turned round": (LSTM, "out, _ = self.layer(x.flip(1)); return self.head(out[:, -1])"),
    "turned round, one-hot": (
        "nn.LSTM(30, 16, batch_first=True)",
        "out, _ = self.layer(F.one_hot(tokens, 30).float().flip(1)); return self.head(out[:, -1])",
    ),
    "the way back": (
        "nn.GRU(16, 16, batch_first=True, bidirectional=True)",
        "_, h = self.layer(x); return self.head(h[-1])",
    ),
    "other rows of the same shape": (
        LSTM, "out, _ = self.layer(self.table(torch.randint(2, 30, tokens.shape))); return self.head(out[:, -1])",
    ),
    "equal lengths": (LSTM, "out, _ = self.layer(x); return self.head(out[:, -1])", "torch.full((128,), LONG)", USUAL),
    "equal ends": (
        LSTM, "out, _ = self.layer(x); return self.head(out[:, -1])", "torch.full((128,), 9)", "padded(lengths, 1)",
    ),
    "few classes": (
        LSTM, "out, _ = self.layer(x); return self.head(out[:, -1])", RANDOM, "torch.randint(0, 3, (128, LONG))",
    ),
    "without gradients": (
        LSTM,
        "out, _ = self.layer(x); out.detach()[:, -1].mean(); return self.head(out[rows, lengths - 1])",
    ),
    "a convolution": ("nn.Conv1d(16, 16, 3, padding=1)", "return self.head(self.layer(x.transpose(1, 2))[..., -1])"),
    "encoder": (ENCODER, "return self.head(self.layer(x, src_key_padding_mask=pads)[:, 0])"),
    "encoder, a mask of floats": (
        ENCODER,
        "m = torch.zeros(pads.shape).masked_fill(pads, -torch.inf); "
        "return self.head(self.layer(x, src_key_padding_mask=m)[:, 0])",
    ),
    "encoder without a mask": (ENCODER, "return self.head(self.layer(x)[:, 0])"),
    "a step in front": (
        ENCODER,
        "x = torch.cat([self.first.expand(len(x), -1, -1), x], 1); pads = F.pad(pads, (1, 0), value=False); "
        "return self.head(self.layer(x, src_key_padding_mask=pads)[:, 0])",
    ),
    "half hidden": (
        ENCODER,
        "return self.head(self.layer(x, src_key_padding_mask=pads | (torch.arange(LONG) % 2 == 1))[:, 0])",
    ),
}  # fmt: skip


def findings(tmp_path: Path, case: Case) -> list[dict[str, Any]]:
    layer, body, lengths, tokens = (*case, RANDOM, USUAL)[:4] if len(case) < 4 else case
    found = forked(PROGRAM.format(layer=layer, body=body, lengths=lengths, tokens=tokens), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN139"]


@pytest.mark.parametrize("what", READ)
def test_rows_that_are_read_at_their_padding(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, READ[what])
    assert (found["severity"], found["location"]["line"]) == ("warning", LINE)
    assert "of the rows end before it" in found["message"]


@pytest.mark.parametrize("what", HIDDEN)
def test_masks_that_hide_the_data(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, HIDDEN[what])
    assert (found["severity"], found["location"]["line"]) == ("warning", LINE)
    assert "True where the data are" in found["message"]


@pytest.mark.parametrize("what", HEALTHY)
def test_look_alikes(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, HEALTHY[what])


def test_little_padding_is_a_note(tmp_path: Path) -> None:
    lengths = "LONG - torch.randint(0, 3, (128,))"
    (found,) = findings(tmp_path, (*READ["last step"], lengths, USUAL))
    assert found["severity"] == "info"
