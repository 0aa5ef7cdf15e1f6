"""Shapes that numbers decide are those of this call's numbers, whatever an earlier call with such arguments gave."""

from __future__ import annotations

import torch
from torch import nn

from torchvet.simulate.dry.start import start


def test_masks_of_one_shape_choose_what_each_of_them_says() -> None:
    start()
    x = torch.arange(8.0, device="cuda")
    for count in (1, 3, 2):
        mask = (torch.arange(8) < count).cuda()
        assert x[mask].tolist() == list(range(count)) and mask.nonzero().shape == (count, 1)
        assert x.masked_select(mask).numel() == count and torch.randn(8, 512, 512, device="cuda")[mask].size(0) == count
        labels = torch.arange(8).remainder(count).cuda()
        assert labels.unique().numel() == count and torch.bincount(labels).numel() == count
        assert torch.repeat_interleave(labels).numel() == int(labels.sum())


def test_sequences_of_one_shape_are_packed_by_their_own_lengths() -> None:
    start()
    model, x = nn.LSTM(8, 16, batch_first=True).cuda(), torch.randn(4, 9, 8, device="cuda")
    for lengths in ([9, 7, 4, 2], [5, 5, 9, 1]):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        assert packed.data.size(0) == sum(lengths)
        out, back = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        assert back.tolist() == lengths and out.shape == (4, 9, 16)


def test_what_unknown_numbers_count_is_not_known() -> None:
    start()
    chosen = torch.randn(512, 512, device="cuda").argmax(1)
    assert torch.bincount(chosen, minlength=10).float().mean().item() == 1.0
