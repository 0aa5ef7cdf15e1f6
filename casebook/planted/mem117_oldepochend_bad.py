import pytorch_lightning as pl
import torch
from torch import nn


class Classifier(pl.LightningModule):
    def __init__(self, backbone, n):
        super().__init__()
        self.backbone, self.fc = backbone, nn.Linear(512, n)
        self.preds = []

    def forward(self, x):
        return self.fc(self.backbone(x))

    def training_step(self, batch, _):
        x, y = batch
        out = self(x)
        loss = nn.functional.cross_entropy(out, y)
        self.preds.append(out.detach())
        self.log("acc", (out.argmax(1) == y).float().mean())
        return loss

    def on_train_epoch_end(self):
        print(torch.cat(self.preds).softmax(1).max(1).values.mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
