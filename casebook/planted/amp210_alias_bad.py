"""Super-resolution inference, tile by tile."""

import argparse
from functools import partial

import torch
from torch import nn
from torch.cuda import amp
from torchvision.io import read_image
from torchvision.utils import save_image


class ESPCN(nn.Module):
    def __init__(self, factor=3):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 3 * factor**2, 3, padding=1)
        self.up = nn.PixelShuffle(factor)

    def forward(self, x):
        return self.up(self.conv3(self.conv2(self.conv1(x).tanh()).tanh()))


half = partial(amp.autocast, dtype=torch.float16)


@torch.no_grad()
def upscale(net, image, tile=128, factor=3):
    c, h, w = image.shape
    out = torch.zeros(c, h * factor, w * factor)
    for top in range(0, h, tile):
        for left in range(0, w, tile):
            patch = image[:, top : top + tile, left : left + tile].cuda()
            with half():
                big = net(patch[None])[0]
            t, l = top * factor, left * factor
            out[:, t : t + big.shape[1], l : l + big.shape[2]] = big.float().cpu()
    return out.clamp_(0, 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("src")
    p.add_argument("dst")
    args = p.parse_args()
    net = ESPCN().cuda().eval()
    save_image(upscale(net, read_image(args.src) / 255), args.dst)


if __name__ == "__main__":
    main()
