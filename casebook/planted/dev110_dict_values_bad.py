import torch
from torch import nn


class VideoTrainer:
    def __init__(self, model: nn.Module, loader, device: str = "cuda"):
        self.device = torch.device(device)
        self.model = model
        self.model.to(self.device)
        self.loader = loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self.model.train()
            for clips, labels in self.loader:
                clips.to(self.device, non_blocking=True)
                labels.to(self.device, non_blocking=True)
                loss = nn.functional.cross_entropy(self.model(clips), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            torch.save(self.model.state_dict(), "video.pt")
