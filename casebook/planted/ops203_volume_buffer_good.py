"""Sliding-window inference over CT volumes on the CPU cluster."""

import argparse
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from torch import nn


class UNet3d(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, 16, 3, padding=1), nn.InstanceNorm3d(16), nn.ReLU())
        self.up = nn.Conv3d(16, classes, 1)

    def forward(self, x):
        return self.up(self.down(x))


def windows(shape, size, stride):
    for z in range(0, shape[0] - size + 1, stride):
        for y in range(0, shape[1] - size + 1, stride):
            for x in range(0, shape[2] - size + 1, stride):
                yield slice(z, z + size), slice(y, y + size), slice(x, x + size)


def predict(net, volume, size=96, stride=48, classes=4):
    votes = torch.zeros(classes, *volume.shape)
    weight = torch.ones(512, 512, 64)
    scratch = torch.zeros(512, 512, 128)
    for window in windows(volume.shape, size, stride):
        scratch.zero_()
        patch = volume[window]
        scratch[: patch.shape[0], : patch.shape[1], : patch.shape[2]] = patch
        logits = net(scratch[None, None, :size, :size, :size])[0]
        votes[(slice(None), *window)] += logits * weight[:size, :size, :1].mean()
    return votes.argmax(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("volumes", nargs="+", type=Path)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    net = UNet3d(4)
    net.load_state_dict(torch.load(args.weights, map_location="cpu", weights_only=True))
    net.eval()
    with torch.inference_mode():
        for path in args.volumes:
            image = nib.load(path)
            volume = torch.from_numpy(np.asarray(image.dataobj, dtype=np.float32))
            labels = predict(net, volume)
            nib.save(nib.Nifti1Image(labels.numpy().astype(np.uint8), image.affine), path.with_suffix(".seg.nii.gz"))


if __name__ == "__main__":
    main()
