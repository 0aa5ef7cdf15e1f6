"""Style transfer on a Mac."""

import argparse

import torch
import torch.nn.functional as F
import torchvision


def gram(f):
    b, c, h, w = f.shape
    f = f.reshape(b, c, h * w)
    return f @ f.mT / (c * h * w)


def stylise(content, style, steps=300, lr=0.02):
    dev = torch.device("mps")
    vgg = torchvision.models.vgg16(weights="DEFAULT").features[:16].eval().requires_grad_(False).to(dev)
    content, style = content.to(dev), style.to(dev)
    with torch.no_grad():
        target_c, target_s = vgg(content), gram(vgg(style))
    img = content.clone().requires_grad_(True)
    opt = torch.optim.Adam([img], lr=lr)
    for step in range(steps):
        opt.zero_grad()
        feat = vgg(img)
        loss = F.mse_loss(feat, target_c) + 1e4 * F.mse_loss(gram(feat), target_s)
        loss.backward()
        opt.step()
        with torch.no_grad():
            img.clamp_(0, 1)
    return img.detach().cpu()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("content")
    ap.add_argument("style")
    a = ap.parse_args()
    read = lambda p: torchvision.io.read_image(p)[None] / 255
    torchvision.utils.save_image(stylise(read(a.content), read(a.style)), "out.png")
