import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


class Encoder(nn.Module):
    def __init__(self, words: int, width: int):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(self.table(tokens))[0]


class Tagger(nn.Module):
    def __init__(self, words: int, tags: int, width: int = 32):
        super().__init__()
        self.encoder = Encoder(words, width)
        self.head = nn.Linear(width, tags)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(tokens))


def sentences(count: int, length: int, words: int) -> TensorDataset:
    tokens = torch.randint(1, words, (count, length))
    lengths = torch.randint(length // 2, length + 1, (count, 1))
    inside = torch.arange(length) < lengths
    tags = (tokens % 5).masked_fill(~inside, -100)
    return TensorDataset(tokens * inside, tags, inside.float())


class Trainer:
    def __init__(self, model: nn.Module, device: torch.device):
        self.model = model.to(device)
        self.device = device
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        tokens, tags, inside = (part.to(self.device, non_blocking=True) for part in batch)
        scores = self.model(tokens.to(self.device))
        losses = F.cross_entropy(scores.flatten(0, 1), tags.to(self.device).flatten(), reduction="none")
        return (losses * inside.flatten()).sum() / inside.sum()

    def step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main() -> None:
    steps = arguments().steps
    torch.manual_seed(0)
    data = sentences(20 * steps, 12, 200)
    trainer = Trainer(Tagger(200, 5), torch.device("cuda"))
    for number, batch in enumerate(DataLoader(data, batch_size=20, pin_memory=True)):
        loss = trainer.step(batch)
        if number % 10 == 9:
            print(f"step {number + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
