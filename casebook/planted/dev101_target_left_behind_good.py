"""Text classification with a bag of embeddings."""

import argparse

import torch
from newsdata import NewsDataset, collate_bag
from torch import nn
from torch.utils.data import DataLoader


class TextModel(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_class):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim)
        self.fc = nn.Linear(embed_dim, num_class)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--data", default="ag_news")
    args = parser.parse_args()
    dataset = NewsDataset(args.data)
    device = torch.device("cuda")
    loader = DataLoader(dataset, batch_size=64, shuffle=True, collate_fn=collate_bag, num_workers=2, pin_memory=True)
    model = TextModel(len(dataset.vocab), 64, 4).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    class_weight = torch.tensor([1.0, 0.8, 1.2, 1.0], device=device)
    for epoch in range(args.epochs):
        model.train()
        for text, offsets, label in loader:
            text = text.to(device, non_blocking=True)
            offsets = offsets.to(device, non_blocking=True)
            optimizer.zero_grad()
            predicted = model(text, offsets)
            scaled = predicted * class_weight
            loss = criterion(scaled, label.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), f"text_{epoch}.pt")


if __name__ == "__main__":
    main()
