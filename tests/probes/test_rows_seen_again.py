"""Frozen parts whose rows come again, epoch after epoch, are found; what only looks like them is not."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
import torch
from example_runs import RECORDING, forked
from torch import nn

from torchvet.probes.internals.module_calls import ModuleCalls
from torchvet.probes.time.row_digests import Rows, Unknown, digests_of, results_of
from torchvet.recording import read
from torchvet.recording.records.timing import RowsSeenAgain

PROGRAM = """
import copy
import torch
from torch import nn
from torchvet.probes.time import rows_seen_again
# However slow the machine.
rows_seen_again._SECONDS, rows_seen_again._SHARE = {seconds}, 0.0
torch.manual_seed(0)
N, WIDTH = 48, 16
data, texts, pictures = torch.randn(N, WIDTH), torch.randint(100, (N, 12)), torch.randn(N, 3, 8, 8)
head = nn.Linear(WIDTH, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)

class Part(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers or (nn.Linear(WIDTH, WIDTH), nn.Tanh()))

    def forward(self, x, shift=None, scale=1.0):
        out = self.layers(x) * scale
        return out if shift is None else out + shift

class Counting(Part):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x) * self.calls

def part(name, *layers, kind=Part):
    made = kind(*layers).requires_grad_(False).eval()
    made.__class__ = type(name, (kind,), {})
    return made

def frozen(name, *layers, kind=Part):
    one = part(name, *layers, kind=kind)
    def used(rows, step):
        with torch.no_grad():
            return one(data[rows])
    return used

{parts}

used = [value for name, value in list(globals().items()) if name.startswith("case_")]
for epoch in range({epochs}):
    for rows in torch.randperm(N).split(12):
        loss = sum(head(case(rows, epoch)).mean() for case in used)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def seen(folder: Path, parts: dict[str, str], epochs: int = 8, seconds: float = 60.0) -> dict[str, RowsSeenAgain]:
    """What is found of parts, all of one program, by the name of their class."""
    text = "\n".join(f"def make_{name}():\n    {body}\ncase_{name} = make_{name}()" for name, body in parts.items())
    forked(PROGRAM.replace("{parts}", text).replace("{epochs}", str(epochs)).replace("{seconds}", str(seconds)), folder)
    return {one.module: one for one in read(folder / RECORDING).ranks[0].latest(RowsSeenAgain, "id") if one.rows}


AGAIN = {
    "indexed": "return frozen('indexed')",
    "no_graph": "one = part('no_graph'); return lambda rows, step: one(data[rows])",
    "inference": """one = part('inference')
    def used(rows, step):
        with torch.inference_mode(): out = one(data[rows])
        return out.clone()
    return used""",
    "by_keyword": """one = part('by_keyword')
    return lambda rows, step: one(x=data[rows], shift=data[rows] * 2, scale=0.5)""",
    "texts": "one = part('texts', nn.Embedding(100, WIDTH)); return lambda rows, step: one(texts[rows]).mean(1)",
    "pictures": """one = part('pictures', nn.Conv2d(3, 1, 3), nn.Flatten(), nn.Linear(36, WIDTH))
    return lambda rows, step: one(pictures[rows])""",
    "in_half": """one = part('in_half').bfloat16()
    return lambda rows, step: one(data[rows].bfloat16()).float()""",
    "wants_them": """one = part('wants_them').requires_grad_(True)
    def used(rows, step):
        with torch.no_grad(): return one(data[rows])
    return used""",
}
OTHERS = {
    "augmented": "one = part('augmented'); return lambda rows, step: one(data[rows] + 0.1 * torch.randn(12, WIDTH))",
    "dropped_out": """one = part('dropped_out', nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)).train()
    return lambda rows, step: one(data[rows])""",
    "of_the_batch": """one = part('of_the_batch', nn.BatchNorm1d(WIDTH, track_running_stats=False))
    return lambda rows, step: one(data[rows])""",
    "fresh": "one = part('fresh'); return lambda rows, step: one(torch.randn(12, WIDTH))",
    "average": """one = part('average', nn.Linear(WIDTH, 1))
    def used(rows, step):
        for mine, theirs in zip(one.parameters(), head.parameters()):
            mine.data.lerp_(theirs.data, 1e-7)
        return one(data[rows]) * torch.ones(WIDTH)
    return used""",
    "target": """one = part('target', nn.Linear(WIDTH, 1))
    def used(rows, step):
        if step % 2: one.layers[0].load_state_dict(head.state_dict())
        return one(data[rows]) * torch.ones(WIDTH)
    return used""",
    "late": """one = part('late', nn.Linear(WIDTH, 1))
    def used(rows, step):
        if step == 7: one.layers[0].load_state_dict(head.state_dict())
        return one(data[rows]) * torch.ones(WIDTH)
    return used""",
    "stateful": "one = part('stateful', kind=Counting); return lambda rows, step: one(data[rows])",
    "learns_through": """one = part('learns_through'); free = torch.zeros(WIDTH, requires_grad=True)
    return lambda rows, step: one(data[rows] + free)""",
    "another_scale": """one = part('another_scale')
    return lambda rows, step: one(data[rows], scale=torch.rand(()).item())""",
    "another_shift": "one = part('another_shift'); return lambda rows, step: one(data[rows], shift=torch.rand(WIDTH))",
    "trained": "head.__class__ = type('trained', (nn.Linear,), {}); return lambda rows, step: data[rows]",
    "no_weights": "one = part('no_weights', nn.Tanh()); return lambda rows, step: one(data[rows])",
}


def test_rows_that_come_again(tmp_path: Path) -> None:
    found = seen(tmp_path, AGAIN)
    assert found.keys() == AGAIN.keys()
    for one in found.values():
        assert one.distinct == 48 and one.later == one.later_again >= 100
        assert one.rows - one.again <= 48 and one.calls >= 28 <= one.steps
        assert one.row_bytes == {"in_half": 32, "texts": 768}.get(one.module, 64)
        assert [place.function.rpartition(".")[2] in ("<lambda>", "used") for place in one.places] == [True]


def test_rows_that_do_not(tmp_path: Path) -> None:
    # With one that does, to show that the program has run.
    assert seen(tmp_path, {**OTHERS, "indexed": AGAIN["indexed"]}).keys() == {"indexed"}


def test_calls_that_there_is_no_time_for_are_counted_as_the_others(tmp_path: Path) -> None:
    (one,) = seen(tmp_path, {"indexed": AGAIN["indexed"]}, epochs=50, seconds=0.02).values()
    assert one.looked < one.calls and one.calls >= one.steps - 4 >= 150


def test_a_part_that_gradients_go_through_is_followed_for_a_while_only(tmp_path: Path) -> None:
    """An adapter's frozen layers are called so in every step of a run."""
    followed = tmp_path / "followed"
    body = f"""one = part('adapted'); free = torch.zeros(WIDTH, requires_grad=True)
    def used(rows, step):
        with open({str(followed)!r}, "a") as out:
            print(int(type(one).__call__ is not nn.Module.__call__), end="", file=out)
        return one(data[rows] + free)
    return used"""
    assert seen(tmp_path, {"adapted": body}, epochs=12) == {}
    assert followed.read_text().strip("0").startswith("1") and followed.read_text().endswith("0")
    assert set(followed.read_text().strip("0")) == {"1"}


def test_one_epoch(tmp_path: Path) -> None:
    assert seen(tmp_path, {"indexed": AGAIN["indexed"]}, epochs=1) == {}


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_calls_are_followed_without_a_trace_in_the_module() -> None:
    one, other, heard = Doubling(), Doubling(), []
    calls = ModuleCalls()
    assert calls.can_follow(one)
    calls.follow(one, lambda args, kwargs: heard.append(len(args)) or 7, lambda token, out: heard.append(token))
    try:
        x = torch.ones(2)
        assert one(x).tolist() == other(x).tolist() == [2.0, 2.0] and heard == [1, 7]
        # Copies are nobody's business, and have nothing of it in them.
        copies = [copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
        assert [vars(c).keys() == vars(other).keys() and c(x).tolist() == [2.0, 2.0] for c in copies] == [True, True]
        assert heard == [1, 7] and not one._forward_pre_hooks
        traced = torch.fx.symbolic_trace(nn.Sequential(one))
        assert traced(x).tolist() == [2.0, 2.0]
    finally:
        calls.close()
    before = len(heard)
    one(x)
    assert len(heard) == before and "__call__" not in vars(Doubling)


def test_more_rows_than_are_remembered_are_sampled() -> None:
    rows, step = Rows(), 0
    for epoch in range(2):
        for batch in torch.arange(60_000).split(10_000):
            digests = digests_of((batch,), {})
            assert digests is not None and rows.add(step := step + 1, digests, *results_of(batch * 1.0))
        looked, again = rows.of_calls(slice(len(rows.counts) // 2 * epoch, None))
        assert again == 0 if epoch == 0 else again > 0.9 * looked > 1000
    assert 50_000 < rows.distinct < 70_000


def test_digests_tell_what_a_row_holds_and_what_all_are_given() -> None:
    x, y = torch.randn(4, 3), torch.randn(4, 3)

    def told(*args: object, **kwargs: object) -> list[int]:
        found = digests_of(args, kwargs)
        assert found is not None
        return found.tolist()

    assert told(x)[2:] == told(x[2:]) == told(x.T.contiguous().T)[2:]
    assert len({told(*given)[0] for given in ((x,), (x, y), (y, x), (x, 1), (x, 1.5), (x, y[0]), (x.double(),))}) == 7
    assert told(x, scale=1, by=y) == told(x, by=y, scale=1) != told(x, scale=2, by=y)
    assert told({"ids": x}) == told({"ids": x.clone()})
    assert digests_of((x[:1],), {}) is None
    with pytest.raises(Unknown):
        digests_of((x, object()), {})
