import torch
from torch import nn


class LightningModule(nn.Module):  # stands in for Lightning's: the trainer calls its hooks
    def on_train_epoch_end(self):
        pass


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1000))
        self.outputs = []

    def training_step(self, batch, index):
        features, target = batch
        logits = self.layers(features)
        self.outputs.append(logits.detach())
        return nn.functional.cross_entropy(logits, target)

    def on_train_epoch_end(self):
        print(f"classes {self.outputs[-1].argmax(1).unique().numel()}")


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    loss = model.training_step((torch.randn(64, 64), torch.randint(0, 1000, (64,))), step)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        model.on_train_epoch_end()
        print(f"step {step + 1} loss {loss.item():.4f}")
