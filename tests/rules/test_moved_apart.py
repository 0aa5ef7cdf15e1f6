"""Pictures of a sample that one function flips or crops unlike; and what looks like it."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example_runs import forked
from handmade import program, recording

from torchvet.probes.training.samples import movements
from torchvet.probes.training.samples.apart import MovedApartProbe, _described, _moving, _Sample
from torchvet.probes.training.samples.movements import Movement
from torchvet.recording.records.base import Place
from torchvet.recording.records.reading import MovedApart
from torchvet.rules import rule

PROGRAM = """
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

random.seed(0)
torch.manual_seed(0)

def flip(x):
    return x.flip(-1) if random.random() < 0.5 else x

def crop(x):
    top, left = torch.randint(0, 9, (2,)).tolist()
    return x[:, top:top + 24, left:left + 24]

def noise(x):
    return x.float() * (0.9 + 0.2 * torch.rand(1)) + 0.02 * torch.randn(x.shape)

def turn(x, draw):
    return x.flip(-1) if draw < 0.5 else x

def pack(**given):
    return dict(given, image=flip(given["image"]))

class Data(Dataset):
    def __init__(self):
        self.images = nn.functional.interpolate(torch.rand(32, 3, 8, 8), size=(32, 32), mode="bilinear")
        self.masks = (self.images.mean(1, keepdim=True) > 0.5).float()
        self.depths = self.images[:, :1] ** 2
        self.holes = (nn.functional.interpolate(torch.rand(32, 1, 8, 8), size=(32, 32)) > 0.5).float()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask, depth = self.images[i], self.masks[i], self.depths[i]
        {item}

class Stream(IterableDataset):
    def __init__(self):
        self.data = Data()

    def __iter__(self):
        for image, mask in zip(self.data.images, self.data.masks):
            yield flip(image), flip(mask)

if __name__ == "__main__":
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for batch in DataLoader({data}(), batch_size=8, num_workers={workers}, {options}):
            optimizer.zero_grad()
            loss = model(torch.ones(1, 4)).square().sum() + batch[0].mean()
            loss.backward()
            optimizer.step()
            print(f"loss {{loss.item():.6f}}")
"""
LINE = PROGRAM[: PROGRAM.index("{item}")].count("\n") + 1
APART = {
    "mask": "return flip(image), flip(mask)",
    "depth": "return crop(image[:1]), crop(depth)",
    "changed colors": "return noise(flip(image)), flip(mask)",
    "one line": "return [flip(one) for one in (image, mask)]",
    "dictionaries": "return pack(image=image)['image'], pack(image=mask)['image']",
    "batches of one": "return flip(image[None])[0], flip(mask[None])[0]",
    "one of three": "u = random.random(); return turn(image, u), turn(mask, u), turn(depth, random.random())",
}
TOGETHER = {
    "seed": "random.seed(i); a = flip(image); random.seed(i); return a, flip(mask)",
    "state": "s = torch.get_rng_state(); a = crop(image); torch.set_rng_state(s); return a, crop(mask)",
    "stacked": "both = flip(torch.cat([image, mask])); return both[:3], both[3:]",
    "noise": "return noise(image), noise(mask)",
    "two views": "return flip(image), flip(image)",
    "two noisy views": "return flip(noise(image)), flip(noise(image))",
    "two copies": "return flip(image.clone()), flip(image.clone())",
    "another picture": "return flip(image), flip(self.images[i - 1])",
    "pairs of a class": "return flip(image), flip(self.images[i] * 0.9 if i % 3 else self.images[i - 1])",
    "mixed": "return flip(image) + flip(self.images[i - 1]), mask",
    "label": "return flip(image), i",
    "another one without a mask": "u, v = random.random(), random.random(); "
    "return [turn(x, draw) for x, draw in ((image, u), (mask, u), (self.images[i - 1], v))]",
    "holes": "return flip(image), flip(self.holes[i])",
    "two views with masks": "u, v = random.random(), random.random(); "
    "return turn(image, u), turn(mask, u), turn(image, v), turn(mask, v)",
}


def findings(tmp_path: Path, item: str, workers: int = 0, data: str = "Data") -> list[dict[str, Any]]:
    options = "multiprocessing_context='fork'" if workers else ""
    found = forked(PROGRAM.format(item=item, workers=workers, options=options, data=data), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN133"]


@pytest.mark.parametrize("what", APART)
def test_pictures_that_are_moved_apart(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, APART[what])
    assert found["severity"] == "warning" and found["location"]["line"] == LINE
    assert any(word in found["message"] for word in ("crop", "flip", "turn", "pack"))


def test_workers_leave_what_they_found(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, APART["mask"], workers=2)
    assert found["location"]["line"] == LINE
    assert not list(tmp_path.rglob("samples-*.json"))


def test_samples_that_are_yielded(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, APART["mask"], data="Stream")
    assert found["location"]["function"] == "Stream.__iter__"


def test_workers_that_are_spawned_are_said_to_be_out_of_sight() -> None:
    probe = MovedApartProbe(SimpleNamespace())  # type: ignore[arg-type]
    worker = type("SpawnProcess", (), {})()
    batches = [[torch.rand(4, 8), torch.rand(4)], [torch.rand(4, 3, 8, 8), torch.rand(4, 1, 8, 8)]]
    get = probe._batches(lambda iterator: batches.pop(0))
    get(SimpleNamespace(_workers=[worker]))
    assert not list(probe.unchecked()), "no two pictures"
    get(SimpleNamespace(_workers=[worker]))
    (said,) = probe.unchecked()
    assert "spawned" in said.reason


def test_workers_of_the_default_start_method_that_are_forked_are_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "fork")
    probe = MovedApartProbe(SimpleNamespace())  # type: ignore[arg-type]
    get = probe._batches(lambda iterator: [torch.rand(4, 3, 8, 8), torch.rand(4, 1, 8, 8)])
    get(SimpleNamespace(_workers=[multiprocessing.Process()]))
    assert not list(probe.unchecked())


def test_how_a_function_that_moves_is_described() -> None:
    call: Any = SimpleNamespace(by_name=[("crop", [("left", "3.14159"), ("box", "(1, 2)")])], ways=None)
    assert _described(call) == "put through crop(left=3.142, box=(1, 2))"
    call.by_name = [("hflip", []), ("crop", [("points", "[" + "1, " * 20 + "2]")])]
    assert _described(call) == "put through hflip, crop(points=…)"
    names = ("_rotate_image_pil", "crop_mask", "hflip", "normalize_image")
    assert [_moving(name) for name in names] == ["rotate", "crop", "hflip", ""]


def test_samples_without_two_pictures_are_not_followed() -> None:
    sample = _Sample()
    item = compile("def __getitem__(): return 1", __file__, "exec").co_consts[0]
    for _ in range(2):
        frame: Any = SimpleNamespace(f_code=item, f_locals={}, f_back=None)
        sample.hear(frame, "call", None)
        sample.hear(frame, "return", (torch.rand(3, 8, 8), 1))
    assert sample.alone == 2 and len(sample.found) == 2


@pytest.mark.parametrize("what", TOGETHER)
def test_pictures_that_are_not(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, TOGETHER[what])


@pytest.mark.parametrize(("apart", "both", "told"), [(2, 1, 1), (1, 1, 0), (5, 0, 0)])
def test_it_takes_two_samples(apart: int, both: int, told: int) -> None:
    first, second = Place("/project/data.py", 9, "__getitem__"), Place("/project/data.py", 10, "__getitem__")
    seen = MovedApart(first=first, second=second, function="flip", dataset="Data", samples=16, compared=16)
    seen.apart, seen.both, seen.drew, seen.example = apart, both, "random", ["flipped left to right", "as it was"]
    assert len(list(rule("TRN133").in_recording(recording(program(), seen)))) == told


def test_how_a_picture_was_moved() -> None:
    torch.manual_seed(0)
    picture = torch.nn.functional.interpolate(torch.rand(1, 3, 8, 8), size=(40, 40), mode="bilinear")[0]
    noisy = (picture - 0.5) / 0.2 + 0.05 * torch.randn(picture.shape)
    assert movements.movements(picture, noisy) == [movements.NOWHERE]
    assert movements.movements(picture, noisy.flip(-1)) == [Movement(1, 0, 0)]
    assert movements.movements(picture, picture[:, 3:27, 5:29]) == [Movement(0, 3, 5)]
    assert movements.movements(picture, picture.roll((2, -4), (1, 2))) == [Movement(0, -2, 4)]
    assert movements.movements(picture, torch.ones(3, 40, 40)) is None, "plain"
    assert movements.movements(picture, torch.rand(3, 40, 40)) is None, "another"
    assert movements.picture_of(torch.rand(4)) is None and movements.picture_of("text") is None
