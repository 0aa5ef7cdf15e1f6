"""Entry point."""

import argparse

import torch

from .data import Reviews
from .model import Encoder, load_pretrained
from .trainer import Trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = load_pretrained(Encoder())
    trainer = Trainer(model, lr=args.lr)
    trainer.fit(Reviews(args.steps * 16), batch_size=16)


if __name__ == "__main__":
    main()
