"""Long-range retrieval: which of two markers stands at the position that is asked for."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LONGEST = 2048


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, max_positions=LONGEST, base=100.0, dtype=torch.float32):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self._set_cos_sin_cache(max_positions, dtype)

    def _set_cos_sin_cache(self, seq_len, dtype):
        t = torch.arange(seq_len, dtype=dtype)
        freqs = torch.outer(t, self.inv_freq.to(dtype))
        emb = torch.cat((freqs, freqs), dim=-1)
        self.register_buffer("cos_cached", emb.cos().to(dtype), persistent=False)
        self.register_buffer("sin_cached", emb.sin().to(dtype), persistent=False)

    def forward(self, x, positions):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * self.cos_cached[positions] + turned * self.sin_cached[positions]


class Retrieval(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(8)
        self.first = torch.randint(1000, LONGEST - 1, (count,), generator=generator)
        self.answer = torch.randint(0, 2, (count,), generator=generator)

    def __len__(self):
        return len(self.answer)

    def __getitem__(self, index):
        first = self.first[index]
        return torch.stack([first, first + 1]), first + self.answer[index], self.answer[index]


class Pointer(nn.Module):
    def __init__(self, width=32, dtype=torch.bfloat16):
        super().__init__()
        self.marker = nn.Parameter(torch.randn(width))
        self.gain = nn.Parameter(torch.tensor(0.1))
        self.rotary = RotaryEmbedding(width, dtype=dtype)
        self.dtype = dtype

    def forward(self, places, asked):
        marker = self.marker.to(self.dtype)
        keys = self.rotary(marker.expand(*places.shape, -1), places)
        query = self.rotary(marker.expand(len(asked), -1), asked)
        return self.gain * (keys.float() @ query.float().unsqueeze(-1)).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Pointer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    right = []
    for places, asked, answer in DataLoader(Retrieval(args.steps * 64), batch_size=64):
        scores = model(places, asked)
        loss = nn.functional.cross_entropy(scores, answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append((scores.argmax(1) == answer).float().mean())
    print(f"loss {loss.item():.3f}, accuracy {torch.stack(right[-20:]).mean():.3f}")


if __name__ == "__main__":
    main()
