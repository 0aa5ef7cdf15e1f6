"""A small causal transformer over event sequences of unequal length, padded on the right."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Sessions(Dataset):
    """Sessions of 4 to 12 events; the next event follows from the last one."""

    def __init__(self, count, events=20):
        generator = torch.Generator().manual_seed(1)
        self.items = []
        for _ in range(count):
            length = int(torch.randint(4, 13, (1,), generator=generator))
            session = torch.randint(1, events, (length,), generator=generator)
            for i in range(1, length):
                session[i] = 1 + (3 * session[i - 1]) % (events - 1)
            self.items.append(session)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(sessions):
    longest = max(len(session) for session in sessions)
    batch = torch.full((len(sessions), longest), PAD)
    for row, session in zip(batch, sessions):
        row[: len(session)] = session
    return batch


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, causal, padding):
        h = self.norm1(x)
        attended, _ = self.attention(h, h, h, attn_mask=causal, key_padding_mask=padding)
        x = x + attended
        return x + self.mlp(self.norm2(x))


class NextEvent(nn.Module):
    def __init__(self, events=20, width=32, heads=2, depth=2):
        super().__init__()
        self.embedding = nn.Embedding(events, width, padding_idx=PAD)
        self.positions = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, events)

    def forward(self, events):
        length = events.shape[1]
        causal = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = self.embedding(events) + self.positions.weight[:length]
        for block in self.blocks:
            x = block(x, causal, events == PAD)
        return self.head(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Sessions(args.steps * 32), batch_size=32, shuffle=True, collate_fn=collate)
    model = NextEvent()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, events in enumerate(loader, start=1):
        logits = model(events[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), events[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
