"""Targets of language models that are the next but one token, and such as are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from example_runs import forked
from observed_fixes import fixed_lines

from torchvet.finding import About
from torchvet.probes.training.labels.ahead import Ahead, Loss, measured

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
N, B, T, IGNORE = 30, 16, 12, -100
def batch(width=T):
    return torch.randint(0, N - 1, (B, width))
{made}
parts = nn.ModuleList([one for one in list(globals().values()) if isinstance(one, nn.Module)])
trained = [p for p in parts.parameters() if p.requires_grad]
rule = torch.optim.SGD(trained, lr=0.01)
for step in range(24):
    rule.zero_grad()
{step}
    rule.step()
"""
GRU = """
table, layer, head = nn.Embedding(N, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, N)
def model(ids):
    return head(layer(table(ids))[0])
"""
TIME_FIRST = GRU.replace(", batch_first=True", "")
BLOCK = """
table, head = nn.Embedding(N, 16), nn.Linear(16, N)
layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
def model(ids, causal=True):
    mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if causal else None
    return head(layer(table(ids), src_mask=mask, is_causal=causal))
"""
CONVOLUTION = """
table, layer, head = nn.Embedding(N, 16), nn.Conv1d(16, 16, 3), nn.Linear(16, N)
def model(ids):
    x = F.pad(table(ids).transpose(1, 2), (3, 0))[..., :-1]
    return head(layer(x).relu().transpose(1, 2))
"""
PACKED = """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
table, layer, head = nn.Embedding(N, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, N)
lengths = torch.randint(5, T, (B,)).index_fill(0, torch.tensor([0]), T)
def model(ids):
    given = pack_padded_sequence(table(ids), lengths, batch_first=True, enforce_sorted=False)
    return head(pad_packed_sequence(layer(given)[0], batch_first=True)[0])
"""
FROZEN = GRU + "table.requires_grad_(False)"
TWO = "\ntext = batch(T + 1)\nids, labels = text[:, :-1], text[:, 1:]\n"
SHIFTED = "F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten()).backward()"
PLAIN = "F.cross_entropy(model(ids).flatten(0, 1), labels.flatten()).backward()"
PADDED = """
text = torch.where(torch.arange(T + 1) < torch.randint(6, T + 2, (B, 1)), batch(T + 1), N - 1)
ids, labels = text[:, :-1], text[:, 1:]
"""
IGNORING = "labels = labels.masked_fill(labels == N - 1, IGNORE)\n"
AT_ONCE = "sum(F.cross_entropy(h(x)[:, :-k].flatten(0, 1), ids[:, k:].flatten()) for k, h in heads).backward()"
HEADS = GRU + "one, two = nn.Linear(16, N), nn.Linear(16, N)\nheads = [(1, head), (2, one), (3, two)]"

TWICE = {
    "in the data set and the model": (GRU, TWO + SHIFTED),
    "a Transformer": (BLOCK, TWO + SHIFTED.replace("flatten(0, 1)", "reshape(-1, N)")),
    "time first": (
        TIME_FIRST,
        "text = batch(T + 1).T\nF.cross_entropy(model(text[:-1])[:-1].reshape(-1, N), text[2:].reshape(-1)).backward()",
    ),
    "time first, targets by sample": (
        TIME_FIRST,
        "text = batch(T + 1)\n"
        "F.cross_entropy(model(text[:, :-1].T)[:-1].transpose(0, 1).reshape(-1, N), text[:, 2:].flatten()).backward()",
    ),
    "classes second": (
        BLOCK,
        TWO + "F.cross_entropy(model(ids)[:, :-1].transpose(1, 2), labels[:, 1:], label_smoothing=0.1).backward()",
    ),
    "in the loop": (GRU, TWO + "F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), labels[:, 1:].flatten()).backward()"),
    "in the data set only": (
        GRU,
        "text = batch(T + 2)\nids, labels = text[:, :-2], text[:, 2:]\n" + PLAIN,
    ),
    "padding left out": (BLOCK, PADDED + IGNORING + SHIFTED),
    "padding learned": (GRU, PADDED + SHIFTED),
    "packed": (
        PACKED,
        "text = batch(T + 1)\nlabels = text[:, 1:].masked_fill(torch.arange(T) >= lengths[:, None] - 1, IGNORE)\n"
        "ids = text[:, :-1]\n" + SHIFTED,
    ),
    "a mask on the losses": (
        GRU,
        PADDED + "each = F.cross_entropy(model(ids)[:, :-1].transpose(1, 2), labels[:, 1:], reduction='none')\n"
        "(each * (labels[:, 1:] != N - 1)).sum().backward()",
    ),
    "rounded": (
        GRU,
        TWO + "with torch.autocast('cpu'):\n    out = model(ids)\n" + SHIFTED.replace("model(ids)", "out"),
    ),
    "a table that is not trained": (FROZEN, TWO + "labels = F.pad(labels[:, 1:], (0, 1), value=IGNORE)\n" + PLAIN),
}  # fmt: skip
MEANT = {
    "shifted in the data set": (GRU, TWO + PLAIN),
    "shifted in the model": (BLOCK, "ids = labels = batch()\n" + SHIFTED),
    "time first": (
        TIME_FIRST,
        "text = batch(T + 1).T\nF.cross_entropy(model(text[:-1]).reshape(-1, N), text[1:].reshape(-1)).backward()",
    ),
    "padding": (GRU, PADDED + IGNORING + PLAIN),
    "the last tokens masked": (
        GRU,
        PADDED + "each = F.cross_entropy(model(ids).transpose(1, 2), labels, reduction='none')\n"
        "(each * (torch.arange(T) < T - 2)).sum().backward()",
    ),
    "answers only": (
        GRU,
        "ids = batch()\nF.cross_entropy(model(ids)[:, 1:-1].flatten(0, 1), ids[:, 2:].flatten()).backward()",
    ),
    "answers only, and a table that is not trained": (
        FROZEN,
        "ids = batch()\nF.cross_entropy(model(ids)[:, 1:-1].flatten(0, 1), ids[:, 2:].flatten()).backward()",
    ),
    "masked words": (
        BLOCK,
        "text = batch()\nhidden = torch.rand(B, T) < 0.3\nids = text.masked_fill(hidden, N - 1)\n"
        "labels = text.masked_fill(~hidden, IGNORE)\n" + PLAIN.replace("model(ids)", "model(ids, False)"),
    ),
    "noise taken off": (
        BLOCK,
        "labels = batch()\nids = torch.where(torch.rand(B, T) < 0.2, batch(), labels)\n"
        + PLAIN.replace("model(ids)", "model(ids, False)"),
    ),
    "copies": (BLOCK, "ids = labels = batch()\n" + PLAIN.replace("model(ids)", "model(ids, False)")),
    "an echo": (GRU, "text = batch(T + 2)\nids, labels = text[:, 2:], text[:, :-2]\n" + PLAIN),
    "tags": (GRU, "ids = batch()\nlabels = (ids * 7 + 3) % N\n" + PLAIN),
    "a translation": (
        GRU + "\nreader = nn.GRU(16, 16, batch_first=True)",
        "source = batch()\ntext = source.flip(1)\nids = F.pad(text[:, :-1], (1, 0), value=N - 1)\n"
        "out = head(layer(table(ids), reader(table(source))[1])[0])\n"
        "F.cross_entropy(out.flatten(0, 1), text.flatten()).backward()",
    ),
    "several heads": (HEADS, "ids = batch()\nx = layer(table(ids))[0]\n" + AT_ONCE),
    "several heads one by one": (
        HEADS,
        "ids = batch()\nfor k, h in heads:\n    x = layer(table(ids))[0]\n"
        "    F.cross_entropy(h(x)[:, :-k].flatten(0, 1), ids[:, k:].flatten()).backward()",
    ),
    "several heads on what is not trained": (
        HEADS + "\ntable.requires_grad_(False)",
        "ids = batch()\nx = layer(table(ids))[0]\n" + AT_ONCE.replace("k, h in heads", "k, h in heads[1:]"),
    ),
    "periodic": (GRU, "ids = labels = batch(2).repeat(1, T // 2)\n" + PLAIN.replace("labels", "labels.roll(-1, 1)")),
    "constant": (GRU, "ids = batch(1).expand(B, T).contiguous()\nlabels = ids\n" + SHIFTED),
    "a model that does not see its token": (CONVOLUTION, "ids = labels = batch()\n" + PLAIN),
    "in both directions": (
        GRU + "\nback = nn.GRU(16, 16, batch_first=True)",
        "ids = batch()\nx = table(ids)\nleft = head(back(x.flip(1))[0].flip(1))\n"
        "(F.cross_entropy(head(layer(x)[0])[:, :-1].flatten(0, 1), ids[:, 1:].flatten())\n"
        " + F.cross_entropy(left[:, 1:].flatten(0, 1), ids[:, :-1].flatten())).backward()",
    ),
    "pairs of words": (
        "table, head = nn.Embedding(N, 16), nn.Linear(16, N)",
        "text = torch.randint(0, N, (66,))\n"
        "F.cross_entropy(head(table(text[:-2])), text[2:]).backward()",
    ),
}  # fmt: skip


def told(folder: Path, made: str, step: str) -> list[str]:
    """TRN128's lines, with their severity."""
    indented = "\n".join(f"    {line}" for line in step.splitlines())
    text = PROGRAM.replace("{made}", made).replace("{step}", indented)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [f["severity"] + lines[f["location"]["line"] - 1].strip() for f in found if f["code"] == "TRN128"]


@pytest.mark.parametrize(("made", "step"), TWICE.values(), ids=TWICE)
def test_targets_that_are_the_next_but_one_token(made: str, step: str, tmp_path: Path) -> None:
    (found,) = told(tmp_path, made, step)
    assert found.startswith("warning") and "cross_entropy(" in found


@pytest.mark.parametrize(("made", "step"), MEANT.values(), ids=MEANT)
def test_targets_that_are_meant(made: str, step: str, tmp_path: Path) -> None:
    assert told(tmp_path, made, step) == []


PATCHES = """
P = 2
table, layer, head = nn.Embedding(N, 16), nn.GRU(16 * P, 16, batch_first=True), nn.Linear(16, N * P)
def model(ids):
    return head(layer(table(ids).reshape(B, T // P, -1))[0]).reshape(B, T, N)
"""


def test_a_distance_that_has_a_name_may_be_meant(tmp_path: Path) -> None:
    step = "ids = batch()\nF.cross_entropy(model(ids)[:, :-P].flatten(0, 1), ids[:, P:].flatten()).backward()"
    (found,) = told(tmp_path, PATCHES, step)
    assert found.startswith("info")


PLAIN_SLICES = {
    "x = F.cross_entropy(y[:, :-1].reshape(-1, n), t[:, 1:].reshape(-1))": [
        "x = F.cross_entropy(y.reshape(-1, n), t.reshape(-1))"
    ],
    "x = self.loss(y[..., :-1, :].contiguous().view(-1, n), t[..., 1:].contiguous().view(-1))": [
        "x = self.loss(y.contiguous().view(-1, n), t.contiguous().view(-1))"
    ],
    "x = F.cross_entropy(input=y[:-1].flatten(0, 1), target=t[1:].flatten(), ignore_index=0)": [
        "x = F.cross_entropy(input=y.flatten(0, 1), target=t.flatten(), ignore_index=0)"
    ],
}
NOT_SURE = (
    "x = F.cross_entropy(y[:, :-1].view(b * (s - 1), -1), t[:, 1:].flatten())",
    "x = F.cross_entropy(y[:, :-2].flatten(0, 1), t[:, 2:].flatten())",
    "x = F.cross_entropy(y[:, 1:].flatten(0, 1), t[:, :-1].flatten())",
    "x = F.cross_entropy(y[:, :-1].flatten(0, 1), t.flatten())",
    "x = F.cross_entropy(y[:, :-1].flatten(0, 1), t[:, 1:].flatten(), reduction='none')",
    "x = F.cross_entropy(y[:, :-1].flatten(0, 1), t[:, 1:].flatten()) + (m[:, 1:] * y.sum()).mean()",
    "x = model(ids, labels)",
)
TWO_AHEAD = About(variant="2")


@pytest.mark.parametrize("line", PLAIN_SLICES)
def test_slices_are_taken_away(line: str) -> None:
    assert fixed_lines("TRN128", line, "x = ", about=TWO_AHEAD) == ([line], PLAIN_SLICES[line])
    assert fixed_lines("TRN128", line, "x = ", about=About(variant="3")) == ([], [])


@pytest.mark.parametrize("line", NOT_SURE)
def test_what_is_not_plain_is_left(line: str) -> None:
    assert fixed_lines("TRN128", line, "x = ", about=TWO_AHEAD) == ([], [])


def test_slices_that_have_names_are_taken_away() -> None:
    text = """
        def loss_of(logits, labels):
            rows = logits[..., :-1, :].contiguous()
            wanted = labels[..., 1:].contiguous()
            return F.cross_entropy(rows.view(-1, rows.size(-1)), wanted.view(-1))
    """
    _, new = fixed_lines("TRN128", text, "return F.", about=TWO_AHEAD)
    assert [line.strip() for line in new] == ["rows = logits.contiguous()", "wanted = labels.contiguous()"]
    twice = text.replace("    return", "    wanted = wanted.clone()\n            return")
    assert fixed_lines("TRN128", twice, "return F.", about=TWO_AHEAD) == ([], [])


def batches(width: int, *, used: object = True) -> tuple[torch.Tensor, Loss]:
    """Sequences, and the targets of a loss that cuts them to a width, two places ahead of their rows."""
    text = torch.randint(0, 100, (8, 14), generator=torch.Generator().manual_seed(0))
    target = text[:, 2 : 2 + width].flatten()
    return text[:, :12], Loss(None, target, torch.full(target.shape, bool(used)))


def test_how_far_ahead_targets_are() -> None:
    ids, loss = batches(11)
    seen = torch.arange(12).expand(8, 12) < 11
    assert measured(loss, ids, seen) == Ahead(2, 80, 80, True)
    assert measured(loss, ids.T, seen.T) == Ahead(2, 80, 80, True)
    # Rows that were cut from the start: the token before the first target was seen.
    assert measured(loss, ids, torch.ones(8, 12, dtype=torch.bool)) == Ahead(1, 80, 80, True)
    # Samples that differ, and no gradient at all.
    assert measured(loss, ids, torch.arange(12) < torch.arange(4, 12)[:, None]) is None
    assert measured(loss, ids, torch.zeros(8, 12, dtype=torch.bool)) is None
    # Without a gradient nobody knows which rows were cut.
    assert measured(loss, ids, None) is None
    ids, loss = batches(12)
    assert measured(loss, ids, None) == Ahead(2, 80, 80, False)
    ids, loss = batches(12, used=False)
    assert measured(loss, ids, None) is None


def test_targets_that_no_shift_or_several_explain() -> None:
    ids, loss = batches(12)
    everywhere = torch.ones(8, 12, dtype=torch.bool)
    assert measured(Loss(None, loss.target + 1, loss.used), ids, everywhere) is None
    assert measured(Loss(None, loss.target[:-1], loss.used[:-1]), ids, everywhere) is None
    periodic = torch.tensor([[1, 2, 3]]).repeat(8, 4)
    assert measured(Loss(None, periodic.roll(-2, 1).flatten(), loss.used), periodic, everywhere) is None
    assert measured(Loss(None, torch.ones(96), loss.used), torch.ones(8, 12), everywhere) is None
    assert measured(loss, ids[:, :3], everywhere[:, :3]) is None
