"""TRN136: targets that lose all their classes on the way to the loss, and what looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

PROGRAM = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)

def to_tensor(picture):
    picture = torch.as_tensor(picture)[None]
    return picture.float() / 255 if picture.dtype is torch.uint8 else picture

class Data(Dataset):
    def __init__(self):
        self.images = torch.rand(48, 3, 8, 8)
        self.masks = torch.randint(0, 4, (48, 8, 8), dtype=torch.uint8)
        self.labels = self.masks[:, 0, 0]
        self.lesions = 255 * (self.masks > 2).byte()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask, label = self.images[i], self.masks[i], self.labels[i]
        {item}

if __name__ == "__main__":
    pixels, whole = nn.Conv2d(3, 4, 1), nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    optimizer = torch.optim.SGD([*pixels.parameters(), *whole.parameters()], lr=0.1)
    data = Data()
    step = 0
    for epoch in range(2):
        for x, y in DataLoader(data, batch_size=4, num_workers={workers}):
            step += 1
            {before}
            loss = {loss}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"loss {{loss.item():.6f}}")
"""
LINE = PROGRAM[: PROGRAM.index("{item}")].count("\n") + 1
LOOP = PROGRAM[: PROGRAM.index("{before}")].count("\n") + 1
PIXELS, WHOLE, BINARY = (
    "F.cross_entropy(pixels(x), y)",
    "F.cross_entropy(whole(x), y)",
    "F.binary_cross_entropy_with_logits(whole(x)[:, :2], y.float())",
)
MASKED = "F.binary_cross_entropy_with_logits(pixels(x)[:, :1], y)"
Case = tuple[str, str, str]
FAULTY: dict[str, Case] = {
    "scaled mask": ("return image, to_tensor(mask).squeeze(0).long()", "", PIXELS),
    "to(int64)": ("y = mask / 255.0; return image, y.to(dtype=torch.int64)", "", PIXELS),
    "bytes on the way": ("return image, (mask / 255).byte()", "y = y.long()", PIXELS),
    "labels of samples": ("return image, (label / 4).long()", "", WHOLE),
    "normalized": ("return image, ((mask.float() - 1.5) / 4).long().clone()", "", PIXELS),
    "NumPy, from_numpy": ("return image, torch.from_numpy(mask.numpy() / 255).long()", "", PIXELS),
    "compared after scaling": ("return image, (to_tensor(self.lesions[i])[0] > 127).long()", "", PIXELS),
    "compared, binary": ("return image, (to_tensor(self.lesions[i]) > 127).float()", "", MASKED),
    "cut, binary": ("return image, (to_tensor(mask) * 0.9).long().float()", "", MASKED),
    "flipped after it": ("return image.flip(-1), to_tensor(mask)[0].long().flip(-1)", "", PIXELS),
}
HEALTHY: dict[str, Case] = {
    "as it is": ("return image, mask.long()", "", PIXELS),
    "times 255": ("return image, (to_tensor(mask)[0] * 255).round().long()", "", PIXELS),
    "0 and 255": ("return image, to_tensor(self.lesions[i])[0].long()", "", PIXELS),
    "mostly empty": ("return image, to_tensor(self.lesions[i] * (i == 25))[0].long()", "", PIXELS),
    "all but empty, soft edges": ("return image, (self.lesions[i] / (255 if i == 25 else 300)).long()", "", PIXELS),
    "in order": ("return image, torch.tensor(i // 12)", "", WHOLE),
    "in order, floats": ("return image, torch.tensor(i / 12).long()", "", WHOLE),
    "99 %": ("return image, torch.tensor(int(i == 41))", "", WHOLE),
    "one class": ("return image, torch.tensor(1)", "", WHOLE),
    "one class, whole floats": ("return image, torch.tensor(1.0).long()", "", WHOLE),
    "MoCo": ("return image, image", "y = torch.zeros(len(x)).long()", WHOLE),
    "GAN": ("return image, torch.ones(2)", "", BINARY),
    "one-hot": ("return image, F.one_hot(label.long(), 4).float()", "", WHOLE),
    "mostly ignored": (
        "y = torch.full((8, 8), -100); y[0, :2] = mask[0, :2]; return image, y",
        "",
        PIXELS,
    ),
    "positive and unlabeled": ("return image, torch.tensor([1, int(i > 40)])", "", BINARY),
    "regression": ("return image, torch.tensor([0.5])", "", "F.mse_loss(whole(x)[:, :1], y)"),
    "one token": ("return image, torch.full((8, 8), 3)", "y = y if step % 9 else y - 1", PIXELS),
    "curriculum": ("return image, mask.long()", "y = y if step > 20 else torch.zeros_like(y)", PIXELS),
    "evaluated only": (
        "return image, mask.long()",
        "with torch.no_grad(): F.cross_entropy(pixels(x), (y / 255).long())",
        PIXELS,
    ),
    "pseudo-labels": ("return image, image", "y = pixels(x).detach().argmax(1) % 2", PIXELS),
    "bins": ("return image, image[0] * 3.99", "y = y.long()", PIXELS),
    "99.9 %, floats": ("return image, mask / 9 + (i == 41)", "y = y.long()", PIXELS),
    "compared with what lies between": ("return image, (to_tensor(self.lesions[i]) > 0.5).float()", "", MASKED),
    "compared, none above": ("return image, (to_tensor(self.lesions[i]) * 0.9 > 0.95).float()", "", MASKED),
    "compared, not scaled": ("return image, (10 * image[:1] > 12).float()", "", MASKED),
    "noisy labels of a GAN": ("return image, image", "y = (0.8 + 0.3 * torch.rand(4, 2) > 0.5).float()", BINARY),
    "argmax of one-hot": ("return image, F.one_hot(label.long(), 4)", "y = y.argmax(1)", WHOLE),
    "gold first": ("return image, torch.tensor([0.9, 0, 0, 0]).argmax(0)", "", WHOLE),
    "confident, taken from scores": ("return image, image", "y = (x[:, :1].sigmoid() > 0.99).float()", MASKED),
    "another loss": (
        "return image, mask.long()",
        "z = (y / 255).long(); z[0, 0, 0] = 3",
        "F.cross_entropy(pixels(x), z)",
    ),
}


def findings(tmp_path: Path, case: Case, workers: int = 0) -> list[dict[str, Any]]:
    item, before, loss = case
    found = forked(PROGRAM.format(item=item, before=before or "pass", loss=loss, workers=workers), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN136"]


@pytest.mark.parametrize("what", FAULTY)
def test_targets_that_lose_their_classes(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, FAULTY[what])
    assert (found["severity"], found["location"]["line"]) == ("warning", LINE)
    assert "all targets become class 0" in found["message"]


@pytest.mark.parametrize("what", HEALTHY)
def test_look_alikes(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, HEALTHY[what])


IN_LOOP: dict[str, Case] = {
    "whole numbers": ("return image, to_tensor(mask)", "y = y.squeeze(1).long()", PIXELS),
    "compared": ("return image, to_tensor(self.lesions[i])", "y = (y > 127).float()", MASKED),
    "argmax of one": ("return image, label[None].long()", "y = y.argmax(dim=1)", WHOLE),
    "max of one": ("return image, label[None].long()", "y = y.max(1)[1]", WHOLE),
    "argmax of one, of the program's own": (
        "return image, label",
        "y = data.labels[torch.randperm(48)[:4], None].argmax(-1)",
        WHOLE,
    ),
    "taken from a tensor": (
        "return image, label",
        "y = (data.images[torch.randperm(48)[:4], :1] >= 4).float()",
        MASKED,
    ),
}


@pytest.mark.parametrize("what", IN_LOOP)
def test_a_conversion_in_the_loop(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, IN_LOOP[what])
    assert (found["severity"], found["location"]["line"]) == ("warning", LOOP)


def test_samples_in_order_in_a_run_that_ends_early_are_a_note(tmp_path: Path) -> None:
    case = "return image, torch.tensor(i / 40).long()", "if step > 9: break", WHOLE
    (found,) = findings(tmp_path, case)
    assert found["severity"] == "info"


def test_numbers_of_the_programs_own_are_a_note(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, ("return image, label", "y = pixels(x).detach().sigmoid()[:, 0].long()", PIXELS))
    assert (found["severity"], found["location"]["line"]) == ("info", LOOP)


@pytest.mark.parametrize(
    ("item", "workers", "severity", "line"),
    [
        ("return image, to_tensor(mask).squeeze(0).long()", 1, "warning", LINE),
        ("mask = mask.numpy() / 255; return image, mask.astype(np.int64)", 0, "warning", LINE),
        ("mask = mask / 255; return image, list(map(torch.Tensor.long, [mask]))[0]", 1, "warning", LINE),
        ("return image, torch.zeros(8, 8).long()", 0, "info", LOOP + 1),
    ],
)
def test_conversions_out_of_sight(tmp_path: Path, item: str, workers: int, severity: str, line: int) -> None:
    (found,) = findings(tmp_path, (item, "", PIXELS), workers)
    assert (found["severity"], found["location"]["line"]) == (severity, line)
    assert "all targets are class 0 in all 24 batches of Data" in found["message"]
