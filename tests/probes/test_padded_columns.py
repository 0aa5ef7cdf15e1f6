"""Columns that are padding in each row are counted where words are looked up, unless the model leaves them out."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import PaddedColumns

PROGRAM = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
words, plain, last = nn.Embedding(50, 8, padding_idx=3), nn.Embedding(50, 8), nn.Linear(8, 2)
table, flat, memory = nn.Embedding(50, 8, padding_idx=3), nn.Linear(160, 2), nn.GRU(8, 8, batch_first=True)
model = nn.ModuleList([words, plain, table, last, flat, memory])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lengths = torch.tensor([9, 5, 8, 4])
for step in range(12):
    x = torch.randint(4, 50, (4, 20))
    x[torch.arange(20) >= lengths[:, None]] = 3
    full = x.clone()
    full[0] = 5
    with torch.no_grad():
        words(x)
    {more}
    loss = last({given}).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MADE = {"words(x)": 11, "words(x.flip(1)).mean(1)": 18}
"""The line that makes the numbers of the words that are looked up."""


def seen(folder: Path, given: str, more: str = "pass") -> list[PaddedColumns]:
    forked(PROGRAM.format(given=given, more=more), folder)
    return read(folder / RECORDING).ranks[0].latest(PaddedColumns, "place")


@pytest.mark.parametrize(("given", "leading"), [("words(x)", False), ("words(x.flip(1)).mean(1)", True)])
def test_columns_of_nothing_but_padding_at_the_ends(given: str, leading: bool, tmp_path: Path) -> None:
    (found,) = seen(tmp_path, given)
    assert found.calls > 3 and (found.columns, found.padded) == (20 * found.calls, 11 * found.calls)
    assert (found.width, found.widest, found.padding) == (20, 9, 3)
    assert found.least == pytest.approx(0.55)
    assert found.made is not None and found.made.line == MADE[given]


def test_a_column_of_padding_between_words_is_none_at_the_end(tmp_path: Path) -> None:
    (found,) = seen(tmp_path, "words(x)", "x[:, 4] = 3")
    assert found.widest == 9


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ("words(full)", "pass"),
        ("words(x[:, :9])", "pass"),
        ("plain(x)", "pass"),
        ("words(x[:1])", "pass"),
        ("words(x)[:, 0]", "packed = memory(pack_padded_sequence(words(x), lengths, True, False))"),
        ("flat(table(x).flatten(1)) + plain(x)[:, 0, :1]", "last = nn.Identity()"),
    ],
)
def test_full_rows_packed_texts_and_layers_of_one_width_are_healthy(given: str, more: str, tmp_path: Path) -> None:
    assert not seen(tmp_path, given, more)
