"""A dry run takes the memory of a real-valued one, to the byte: the proof that its sizes are right."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

F = nn.functional


def mlp() -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(256), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        x, y = torch.randn(64, 64), torch.randint(0, 10, (64,))
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()


def convolutions() -> None:
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    head = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(body, head, nn.Linear(32, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        x, y = torch.randn(4, 3, 32, 32).cuda(), torch.randint(0, 10, (4,), device="cuda")
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        (model(x).argmax(1) == y).float().mean().item()


def transformer_under_autocast() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).cuda()
    embed, head = nn.Embedding(100, 64).cuda(), nn.Linear(64, 100).cuda()
    parameters = [*model.parameters(), *embed.parameters(), *head.parameters()]
    optimizer, scaler = torch.optim.AdamW(parameters), torch.amp.GradScaler("cuda")
    for _ in range(2):
        x = torch.randint(0, 100, (4, 32), device="cuda")
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(head(model(embed(x))).flatten(0, 1), x.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def lstm() -> None:
    model, head = nn.LSTM(32, 64, 2, batch_first=True, dropout=0.2).cuda(), nn.Linear(64, 5).cuda()
    optimizer = torch.optim.RMSprop([*model.parameters(), *head.parameters()])
    for _ in range(2):
        out, _ = model(torch.randn(4, 6, 32, device="cuda"))
        loss = F.cross_entropy(head(out[:, -1]), torch.randint(0, 5, (4,), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def checkpointed() -> None:
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(3)]).cuda()
    optimizer = torch.optim.Adam(blocks.parameters(), fused=True)
    for _ in range(2):
        x = torch.randn(512, 64, device="cuda", requires_grad=True)
        for number, block in enumerate(blocks):
            x = checkpoint(block, x, use_reentrant=bool(number % 2))
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()


def attention() -> None:
    query, key, value = (torch.randn(2, 4, 64, 32, device="cuda", requires_grad=True) for _ in range(3))
    with torch.autocast("cuda", torch.bfloat16):
        halves = [t.bfloat16() for t in (query, key, value)]
        F.scaled_dot_product_attention(*halves, is_causal=True).float().sum().backward()
    mask = torch.ones(64, 64, device="cuda", dtype=torch.bool).tril()
    F.scaled_dot_product_attention(query, key, value, attn_mask=mask).sum().backward()


def attention_of_every_kind() -> None:
    bias = torch.randn(1, 4, 50, 50, device="cuda").bfloat16().requires_grad_()
    hidden = torch.ones(2, 1, 1, 50, device="cuda", dtype=torch.bool)
    for width, groups, mask, transposed in (
        (44, 4, None, True), (44, 4, None, False), (32, 2, None, True), (64, 4, bias, True), (136, 4, hidden, False),
    ):  # fmt: skip
        shapes = [(2, 50, 4, width), (2, 50, groups, width), (2, 50, groups, width)]
        if not transposed:
            shapes = [(b, h, t, w) for b, t, h, w in shapes]
        leaves = [torch.randn(s, device="cuda").bfloat16().requires_grad_() for s in shapes]
        given = [t.transpose(1, 2) if transposed else t for t in leaves]
        out = F.scaled_dot_product_attention(*given, mask, dropout_p=0.1, enable_gqa=groups < 4)
        out.transpose(1, 2).reshape(2, 50, -1).float().sum().backward()
        with torch.no_grad():
            F.scaled_dot_product_attention(*given, mask, enable_gqa=groups < 4)


def norms_and_tables() -> None:
    model = nn.Sequential(nn.Embedding(100, 32), nn.RMSNorm(32), nn.Linear(32, 32), nn.LayerNorm(32), nn.LogSigmoid())
    model.cuda().bfloat16()
    model(torch.randint(0, 100, (4000,), device="cuda")).float().sum().backward()


def packed_sequences() -> None:
    model = nn.GRU(8, 16, batch_first=True).cuda()
    x = torch.randn(4, 9, 8, device="cuda")
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([9, 7, 4, 2]), batch_first=True)
    out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
    out.sum().backward()


def masks_of_the_batch() -> None:
    """Sizes that the batch's own numbers decide are exact: those come from the program."""
    x = torch.randn(8, 100, device="cuda", requires_grad=True)
    lengths = torch.tensor([10, 100, 3, 50, 60, 70, 80, 90])
    mask = (torch.arange(100)[None] < lengths[:, None]).cuda()
    x[mask].sum().backward()
    assert int(mask.sum()) == 463 and mask.nonzero().shape == (463, 2) and x.masked_select(mask).numel() == 463
    assert lengths.cuda().tolist() == lengths.tolist()


PROGRAMS = [mlp, convolutions, transformer_under_autocast, lstm, checkpointed, attention, attention_of_every_kind,
            norms_and_tables, packed_sequences, masks_of_the_batch]  # fmt: skip


def peaks(program: Callable[[], None]) -> tuple[int, ...]:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    program()
    return (
        torch.cuda.max_memory_allocated(),
        torch.cuda.max_memory_reserved(),
        torch.cuda.memory_stats()["num_alloc_retries"],
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_peaks_are_those_of_real_numbers(program: Callable[[], None]) -> None:
    from torchvet.simulate.dry.start import start

    with_numbers = peaks(program)
    start()
    assert peaks(program) == with_numbers
