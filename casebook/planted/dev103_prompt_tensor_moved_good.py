"""Textual inversion of a style: one embedding vector is learned, the rest is frozen."""

import torch
import torch.nn.functional as F
from clip_like import load_model, load_style_images
from torch import optim
from tqdm import trange


class StyleLearner:
    def __init__(self, name, lr=5e-3):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = load_model(name).to(self.device).eval()
        self.model.requires_grad_(False)
        self.vector = torch.randn(1, 768, device=self.device, requires_grad=True)
        self.optimizer = optim.Adam([self.vector], lr=lr)

    def loss(self, images):
        with torch.no_grad():
            wanted = F.normalize(self.model.encode_image(images), dim=-1)
        text = F.normalize(self.model.encode_embedding(self.vector), dim=-1)
        return 1 - (wanted @ text.t()).mean()

    def fit(self, images, steps=2000):
        images = images.to(self.device)
        bar = trange(steps)
        for step in bar:
            self.optimizer.zero_grad()
            loss = self.loss(images)
            loss.backward()
            self.optimizer.step()
            if step % 100 == 0:
                bar.set_description(f"loss {loss.item():.4f}")
        return self.vector.detach().cpu()


def main(name="ViT-L", folder="style"):
    learner = StyleLearner(name)
    vector = learner.fit(load_style_images(folder))
    torch.save({"vector": vector, "model": name}, "style.pt")


if __name__ == "__main__":
    main()
