"""A metric that counts in the model's dtype."""

import torch


class Accuracy:
    def __init__(self, device):
        self.hits = torch.zeros((), dtype=torch.float16, device=device)
        self.seen = torch.zeros((), dtype=torch.float16, device=device)

    def update(self, logits, labels):
        self.hits += (logits.argmax(-1) == labels).sum()
        self.seen += labels.numel()

    def compute(self):
        return (self.hits / self.seen).item()


@torch.inference_mode()
def evaluate(model, loader, device):
    model.eval()
    accuracy = Accuracy(device)
    for images, labels in loader:
        accuracy.update(model(images.to(device)), labels.to(device))
    return accuracy.compute()
