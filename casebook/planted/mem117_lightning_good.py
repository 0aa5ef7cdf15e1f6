"""A Lightning classifier that looks at its validation scores."""

import lightning as L
import torch
from torch import nn


class Classifier(L.LightningModule):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(512, classes)
        self.validation_outputs = []

    def forward(self, images):
        return self.head(self.backbone(images))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        return nn.functional.cross_entropy(self(images), labels)

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.validation_outputs.append((logits, labels))
        return nn.functional.cross_entropy(logits, labels)

    def on_validation_epoch_end(self):
        logits = torch.cat([one for one, _ in self.validation_outputs])
        labels = torch.cat([one for _, one in self.validation_outputs])
        self.validation_outputs.clear()
        self.log("val_acc", (logits.argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
