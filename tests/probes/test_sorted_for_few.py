"""Sorts of which a few are used are found; those whose order is used otherwise, or by whom is not known, are not."""

from __future__ import annotations

from pathlib import Path

import torch
from example_runs import RECORDING, forked

from torchvet.probes.time.results.reach import part_of, reach
from torchvet.recording import read
from torchvet.recording.records.timing import SortedForFew

PROGRAM = """
import numpy, pickle
import torch
from torch import nn
torch.manual_seed(0)
N = 2000
model = nn.Linear(8, N)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept, bins = [], torch.linspace(0, 1, N)

{functions}

for step in range(14):
    out = model(torch.randn(4, 8))
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scores = out.detach()
    for use in ({names}):
        use(scores, step)
"""

FEW = {
    "of argsort": "return scores.argsort(dim=1, descending=True)[:, :20].tolist()",
    "values and indices": "v, i = torch.sort(scores, descending=True); return v[:, :5].sum() + i[:, :9].sum()",
    "the smallest, along the rows": "return scores.T.sort(dim=0).values[:7].mean()",
    "the last ones": "return scores.sort(-1)[0][..., -3:].numpy()",
    "one of them": "return scores.sort(stable=True, descending=True, dim=1).values[:, 4].max().item()",
    "of one row, in a loop": "for row in scores:\n        best = row.repeat(4).argsort()[-8:]\n        best = best + 1",
    "narrowed, then gathered": "return scores.gather(1, torch.argsort(scores, 1).narrow(1, 0, 30)).sum()",
}
ALL = {
    "ranks": "return scores.argsort(1).argsort(1)[:, :4].sum()",
    "a cumulative sum": "v, i = scores.sort(descending=True); return v.softmax(1).cumsum(1).sum() + i[:, :3].sum()",
    "the median": "return scores.sort(1).values[:, N // 2].sum()",
    "told whole": "order = scores.argsort(1); best = order[:, :5].sum(); return order.tolist(), best",
    "an array": "order = scores.argsort(1); best = order[:, :5].sum(); return numpy.asarray(order), best",
    "pickled": "order = scores.argsort(1); best = order[:, :5].sum(); return pickle.dumps(order), best",
    "given by DLPack": "order = scores.argsort(1); best = order[:, :5].sum(); return numpy.from_dlpack(order), best",
    "a sorter": "i = scores.argsort(1); return i[:, :5], torch.searchsorted(scores, scores[:, :3] + 0, sorter=i)",
    "kept": "order = scores.argsort(1); kept.append(order); return order[:, :5].sum()",
    "a permutation that is put back": "i = scores.argsort(1); return scores.gather(1, i)[:, :3].sum()",
    "sometimes whole": "i = scores.argsort(1); return (i if step % 2 else i[:, :3]).sum()",
    "written to what is there": "torch.sort(scores, out=held); return held[0][:, :4].sum()",
    "every hundredth": "return scores.sort(1).values[:, :: N // 10].sum()",
    "a few elements": "return scores[0, :100].argsort()[:5].sum()",
    "unused": "scores.argsort(1)",
}


def seen(folder: Path, bodies: dict[str, str]) -> dict[str, SortedForFew]:
    """What is found of functions with these bodies, all of one program, by name."""
    names = {f"use_{n}": name for n, name in enumerate(bodies)}
    functions = "\n".join(f"def {f}(scores, step):\n    {bodies[name]}" for f, name in names.items())
    functions += "\nheld = (torch.empty(4, N), torch.empty(4, N, dtype=torch.int64))"
    forked(PROGRAM.replace("{functions}", functions).replace("{names}", ", ".join(names) + ","), folder)
    return {names[one.place.function]: one for one in read(folder / RECORDING).ranks[0].latest(SortedForFew, "place")}


def test_sorts_of_which_a_few_are_used(tmp_path: Path) -> None:
    found: dict[str, SortedForFew] = {}
    names = list(FEW)
    # Four lines of a program are timed.
    for number, some in enumerate((names[:4], names[4:])):
        folder = tmp_path / str(number)
        folder.mkdir()
        found |= seen(folder, {name: FEW[name] for name in some})
    assert found.keys() == FEW.keys()
    assert {name: (one.few, one.last) for name, one in found.items()} == {
        "of argsort": (20, False),
        "values and indices": (9, False),
        "the smallest, along the rows": (7, False),
        "the last ones": (3, True),
        "one of them": (5, False),
        "of one row, in a loop": (8, True),
        "narrowed, then gathered": (30, False),
    }
    for one in found.values():
        assert one.size in (2000, 8000) and 0 < one.seconds <= one.every and one.topk < one.whole


def test_orders_that_are_used_otherwise(tmp_path: Path) -> None:
    assert seen(tmp_path, ALL) == {}


def test_how_far_a_view_reaches() -> None:
    made = torch.zeros(3, 50, 4)
    part = part_of(made, 1)
    assert part is not None and part.axis.size == 50
    assert reach(part.axis, made[:, :6]) == (0, 5)
    assert reach(part.axis, made[1, 10:20, 2]) == (10, 19)
    assert reach(part.axis, made[..., 3]) == (0, 49)
    assert reach(part.axis, made[:, 8]) == (8, 8)
    assert reach(part.axis, made.transpose(0, 1)[45:]) == (45, 49)
    assert reach(part.axis, made[:, ::10]) == (0, 40)
    # Across rows.
    assert reach(part.axis, made.view(-1)[:5]) == (0, 49)
    # As other numbers.
    assert reach(part.axis, made[:, :6].view(torch.float64)) == (0, 49)
    assert part_of(made[:, :, 0], 1) is None
