"""What a step computes again, from the same operands, is found; what only looks like it is not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from example_runs import RECORDING, forked

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.time.again.computed_again import ComputedAgainProbe
from torchvet.recording import read
from torchvet.recording.records.timing import ComputedAgain

PROGRAM = """
import numpy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
N = 200
model, frozen = nn.Linear(N, N), nn.Linear(N, N).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
fixed, table = torch.randn(N, N), torch.randn(24 * N, N)
held, moved, array = torch.zeros(N, N), torch.zeros(N, N), numpy.ones((N, N), dtype="float32")
shared = torch.from_numpy(array)
arrays = [numpy.arange(N * N, dtype="float32").reshape(N, N) / N**2 for _ in range(3)]
places, shuffled, kept = map(torch.from_numpy, arrays)

{functions}

for step in range(24):
    x = torch.randn(N, N)
    out = model(x)
    loss = out.mean()
    for used in ({names}):
        loss = loss + (out * used(x, step)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def seen(folder: Path, bodies: dict[str, str]) -> dict[str, ComputedAgain]:
    """What is found of functions with these bodies, all of one program, by name."""
    names = {f"used_{n}": name for n, name in enumerate(bodies)}
    functions = "\n".join(f"def {f}(x, step):\n    {bodies[name]}" for f, name in names.items())
    forked(PROGRAM.replace("{functions}", functions).replace("{names}", ", ".join(names) + ","), folder)
    rank = read(folder / RECORDING).ranks[0]
    every = rank.latest(ComputedAgain, "id")
    return {names[one.place.function]: one for one in every if one.place.function in names}


EACH_STEP = {
    "of one tensor": "return fixed @ fixed",
    "through several operators": "return (fixed.T + 1).sigmoid() @ torch.eye(N)",
    "of a frozen part": "return frozen(fixed)",
    "without gradients": "with torch.no_grad(): return frozen(held)",
    "in place": "return (fixed @ held).mul_(2).exp()",
    "with out=": "return torch.matmul(fixed, fixed, out=torch.empty(N, N))",
    "of a slice": "return (table[: N].sigmoid() @ fixed)",
    "of an array that stays": "return (kept + 1).sigmoid()",
    "sorted": "return fixed.sort(dim=1).values",
}
IN_ONE_STEP = {
    "a second forward pass": "return model(x).detach().sigmoid()",
    "a pass without gradients before": "with torch.no_grad(): model(2 * x)\n    return model(2 * x)",
    "the same product": "return (x @ fixed) + (x @ fixed)",
    "numbers without a node": "y = model(x).repeat(8, 1); return (y.argmax(1) + y.argmax(1))[:N].float().mean()",
    "a weight that is made twice": "return x @ (model.weight @ model.weight) + (2 * x) @ (model.weight @ model.weight)",
}
OTHERS = {
    "another batch": "return x @ fixed",
    "another part of a table": "return table[step * N // 40 :][: N] @ fixed",
    "random numbers": "return torch.rand(N, N) @ fixed",
    "dropout": "return nn.functional.dropout(fixed, 0.5) @ fixed",
    "weights that learn": "return model.weight.detach() @ fixed",
    "changed in place since": "moved.add_(1); return moved @ fixed",
    "changed through .data": "moved.data[0, 0] += 1; return moved @ fixed",
    "changed by numpy": "array[0, 0] += 1; return shared @ fixed",
    "changed by numpy in one place": "arrays[0][3, 7] += 1; return places.sigmoid()",
    "shuffled by numpy": "arrays[1][:, 7] = numpy.roll(arrays[1][:, 7], 1); return shuffled.sigmoid()",
    "another number": "return (fixed * step).sigmoid() @ fixed",
    "a checkpoint": "return checkpoint(lambda y: (y @ model.weight).sigmoid(), x, use_reentrant=False)",
    "gathered": "return torch.cat([fixed, fixed])[: N]",
    "filled": "return torch.ones(N, N)",
    "a batch that comes back each tenth step": "return table[step % 10 * N :][: N] @ fixed",
    "uninitialized": "return torch.empty(N, N).fill_(step) @ fixed",
    "not in a step": "return 1.0",
}


def test_what_is_the_same_in_each_step(tmp_path: Path) -> None:
    found = seen(tmp_path, EACH_STEP)
    assert found.keys() == EACH_STEP.keys()
    for one in found.values():
        # Memory that NumPy may write to is gone through from the second step on.
        # On a busy machine a small operator, of which a step has several alike, takes long enough now and then.
        assert one.steps >= max(3, one.sampled - 2) and one.within < 0.1 * one.seconds
        ((_, share),) = one.lines
        assert 0 < share <= 1


def test_what_one_step_computes_twice(tmp_path: Path) -> None:
    found = seen(tmp_path, IN_ONE_STEP)
    assert found.keys() == IN_ONE_STEP.keys()
    assert all(one.steps > 2 and one.within == one.seconds for one in found.values())
    # Each of those weights has a node of its own in the graph; results without gradients have none.
    through = {name for name, one in found.items() if one.led_back > 0.02 * one.passes}
    assert through == {"a weight that is made twice"}
    assert 0 < found["a weight that is made twice"].led_back < found["a weight that is made twice"].passes


def test_what_is_not_the_same(tmp_path: Path) -> None:
    assert seen(tmp_path, OTHERS) == {}


def test_a_node_that_multiplies_for_each_operand(tmp_path: Path) -> None:
    """What autograd computes twice for `y * y` nobody can keep."""
    text = PROGRAM.replace("{functions}", "def used(x, step):\n    y = model(x).repeat(8, 1)\n    return (y * y)[:N]")
    forked(text.replace("{names}", "used,"), tmp_path)
    found = read(tmp_path / RECORDING).ranks[0].latest(ComputedAgain, "id")
    assert "mul" not in [one.operator for one in found]


def test_backward_passes_that_compute_again(tmp_path: Path) -> None:
    """A function of autograd's whose backward sorts what never changes."""
    program = (
        PROGRAM.replace("{names}", "Sorting.apply,")
        .replace("used(x, step)", "used(x)")
        .replace(
            "{functions}",
            """class Sorting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 0

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ fixed.sort(dim=1).values + fixed.sort(dim=1).values
""",
        )
        .replace("x = torch.randn(N, N)", "x = torch.randn(N, N, requires_grad=True)")
    )
    forked(program, tmp_path)
    every = read(tmp_path / RECORDING).ranks[0].latest(ComputedAgain, "id")
    (found,) = [one for one in every if one.place.function == "Sorting.backward"]
    assert found.operator == "sort"
    assert found.backward == found.seconds > found.within > 0


REST = """
import torch
torch.manual_seed(0)
N = 200
model = torch.nn.Linear(N, N)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
fixed = torch.randn(N, N)
for step in range(STEPS):
    x = torch.randn(N, N)
    if step >= LATE:
        x = x + fixed @ fixed
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


def sampled(folder: Path, steps: int, late: int) -> list[ComputedAgain]:
    forked(REST.replace("STEPS", str(steps)).replace("LATE", str(late)), folder)
    return read(folder / RECORDING).ranks[0].latest(ComputedAgain, "id")


def test_windows_are_compared_further_where_there_is_something_to_find(tmp_path: Path) -> None:
    (found,) = sampled(tmp_path, 24, 0)
    assert found.sampled == 6 and found.steps >= 4


def test_a_program_that_begins_to_compute_again_is_found_by_a_later_window(tmp_path: Path) -> None:
    """The first steps showed nothing, so that most windows are not compared any more."""
    found = sampled(tmp_path, 8000, 30)
    assert found and found[0].steps >= 3


def test_steps_that_are_counted_anew_are_compared_anew() -> None:
    """Passes before the training were taken for steps, and nothing was computed again in them."""
    host: Any = SimpleNamespace(ledger=Ledger(), clock=SimpleNamespace(level="training"), tick=0)
    probe, one, number = ComputedAgainProbe(host), torch.ones(3), 0
    probe.install()
    for host.tick in range(4):
        for listener in host.ledger.listeners:
            number += 1
            listener(torch.ops.aten.add.Scalar, (one, number), {}, one + number)
        probe.boundary(host.tick, "training")
    assert host.ledger.listeners == []
    probe.restarted()
    assert len(host.ledger.listeners) == 1
