"""A Lightning autoencoder with learned input scaling."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn


class ConvAutoencoder(pl.LightningModule):
    def __init__(self, latent: int = 128, lr: float = 1e-3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1),
            nn.GELU(),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.GELU(),
            nn.Flatten(),
            nn.LazyLinear(latent),
        )
        self.expand = nn.Linear(latent, 64 * 16 * 16)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def normalise(self, x):
        return (x - self.mean) / self.std

    def forward(self, x):
        z = self.encoder(self.normalise(x))
        return self.decoder(self.expand(z).view(-1, 64, 16, 16))

    def training_step(self, batch, batch_idx):
        x, _ = batch
        loss = F.mse_loss(self(x), self.normalise(x))
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, _ = batch
        self.log("val/loss", F.mse_loss(self(x), self.normalise(x)), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=50)
        return [opt], [sched]


def main():
    from data_module import ShapesDataModule

    trainer = pl.Trainer(max_epochs=50, accelerator="gpu", devices=1)
    trainer.fit(ConvAutoencoder(), datamodule=ShapesDataModule())


if __name__ == "__main__":
    main()
