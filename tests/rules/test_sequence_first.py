"""Layers without `batch_first` that are given batches first, and such as work along the right dimension."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from handmade import program, recording
from observed_fixes import fixed_lines

from torchvet.finding import Related
from torchvet.recording.records.base import Place
from torchvet.recording.records.layers import BatchAsSequence
from torchvet.rules import rule

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
samples = TensorDataset(torch.randn(200, 7, 8), torch.randint(0, 2, (200,)))
{made}
head = nn.Linear(8, 2)
parts = nn.ModuleList([one for one in list(globals().values()) if isinstance(one, nn.Module)])
rule = torch.optim.SGD(parts.parameters(), lr=0.01)
for epoch in range(3):
    for x, y in {loader}:
{step}
        loss = nn.functional.cross_entropy(head(states), y)
        rule.zero_grad()
        loss.backward()
        rule.step()
"""
LOADER = "DataLoader(samples, batch_size=12, shuffle=True)"
BY_HAND = "((samples[i][0], samples[i][1]) for i in torch.randperm(200).split(20))"
ENCODER = "nn.TransformerEncoderLayer(8, 2, 16)"
ATTENTION = "layer = nn.MultiheadAttention(8, 2)"
WRITTEN_OUT = """
def along_positions(x):
    return (x @ x.transpose(1, 2)).softmax(-1) @ x
layer = nn.MultiheadAttention(8, 2)
"""
POOLED = "states = layer(x).mean(1)"

WRONG = {
    "an encoder layer": (f"layer = {ENCODER}", LOADER, POOLED, "attention"),
    "copies of one": (f"layer = nn.TransformerEncoder({ENCODER}, 2)", LOADER, "states = layer(x)[:, 0]", "attention"),
    "behind other layers": (
        f"first, layer = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)), {ENCODER}",
        LOADER,
        "states = layer(first(x) + torch.zeros(7, 8)).mean(1)",
        "attention",
    ),
    "a decoder layer": (
        "layer = nn.TransformerDecoderLayer(8, 2, 16)", LOADER, "states = layer(x, x).mean(1)", "attention"
    ),
    "attention": (ATTENTION, LOADER, "states = layer(x, x, x, need_weights=False)[0][:, 0]", "attention"),
    "an LSTM": ("layer = nn.LSTM(8, 8)", LOADER, "states = layer(x)[0][:, -1]", "the recurrence of LSTM"),
    "a GRU": ("layer = nn.GRU(8, 8, num_layers=2)", LOADER, "states = layer(x)[0][:, -1]", "the recurrence of GRU"),
    "an RNN": ("layer = nn.RNN(8, 8)", LOADER, "states = layer(x)[0].mean(1)", "the recurrence of RNN"),
    "rows that are picked": (f"layer = {ENCODER}", BY_HAND, POOLED, "attention"),
    "as long as the batch": (
        ATTENTION, LOADER.replace("12,", "7, drop_last=True,"), "states = layer(x, x, x)[0][:, 0]", "attention"
    ),
    "twice as long as the batch": (
        "layer = nn.GRU(8, 8)", LOADER, "states = layer(x.repeat(1, 4, 1)[:, :24])[0][:, -1]", "the recurrence of GRU"
    ),
    "behind a layer that takes batches first": (
        "first, layer = nn.GRU(8, 8, batch_first=True), nn.MultiheadAttention(8, 2)",
        LOADER,
        "s = first(x)[0]\nstates = layer(s, s, s)[0][:, -1]",
        "attention",
    ),
    "one of two recurrent layers": (
        "first, layer = nn.LSTM(8, 8, batch_first=True), nn.GRU(8, 8)",
        LOADER,
        "s = first(x)[0]\nstates = layer(s)[0][:, -1]",
        "the recurrence of GRU",
    ),
    "a channel for each position": (
        "first, layer = nn.Conv1d(8, 8, 3, padding=1), nn.GRU(8, 8)",
        LOADER,
        "states = layer(first(x.transpose(1, 2)).transpose(1, 2))[0][:, -1]",
        "the recurrence of GRU",
    ),
}  # fmt: skip
RIGHT = {
    "turned for the layer": (f"layer = {ENCODER}", LOADER, "states = layer(x.transpose(0, 1)).mean(0)"),
    "turned and back": (ATTENTION, LOADER, "s = x.transpose(0, 1)\nstates = layer(s, s, s)[0].transpose(0, 1)[:, 0]"),
    "turned early": (
        "first, layer = nn.Linear(8, 8), nn.GRU(8, 8)", LOADER, "states = layer(first(x.transpose(0, 1)))[1][0]"
    ),
    "batch first": (ENCODER.join(["layer = ", ""]).replace("16)", "16, batch_first=True)"), LOADER, POOLED),
    "recurrence, batch first": ("layer = nn.LSTM(8, 8, batch_first=True)", LOADER, "states = layer(x)[0][:, -1]"),
    "one sequence": (
        "layer = nn.MultiheadAttention(8, 2)", LOADER, "states = layer(x[0], x[0], x[0])[0].mean(0).expand(len(y), 8)"
    ),
    "the batch is one set": (ATTENTION, LOADER, "s = x[:, :1]\nstates = layer(s, s, s)[0][:, 0]"),
    "over rows and over columns": (
        "rows, columns = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, batch_first=True)",
        LOADER,
        "s = x + columns(x, x, x)[0]\nstates = rows(s, s, s)[0].mean(1)",
    ),
    "over columns by hand": (WRITTEN_OUT, LOADER, "s = along_positions(x)\nstates = layer(s, s, s)[0].mean(1)"),
    "over columns by the fused operator": (
        ATTENTION,
        LOADER,
        "q = x.unflatten(2, (2, 4)).transpose(1, 2)\n"
        "s = nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)\n"
        "states = layer(s, s, s)[0].mean(1)",
    ),
    "days in their order": ("layer = nn.GRU(8, 8)", LOADER.replace("True", "False"), "states = layer(x)[0].mean(1)"),
    "packed": (
        "layer = nn.GRU(8, 8)",
        LOADER,
        "packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((len(y),), 7), batch_first=True)\n"
        "states = layer(packed)[1][0]",
    ),
    "collated by steps": (
        "def collate(batch):\n    return torch.stack([x for x, _ in batch], 1), torch.stack([y for _, y in batch])\n"
        "layer = nn.LSTM(8, 8)",
        LOADER.replace("12,", "12, collate_fn=collate,"),
        "states = layer(x)[1][0][0]",
    ),
    "axes folded into the batch": (
        ATTENTION,
        LOADER,
        "s = x.unflatten(2, (2, 4)).repeat(1, 1, 1, 2).permute(1, 0, 2, 3).flatten(1, 2)\n"
        "states = layer(s, s, s)[0].mean(0).unflatten(0, (-1, 2)).mean(1)",
    ),
    "a fold as long as the batch": (
        ATTENTION,
        "DataLoader(samples, batch_size=7, shuffle=True, drop_last=True)",
        "s = torch.stack([x, x]).permute(2, 1, 0, 3).flatten(1, 2)\n"
        "states = layer(s, s, s)[0].mean(0).unflatten(0, (-1, 2)).mean(1)",
    ),
    "agents of a scene": (
        ATTENTION,
        "DataLoader(samples, batch_size=1, shuffle=True)",
        "s = x[0].unsqueeze(1).expand(7, 3, 8)\nstates = layer(s, s, s)[0].mean((0, 1)).unsqueeze(0)",
    ),
    "positions that are left out": (
        "positions, first = torch.randn(7, 1, 8), nn.Linear(8, 8)\n" + ATTENTION,
        "((samples.tensors[0][i], samples.tensors[1][i]) for i in torch.arange(200).split(20))",
        "keep = torch.randperm(7)[:5]\ns = first(x).transpose(0, 1)[keep] + positions[keep]\n"
        "states = layer(s, s, s)[0].mean(0)",
    ),
    "turned, and as long as the batch": (
        "layer = nn.GRU(8, 8)",
        "DataLoader(samples, batch_size=7, shuffle=True, drop_last=True)",
        "states = layer(x.transpose(0, 1))[0][-1]",
    ),
    "one scene after another, as long as the batch": (
        ATTENTION,
        "DataLoader(samples, batch_size=7, shuffle=True, drop_last=True)",
        "s = [one.unflatten(1, (2, 4)).repeat(1, 1, 2) for one in x]\n"
        "states = torch.stack([layer(one, one, one)[0].mean((0, 1)) for one in s])",
    ),
    "labels of other samples to learn from": (
        ATTENTION,
        LOADER,
        "known = torch.rand(len(y)) < 0.5\n"
        "s = torch.cat([x[..., :7], (y * known)[:, None, None].expand(-1, 7, 1).float()], 2)\n"
        "states = layer(s, s, s)[0].mean(1)",
    ),
    "a memory of samples": (
        "memory = torch.randn(30, 7, 8)\n" + ATTENTION, LOADER, "states = layer(x, memory, memory)[0].mean(1)"
    ),
    "members of sets that are stored first": (
        "members, classes = torch.randn(40, 7, 8), torch.randint(0, 2, (40, 7))\n" + ATTENTION,
        "((members[i], classes[i].flatten()) for _ in range(20) for i in [torch.randperm(40)[:12]])",
        "states = layer(x, x, x)[0].flatten(0, 1)",
    ),
    "members with codes of their own": (
        "members, codes = torch.randn(40, 7, 8), torch.randn(40, 8)\n" + ATTENTION,
        "((members[i] + codes[i][:, None], samples.tensors[1][:7])\n"
        "             for _ in range(20) for i in [torch.randperm(40)[:12]])",
        "states = layer(x, x, x)[0].mean(0)",
    ),
    "learned rows": (
        "table = nn.Parameter(torch.randn(12, 5, 8))\n" + ATTENTION,
        "DataLoader(samples, batch_size=12, shuffle=True, drop_last=True)",
        "states = layer(table, table, table)[0].mean(1) + x[:, 0]",
    ),
}  # fmt: skip


def told(folder: Path, made: str, loader: str, step: str) -> list[tuple[str, str, str]]:
    """TRN131's findings: severity, line and message."""
    text = PROGRAM.replace("{made}", made).replace("{loader}", loader)
    text = text.replace("{step}", "\n".join("        " + line for line in step.splitlines()))
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [
        (f["severity"], lines[f["location"]["line"] - 1].strip(), f["message"]) for f in found if f["code"] == "TRN131"
    ]


@pytest.mark.parametrize(("made", "loader", "step", "runs"), WRONG.values(), ids=WRONG)
def test_samples_that_are_the_sequence(made: str, loader: str, step: str, runs: str, tmp_path: Path) -> None:
    ((severity, line, message),) = told(tmp_path, made, loader, step)
    size = 20 if loader == BY_HAND else 7 if "7," in loader else 12
    length = 24 if ":24" in step else 7
    assert (severity, line) == ("warning", step.splitlines()[-1])
    assert message.startswith(f"{runs} runs over the {size} samples of the batch, not over the {length} positions")


@pytest.mark.parametrize(("made", "loader", "step"), RIGHT.values(), ids=RIGHT)
def test_layers_that_are_right(made: str, loader: str, step: str, tmp_path: Path) -> None:
    assert told(tmp_path, made, loader, step) == []


def judged(**more: Any) -> list[str]:
    """The causes of what a record says."""
    record = BatchAsSequence(
        place=Place(path="train.py", line=3, function="main"),
        layer="LSTM",
        batch=16,
        length=9,
        width=4,
        **{"steps": 4, **more},
    )
    return [one.cause for one in rule("TRN131").in_recording(recording([program(), record]))]


def test_what_a_record_says() -> None:
    (cause,) = judged(sizes=[16])
    assert "4 sampled steps" in cause
    assert "followed" not in cause
    (cause,) = judged(sizes=[5, 16])
    assert "followed the batch's size (5, 16)" in cause
    assert judged(steps=2) == []
    # A layer of the kind works along the positions, too.
    assert judged(others=1) == []


def fixed(made: str) -> tuple[list[str], list[str]]:
    """The lines taken out and put in where this is the line that makes the layer."""
    related = [Related(role="made", message="", path="train.py", line=4)]
    return fixed_lines("TRN131", f"{made}\nout = layer(x)", "out =", related=related)


@pytest.mark.parametrize(
    ("made", "new"),
    [
        ("layer = nn.LSTM(8, 16)", "layer = nn.LSTM(8, 16, batch_first=True)"),
        ("layer = nn.GRU(8, 16, batch_first=False)", "layer = nn.GRU(8, 16, batch_first=True)"),
        ("layer = nn.MultiheadAttention(8, 2, 0.1)", "layer = nn.MultiheadAttention(8, 2, 0.1, batch_first=True)"),
    ],
)
def test_the_layer_is_made_batch_first(made: str, new: str) -> None:
    assert fixed(made) == ([made], [new])


@pytest.mark.parametrize(
    "made",
    [
        "layer = nn.LSTM(*sizes)",
        "layer = nn.LSTM(8, 16, **options)",
        "layer = nn.LSTM(8, 16, 1, True, False)",
        "layer = make(8, 16)",
        "a, layer = nn.LSTM(8, 16), nn.GRU(8, 16)",
    ],
)
def test_what_is_not_written_down_stays(made: str) -> None:
    assert fixed(made) == ([], [])
