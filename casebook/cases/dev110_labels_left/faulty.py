import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


def reviews(steps: int, words: int, length: int) -> Iterator[dict[str, torch.Tensor]]:
    for _ in range(steps):
        tokens = torch.randint(0, words, (24, length))
        yield {"tokens": tokens, "stars": tokens.float().mean(1).sub(words / 2).div(words / 10).round().clamp(-2, 2)}


class Critic(nn.Module):
    def __init__(self, words: int, width: int = 48):
        super().__init__()
        self.table = nn.EmbeddingBag(words, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(tokens)).squeeze(1)


def to_device(batch: dict[str, torch.Tensor], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = batch["tokens"].to(device, non_blocking=True)
    stars = batch["stars"]
    stars.to(device, non_blocking=True)
    return tokens, stars


def main() -> None:
    steps = arguments().steps
    torch.manual_seed(0)
    device = torch.device("cuda")
    model = Critic(500)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for number, batch in enumerate(reviews(steps, 500, 16)):
        tokens, stars = to_device(batch, device)
        loss = F.smooth_l1_loss(model(tokens), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 9:
            print(f"step {number + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
