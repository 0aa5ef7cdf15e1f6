import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class LitClassifier(L.LightningModule):
    def __init__(self, width=256, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.register_buffer("centre", torch.full((784,), 0.1307), persistent=False)
        self.layers = nn.ModuleList([nn.Linear(784, width), nn.Linear(width, width)])
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        h = images.flatten(1) - self.centre
        for layer in self.layers:
            h = F.relu(layer(h))
        return self.head(h)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("accuracy", (self(images).argmax(-1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    train = DataLoader(datasets.MNIST("data", transform=transforms.ToTensor(), download=True), 128, num_workers=2)
    trainer = L.Trainer(max_epochs=2, accelerator="auto")
    trainer.fit(LitClassifier(), train)
