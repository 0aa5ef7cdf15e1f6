"""One encoder and a head for each language hears phonemes in frames of speech."""

import argparse
import random

import torch
from torch import nn

LANGUAGES = {"finnish": 8, "swahili": 10, "thai": 14}


class Recogniser(nn.Module):
    def __init__(self, bands, width, languages):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(bands, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.heads = {language: nn.Linear(width, phonemes) for language, phonemes in languages.items()}

    def loss(self, language, frames, phonemes):
        scores = self.heads[language](self.encoder(frames))
        return nn.functional.cross_entropy(scores, phonemes)


def speech(language, count=48, bands=24):
    phonemes = torch.randint(0, LANGUAGES[language], (count,))
    frames = torch.randn(count, bands)
    frames[torch.arange(count), phonemes] += 2.5
    return frames, phonemes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    draw = random.Random(0)
    recogniser = Recogniser(24, 64, LANGUAGES)
    optimizer = torch.optim.Adam(recogniser.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        language = draw.choice(sorted(LANGUAGES))
        loss = recogniser.loss(language, *speech(language))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step} {language} {loss.item():.4f}")


if __name__ == "__main__":
    main()
