"""Loops that call a module row by row are noted, and timed after the run; those whose rows need each other are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from example_runs import RECORDING, forked
from hosts import ByHand
from torch import nn
from torch.nn import functional

from torchvet.probes.time import real_time
from torchvet.probes.time.row_calls import calls, replay
from torchvet.recording import read
from torchvet.recording.records.timing import RowCalls
from torchvet.recording.records.training import Unchecked

Tensor = torch.Tensor
torch.manual_seed(0)
X, Y = torch.rand(12, 6), torch.arange(12) % 3
IMAGES = torch.rand(12, 2, 5, 5)
TOKENS = torch.arange(48).reshape(12, 4) % 7
NET = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 3))
SQUARE = nn.Linear(6, 6)
RECTIFIED = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
CELL = nn.RNNCell(6, 6)
CONV = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(75, 3))
NORMED = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
WORDS = nn.Sequential(nn.Embedding(7, 6), nn.Flatten(), nn.Linear(24, 3))
NETS = nn.ModuleList([nn.Linear(6, 3) for _ in range(12)])


def norms_of_gradients() -> None:
    norms = []
    for x, y in zip(X, Y, strict=True):
        loss = functional.cross_entropy(NET(x[None]), y[None])
        gradients = torch.autograd.grad(loss, list(NET.parameters()))
        norms.append(torch.stack([one.square().sum() for one in gradients]).sum().sqrt())
    torch.stack(norms)


def clipped_gradients() -> None:
    total = [torch.zeros_like(p) for p in NET.parameters()]
    for i in range(12):
        NET.zero_grad()
        functional.cross_entropy(NET(X[i : i + 1]), Y[i : i + 1]).backward()
        nn.utils.clip_grad_norm_(NET.parameters(), 0.1)
        for one, p in zip(total, NET.parameters(), strict=True):
            assert p.grad is not None
            one.add_(p.grad)


def losses_of_rows() -> None:
    losses = [functional.cross_entropy(NET(X[i].unsqueeze(0)), Y[i : i + 1]) for i in range(12)]
    torch.stack(losses).mean().backward()


def sum_of_losses() -> None:
    total: Any = 0.0
    for i in torch.randperm(12).tolist():
        total = total + functional.cross_entropy(NET(2 * X[i : i + 1]), Y[i : i + 1])
    (total / 12).backward()


def gradients_added_up() -> None:
    NET.zero_grad(set_to_none=False)
    for i in range(12):
        (functional.cross_entropy(NET(X[i : i + 1]), Y[i : i + 1]) / 12).backward()


@torch.no_grad()
def best_candidate() -> None:
    best = 0.0
    for row in X:
        best = max(best, NET(row).max().item())


@torch.no_grad()
def written_to_a_table() -> None:
    table = torch.zeros(12, 3)
    for i in range(12):
        table[i] = CONV(IMAGES[i][None])[0]


def of_chosen_rows() -> None:
    rows = torch.randperm(12)
    for i in range(12):
        WORDS(TOKENS[rows[i : i + 1]]).sum().backward()


def rows_of_a_list() -> None:
    scores = []
    for row in [one.clone() for one in X]:
        scores.append(NET(row)[1])
    torch.stack(scores).sum().backward()


def rows_through_relu() -> None:
    torch.stack([RECTIFIED(row)[1] for row in [one.clone() for one in X]]).sum().backward()


def frozen_in_turn() -> None:
    errors = []
    for row in [one.clone() for one in X]:
        with torch.no_grad():
            goal = SQUARE(row).max().item()
        errors.append((NET(row)[1] - goal).square())
    torch.stack(errors).sum().backward()


def results_that_nobody_reads() -> None:
    for row in [one.clone() for one in X]:
        NET(row)


EACH, SUMMED = "each", "summed"
ALONE: list[tuple[Callable[[], None], str]] = [
    (norms_of_gradients, EACH),
    (clipped_gradients, EACH),
    (losses_of_rows, SUMMED),
    (sum_of_losses, SUMMED),
    (gradients_added_up, SUMMED),
    (of_chosen_rows, SUMMED),
    (rows_of_a_list, SUMMED),
    (rows_through_relu, SUMMED),
    (frozen_in_turn, SUMMED),
    (results_that_nobody_reads, ""),
    (best_candidate, ""),
    (written_to_a_table, ""),
]


def recurrence() -> None:
    state = torch.zeros(1, 6)
    for i in range(12):
        state = CELL(X[i : i + 1], state)


def written_out_recurrence() -> None:
    state = torch.zeros(1, 6)
    for i in range(12):
        state = torch.tanh(SQUARE(state) + X[i : i + 1])


def decoding() -> None:
    tokens = TOKENS[:1, :1]
    for _ in range(12):
        scores = WORDS[2](WORDS[0](tokens[:, -1:]).repeat(1, 4, 1).flatten(1))
        tokens = torch.cat([tokens, scores.argmax(1, keepdim=True)], 1)


def states_in_a_table() -> None:
    states = torch.zeros(13, 6)
    with torch.no_grad():
        for i in range(12):
            states[i + 1] = SQUARE(states[i])


def environment() -> None:
    row = X[:1].tolist()
    for _ in range(12):
        action = NET(torch.tensor(row)).argmax().item()
        row = [[float(action)] * 6]


def search() -> None:
    at = 0
    for _ in range(12):
        at = (3 * at + 1 + int(NET(X[at : at + 1]).argmax().item())) % 12


def updates() -> None:
    for i in range(12):
        loss = functional.mse_loss(SQUARE(X[i : i + 1]), X[:1])
        for p, gradient in zip(SQUARE.parameters(), torch.autograd.grad(loss, list(SQUARE.parameters())), strict=True):
            p.data.add_(gradient, alpha=-0.01)


def running_mean() -> None:
    mean = torch.zeros(1, 3)
    for i in range(12):
        mean = 0.9 * mean + 0.1 * NET(X[i : i + 1])


def micro_batches() -> None:
    for part, target in zip(torch.rand(12, 4, 6), torch.zeros(12, 4, dtype=torch.long), strict=True):
        functional.cross_entropy(NET(part), target).backward()


def chunks() -> None:
    for part in torch.rand(24, 6).split(2):
        NET(part)


def parts_of_tokens() -> None:
    for part in torch.zeros(12, 8, dtype=torch.long):
        WORDS[0](part)


def time_steps_of_a_batch() -> None:
    series = torch.rand(4, 12, 6)
    for step in range(12):
        NET(series[:, step])


def ensemble() -> None:
    for net, row in zip(NETS, X, strict=True):
        net(row)


def one_input() -> None:
    for _ in range(12):
        NET(X[:1])


def batch_norm() -> None:
    for image in IMAGES:
        NORMED(image[None])


def of_different_shapes() -> None:
    line = torch.rand(1, 400)
    for i in range(12):
        CONV[1](line[:, 10 * i : 11 * i + 9])


def a_few() -> None:
    for i in range(7):
        NET(X[i : i + 1])


@torch.no_grad()
def a_list_of_tensors() -> None:
    for row in [one.clone() for one in X]:
        NET(row)


def rollout() -> None:
    row, kept = X[0].clone(), []
    for _ in range(12):
        action = NET(row)
        kept.append(action.sum())
        row = torch.from_numpy(action.detach().numpy().repeat(2))
    torch.stack(kept).sum().backward()


def samples() -> None:
    row, kept = X[0].clone(), []
    for _ in range(12):
        chances = torch.distributions.Categorical(logits=NET(row), validate_args=False)
        action = chances.sample()
        kept.append(chances.log_prob(action))
        row = torch.tensor([float(action.tolist())] * 6)
    torch.stack(kept).sum().backward()


def rows_of_several_lengths() -> None:
    scores = []
    for length in [4, 4, 4, 4, 4, 4, 4, 4, 4, 5, 6]:
        scores.append(WORDS[0](torch.zeros(1, length, dtype=torch.long)).sum())
    torch.stack(scores).sum().backward()


class Remembering(nn.Module):
    """What it keeps of a row is a part of the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.all = nn.Linear(6, 3), [[0.0] * 3]

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x + torch.tensor(self.all[-1]).repeat(2))
        self.all.append(out.detach().tolist())
        return out  # type: ignore[no-any-return]


REMEMBERING = Remembering()


def remembered() -> None:
    torch.stack([REMEMBERING(row) for row in [one.clone() for one in X]]).sum().backward()


def tree() -> None:
    ways = [*[one.clone() for one in X]]
    made = []
    for _ in range(20):
        made.append(SQUARE(ways.pop(0)))
        ways.append(made[-1])
    torch.stack(made).sum().backward()


TOGETHER = [
    recurrence, written_out_recurrence, decoding, states_in_a_table, environment, search, updates, running_mean,
    micro_batches, chunks, parts_of_tokens, time_steps_of_a_batch, ensemble, one_input, batch_norm,
    of_different_shapes, a_few, a_list_of_tensors, rollout, samples, rows_of_several_lengths,
    remembered, tree,
]  # fmt: skip


def seen(run: Callable[[], None], monkeypatch: pytest.MonkeyPatch, how: str = "finished") -> list[Any]:
    """What the probe writes of one step that runs so."""
    monkeypatch.setattr(real_time, "_A_STEP", 0.0)
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    host: Any = ByHand()
    host.elapsed, host.clock = float, SimpleNamespace(main_steps=1)
    probe = calls.RowCallsProbe(host)
    monkeypatch.setattr(replay, "_CACHES", 4096)
    probe.install()
    NET.zero_grad()
    host.ledger.enter()
    run()
    host.ledger.leave()
    assert host.ledger.broken is None
    probe.boundary(1, "optimizer")
    host.sampled_steps = 1
    probe.last_look(how, None)
    return list(host.written)


@pytest.mark.parametrize(("run", "how"), ALONE)
def test_rows_that_could_go_through_together(run: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = seen(run, monkeypatch)
    assert (one.rows, one.loops, one.sampled, one.differentiated) == (12, 1, 1, how)
    assert run.__name__ in one.place.function and min(one.one, one.together) > 0 and one.timed == 12
    assert (one.late > 0) is (run in (losses_of_rows, sum_of_losses, rows_of_a_list, frozen_in_turn, rows_through_relu))


@pytest.mark.parametrize("run", TOGETHER)
def test_rows_that_need_each_other_or_are_none(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(run, monkeypatch) == []


def test_what_is_not_timed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = seen(losses_of_rows, monkeypatch, how="error")
    assert isinstance(one, Unchecked) and "1 loop called a module row by row" in one.reason

    def refused(*_: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(replay, "timed", refused)
    (one,) = seen(losses_of_rows, monkeypatch)
    assert isinstance(one, Unchecked) and "NotImplementedError" in one.reason


def test_timing_draws_no_random_numbers_and_changes_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Tensor] = []
    timed = replay.timed

    def watched(*given: Any) -> Any:
        before = torch.get_rng_state(), [p.clone() for p in NET.parameters()]
        taken = timed(*given)
        drawn.append(torch.get_rng_state() == before[0])
        drawn.extend(p == q for p, q in zip(NET.parameters(), before[1], strict=True))
        return taken

    monkeypatch.setattr(replay, "timed", watched)
    seen(gradients_added_up, monkeypatch)
    assert len(drawn) > 1 and all(one.all() for one in drawn)


def test_gradients_of_each_row_are_timed_as_a_program_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    grad = torch.func.grad

    def heard(function: Any) -> Any:
        asked.append(function)
        return grad(function)

    monkeypatch.setattr(torch.func, "grad", heard)
    # One run of each kind.
    for how, run in {how: run for run, how in ALONE}.items():
        asked.clear()
        seen(run, monkeypatch)
        assert len(asked) == (how == "each")


def test_of_large_rows_a_part_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_MOST_BYTES", 20_000)
    (one,) = seen(written_to_a_table, monkeypatch)
    assert 4 <= one.timed < 12 == one.rows
    monkeypatch.setattr(replay, "_MOST_BYTES", 2_000)
    assert seen(written_to_a_table, monkeypatch) == []


PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def loss_of(row):
    return net(row).square()
for step in range(30):
    losses = []
    for row in torch.randn(40, 16):
        losses.append(loss_of(row))
    optimizer.zero_grad()
    torch.cat(losses).mean().backward()
    optimizer.step()
"""


def test_a_whole_run(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    (one,) = read(tmp_path / RECORDING).ranks[0].all(RowCalls)
    assert (one.place.line, one.callers[0].line, one.rows) == (8, 12, 40)
    assert one.loops == one.sampled > 2 and one.differentiated == "summed" and one.late > 0
