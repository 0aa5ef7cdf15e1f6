import torch
from torch import nn


class App:
    def __init__(self, net: nn.Module):
        self.device = torch.device("mps")
        self.net = net.to(self.device).eval()

    @torch.no_grad()
    def infer(self, image: torch.Tensor) -> torch.Tensor:
        image = image.to(self.device)
        with torch.autocast("cuda", dtype=torch.float16):
            out = self.net(image[None])
        return out.float().sigmoid().cpu()[0]


if __name__ == "__main__":
    app = App(nn.Conv2d(3, 1, 3, padding=1))
    print(app.infer(torch.rand(3, 64, 64)).mean())
