"""Random numbers that loaders' workers draw again, and what looks like it."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example_runs import forked
from handmade import program, recording
from torch.utils.data import DataLoader, TensorDataset

from torchvet.probes.training.samples import generators
from torchvet.probes.training.samples.drawn_again import DrawnAgainProbe
from torchvet.recording.records.base import Place
from torchvet.recording.records.reading import WorkerDraws
from torchvet.rules import rule
from torchvet.source.model import SourceFile

PROGRAM = """
import functools
import random
import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, get_worker_info

torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
SHARED = np.random.default_rng(0)

class Noise:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __call__(self, x):
        return x + float(self.rng.normal())

class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

class Data(Dataset):
    def __init__(self):
        self.x = torch.ones(32, 2)
        self.rng = None
        {init}

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        {item}

class Stream(IterableDataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.epoch = 0

    def __iter__(self):
        info = get_worker_info()
        {stream}

def joined(rng, rows):
    return torch.stack(rows) * float(rng.uniform(0.5, 1))

def start(worker):
    {start}

def loader_of(data, workers={workers}, **options):
    return DataLoader(data, batch_size=4, num_workers=workers, **dict(dict({options}), **options))

def train(model, optimizer, loader, epochs):
    for epoch in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch.float()).square().mean()
            loss.backward()
            optimizer.step()

def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        total = sum(model(batch.float()).mean().item() for batch in loader)
    model.train()

if __name__ == "__main__":
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    {loops}
"""
LOOPS = "train(model, optimizer, loader_of({data}), {epochs})"
PARTS = {
    "init": "pass", "item": "return x", "stream": "yield torch.ones(2)", "start": "pass", "options": "", "workers": 2,
    "data": "Data()", "epochs": 2,
}  # fmt: skip
NUMPY = "self.rng = np.random.default_rng(0)"
NORMAL = "return x + float(self.rng.normal())"
LEGACY = "self.rng = np.random.RandomState(0)"
TORCH = "self.rng = torch.Generator().manual_seed(0)"
OF_TORCH = "return x + torch.randn(2, generator=self.rng)"
GLOBAL = "return x + np.random.randn() + random.random()"
STARTS = "worker_init_fn=start"
KEEPS = "persistent_workers=True"
PER_EPOCH = "\n    ".join((
    "data = {data}", "for epoch in range(2):", "    {before}", "    train(model, optimizer, loader_of(data), 1)",
))  # fmt: skip
SHARE = "range(info.id, 32, 2)"

AGAIN: dict[str, dict[str, Any]] = {
    "numpy": {"init": NUMPY, "item": NORMAL},
    "random": {"init": "self.rng = random.Random(0)", "item": "return x + self.rng.gauss(0, 1)"},
    "many numbers": {"init": LEGACY, "item": "return x + self.rng.normal(size=20_000).mean()"},
    "torch": {"init": TORCH, "item": OF_TORCH},
    "transform": {"init": "self.transform = Compose(Noise(), abs)", "item": "return self.transform(x)"},
    "module": {"item": "return x + float(SHARED.normal())"},
    "collate": {"options": "collate_fn=functools.partial(joined, random.Random(0))"},
    "subset": {"init": NUMPY, "item": NORMAL, "data": "Subset(ConcatDataset([Data(), Data()]), range(32))"},
    "start, all alike": {"item": GLOBAL, "start": "np.random.seed(0)", "options": STARTS},
    "start, by worker": {"item": GLOBAL, "start": "np.random.seed(7 + worker); random.seed(7 + worker)",
                         "options": STARTS},
    "start, by the first word": {"item": GLOBAL, "start": "np.random.seed(np.random.get_state()[1][0] + worker)",
                                 "options": STARTS},
    "kept workers": {"init": NUMPY, "item": NORMAL, "options": KEEPS},
    "one worker": {"init": NUMPY, "item": NORMAL, "workers": 1},
    "a loader for each epoch": {"init": NUMPY, "item": NORMAL, "loops": PER_EPOCH.format(data="Data()", before="pass")},
    "order of a stream": {"data": "Stream()", "stream": "for i in self.rng.permutation(32)[info.id::2]: "
                          "yield torch.full((2,), int(i))"},
    "stream, in both workers": {"data": "Stream()", "stream": "for i in range(32): yield torch.ones(2) * "
                                "self.rng.normal()", "epochs": 1},
    "evaluated in between": {"init": NUMPY, "item": NORMAL, "loops": "\n    ".join((
        "data = loader_of(Data())", "for epoch in range(2):", "    train(model, optimizer, data, 1)",
        "    evaluate(model, loader_of(Data()))"))},
}  # fmt: skip
NEW: dict[str, dict[str, Any]] = {
    "seeded by torch": {"item": GLOBAL},
    "made again in the worker": {"init": NUMPY + "; self.mine = False", "item": "\n        ".join((
        "if not self.mine:", "    self.rng, self.mine = np.random.default_rng(torch.initial_seed()), True", NORMAL))},
    "seeded in the worker": {"init": LEGACY + "; self.mine = False", "item": "\n        ".join((
        "if not self.mine:", "    self.rng.seed(torch.initial_seed() % 2**32); self.mine = True", NORMAL))},
    "start makes it": {"init": NUMPY, "item": NORMAL, "options": STARTS,
                       "start": "get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed())"},
    "start seeds it": {"init": LEGACY, "item": NORMAL, "options": STARTS,
                       "start": "get_worker_info().dataset.rng.seed(torch.initial_seed() % 2**32)"},
    "start seeds what nobody draws from": {"options": STARTS, "start": "np.random.seed(0)"},
    "kept workers by number": {"item": GLOBAL, "options": f"{STARTS}, {KEEPS}", "start": "np.random.seed(worker)"},
    "one kept worker": {"init": NUMPY, "item": NORMAL, "options": KEEPS, "workers": 1},
    "no workers": {"init": NUMPY, "item": NORMAL, "workers": 0},
    "by index, in place": {"init": LEGACY, "item": "self.rng.seed(i); " + NORMAL},
    "by index, twister": {"init": "self.rng = random.Random()",
                          "item": "self.rng.seed(i); return x + self.rng.random()"},
    "by index, of torch": {"init": TORCH, "item": "self.rng.manual_seed(i); " + OF_TORCH},
    "an order, drawn once": {"init": NUMPY + "; self.order = None", "item": "\n        ".join((
        "if self.order is None:", "    self.order = self.rng.permutation(32)", "return self.x[self.order[i]]"))},
    "evaluation": {"item": GLOBAL, "loops": "\n    ".join((
        "class Fixed(Data):", "    def __init__(self):", "        super().__init__()", "        " + NUMPY,
        "    def __getitem__(self, i):", "        return self.x[i] + float(self.rng.normal())",
        "data, test = loader_of(Data()), loader_of(Fixed())", "for epoch in range(2):",
        "    train(model, optimizer, data, 1)", "    evaluate(model, test)"))},
    "seeded for each epoch": {"init": NUMPY, "item": NORMAL, "workers": 1,
                              "loops": PER_EPOCH.format(data="Data()",
                                                        before="data.rng = np.random.default_rng(epoch)")},
    "runs that are compared": {"item": GLOBAL, "loops": PER_EPOCH.format(data="Data()", before="torch.manual_seed(0)")},
    "a data set for each epoch": {"init": NUMPY, "item": NORMAL, "workers": 1, "loops":
                                  "for _ in range(2): train(model, optimizer, loader_of(Data()), 1)"},
    "a share of one order": {"data": "Stream()", "epochs": 1, "stream": "for i in self.rng.permutation(32)"
                             "[info.id::2]: yield torch.full((2,), int(i))"},
    "each draws for all": {"data": "Stream()", "epochs": 1, "stream": "\n        ".join((
        "for i in range(32):", "    x = torch.ones(2) * self.rng.normal()", "    if i % 2 == info.id:",
        "        yield x"))},
}  # fmt: skip


def findings(tmp_path: Path, parts: dict[str, Any]) -> list[dict[str, Any]]:
    pytest.importorskip("numpy")
    given = {**PARTS, **parts}
    given.setdefault("loops", LOOPS.format(**given))
    given["options"] = ", ".join(
        filter(None, (given["options"], "multiprocessing_context='fork'" * (given["workers"] > 0)))
    )
    found = forked(PROGRAM.format(**given), tmp_path)
    assert found is not None
    assert not list(tmp_path.rglob("draws-*.json"))
    return [f for f in found if f["code"] == "TRN121"]


@pytest.mark.parametrize("what", AGAIN)
def test_numbers_that_workers_draw_again(tmp_path: Path, what: str) -> None:
    found = findings(tmp_path, AGAIN[what])
    assert [f["severity"] for f in found] == ["warning"]
    assert found[0]["location"] is not None


@pytest.mark.parametrize("what", NEW)
def test_numbers_that_are_new(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, NEW[what])


def draws(worker: int, epoch: int, **given: Any) -> WorkerDraws:
    place = Place("/project/train.py", 9, "Data.__init__")
    return WorkerDraws(
        loader=0, epoch=epoch, worker=worker, workers=2, name="Data.rng", kept=True, owner="Data", attribute="rng",
        keeper=place, made=place, seed=epoch, trained=True, **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("states", "drew", "items", "told"),
    [
        (["abc", "abc"], [[True, True], [True, True]], ["xy", "xy"], True),
        (["abc", "abd"], [[True, True], [True, True]], ["xy", "zw"], True),
        (["abc", "bcd"], [[True, True], [True, True]], ["xy", "xy"], False),
        (["abb", "abb"], [[True, False], [True, False]], ["xy", "zw"], False),
        (["abc", "abc"], [[None, None], [None, None]], ["xy", "zw"], True),
        (["abc", "abc"], [[None, True], [None, True]], ["xy", "xy"], False),
        (["ab", "ab"], [[True], [True]], ["x", "x"], False),
    ],
)
def test_what_shows_that_numbers_are_drawn_again(
    states: list[str], drew: list[list[bool | None]], items: list[str], told: bool
) -> None:
    """By worker: letters that stand for states, and for the samples that were asked for."""
    both = [draws(k, 0, states=list(states[k]), drew=drew[k], items=list(items[k])) for k in range(2)]
    assert bool(list(rule("TRN121").in_recording(recording(program(), *both)))) == told


def test_runs_whose_seed_is_the_same_are_no_epochs() -> None:
    given: dict[str, Any] = {"states": list("abc"), "drew": [True, True], "items": list("xy")}
    epochs = [draws(0, 0, **given), draws(0, 1, **given)]
    assert list(rule("TRN121").in_recording(recording(program(), *epochs)))
    epochs[1].seed = 0
    assert not list(rule("TRN121").in_recording(recording(program(), *epochs)))


def test_whether_a_twister_has_drawn_is_replayed() -> None:
    generator = random.Random(0)
    before = generators.state_of(generator)
    assert before is not None
    for numbers, expected in ((0, False), (1, True), (5_000, True), (3_000_000, None)):
        generator.setstate(random.Random(0).getstate())
        if numbers:
            generator.getrandbits(32 * numbers)
        after = generators.state_of(generator)
        assert after is not None and generators.drew(before, after) is expected
    generator.seed(1)
    generator.random()
    after = generators.state_of(generator)
    assert after is not None and generators.drew(before, after) is None


def test_generators_are_found_by_their_names() -> None:
    rng = random.Random(0)
    held = SimpleNamespace(inner=[{"rng": rng}], system=random.SystemRandom(), same=rng, torch=torch.Generator())
    assert [one.name for one in generators.kept_by(held)] == [
        "SimpleNamespace.same", "SimpleNamespace.torch",
    ]  # fmt: skip
    held.__dict__.pop("same")
    assert "SimpleNamespace.inner[0]['rng']" in [one.name for one in generators.kept_by(held)]


def test_workers_that_are_spawned_are_said_to_be_out_of_sight() -> None:
    host = SimpleNamespace(options=SimpleNamespace(directory=""))
    probe = DrawnAgainProbe(host)  # type: ignore[arg-type]
    dataset: Any = TensorDataset(torch.ones(4))
    loader = DataLoader(dataset, num_workers=2, multiprocessing_context="spawn")
    probe._begins(None, loader)
    assert not list(probe.unchecked())
    dataset.rng = torch.Generator()
    probe._begins(None, loader)
    (said,) = probe.unchecked()
    assert "spawned" in said.reason


HEAD = """
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __init__(self, seed=0):
        self.rng = {rng}

    def __getitem__(self, i):
        {item}

{start}

def train(args, model):
    loader = DataLoader(Data(), 4, num_workers={workers}, {options})
    for x in loader:
        model(x).mean().backward()
"""
TEXTS: list[tuple[str, dict[str, str]]] = [
    ("warning", {}),
    ("warning", {"rng": "random.Random(seed)", "item": "return self.rng.random()"}),
    ("warning", {"rng": "np.random.RandomState()"}),
    ("warning", {"rng": "torch.Generator().manual_seed(seed)", "item": "return torch.randn(2, generator=self.rng)"}),
    ("warning", {"item": "return self._noise()\n\n    def _noise(self):\n        return self.rng.normal()"}),
    ("warning", {"options": "persistent_workers=True"}),
    ("info", {"workers": "args.workers"}),
    ("", {"workers": "0"}),
    ("", {"workers": "1", "options": "persistent_workers=True"}),
    ("", {"rng": "seed"}),
    ("", {"rng": "np.arange(seed)"}),
    ("", {"item": "return i"}),
    ("", {"item": "self.rng = np.random.default_rng(i); return self.rng.normal()"}),
    ("", {"rng": "random.Random()", "item": "self.rng.seed(i); return self.rng.random()"}),
    ("", {"item": "return np.random.default_rng(i).normal()"}),
    ("", {"options": "worker_init_fn=start", "start": "from elsewhere import start"}),
    ("", {"start": "def start(worker):\n    torch.utils.data.get_worker_info().dataset.rng = None"}),
    ("", {"item": "return random.random()"}),
]
SEEDS: list[tuple[str, str, str]] = [
    ("warning", "np.random.seed(0)", ""),
    ("warning", "random.seed(args.seed)", ""),
    ("warning", "torch.manual_seed(SEED)", "persistent_workers=True"),
    ("info", "np.random.seed(worker)", ""),
    ("info", "np.random.seed(SEED + worker)", ""),
    ("info", "np.random.seed(np.random.get_state()[1][0] + worker)", ""),
    ("", "np.random.seed(worker)", "persistent_workers=True"),
    ("", "np.random.seed(torch.initial_seed() % 2**32)", ""),
    ("", "np.random.seed(EPOCH * 100 + worker)", ""),
    ("", "np.random.seed()", ""),
    ("", "np.random.seed(int(time.time()) + worker)", ""),
    ("", "worker.seed(0)", ""),
]


def suspected(parts: dict[str, str]) -> list[str]:
    given = {"rng": "np.random.default_rng(seed)", "item": "return self.rng.normal()", "start": "", "workers": "4"}
    text = HEAD.format(**{**given, "options": "", **parts})
    return [f.severity for f in rule("TRN121").in_source(SourceFile("train.py", text))]


@pytest.mark.parametrize(("severity", "parts"), TEXTS)
def test_generators_that_data_sets_keep(severity: str, parts: dict[str, str]) -> None:
    assert suspected(parts) == ([severity] if severity else [])


@pytest.mark.parametrize(("severity", "seed", "options"), SEEDS)
@pytest.mark.parametrize("is_lambda", [False, True])
def test_seeds_that_workers_get(severity: str, seed: str, options: str, is_lambda: bool) -> None:
    start = "" if is_lambda else f"def start(worker):\n    {seed}"
    given = f"worker_init_fn={f'lambda worker: {seed}' if is_lambda else 'start'}, {options}"
    parts = {"rng": "seed", "item": "return i", "start": start, "options": given}
    assert suspected(parts) == ([severity] if severity else [])


def test_loaders_for_evaluation_may_have_the_same_numbers() -> None:
    text = HEAD.format(rng="random.Random(0)", item="return self.rng.random()", start="", workers=4, options="")
    for name in ("test_loader", "val_data"):
        assert not list(rule("TRN121").in_source(SourceFile("train.py", text.replace("loader =", f"{name} ="))))
