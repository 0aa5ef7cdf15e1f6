"""Which factors reach the means of losses, and whose gradients one step uses together."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch import nn
from torch.nn import functional as F

from torchvet.probes.base import graphs
from torchvet.probes.base.callers import whereabouts
from torchvet.probes.training.summing import trainers
from torchvet.probes.training.summing.factors import Factors, judged
from torchvet.probes.training.summing.summed_passes import SummedPassesProbe
from torchvet.recording.records.passes import SummedPasses

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
X, Y = torch.randn(12, 4), torch.randn(12, 4)
FACTORS: dict[str, tuple[Loss, list[tuple[float, ...]]]] = {
    "as it is": (F.mse_loss, [(1.0,)]),
    "divided": (lambda x, y: F.smooth_l1_loss(x, y) / 8, [(1.0, 1 / 8)]),
    "weighted and divided": (lambda x, y: 0.5 * F.l1_loss(x, y) / 8, [(1.0, 1 / 8, 0.5)]),
    "labels": (lambda x, y: F.cross_entropy(x, y.argmax(1)) * 0.25, [(1.0, 0.25)]),
    "two terms": (
        lambda x, y: F.mse_loss(x, y) - 2 * x.abs().mean(),
        [(1.0, 1.0, 2.0), (1.0, 1.0)],
    ),
    "a stack of two": (lambda x, y: torch.stack([F.mse_loss(x, y), x.mean()]).sum(), [(1.0, 1.0), (1.0, 1.0)]),
    "by the batch": (lambda x, y: F.kl_div(x, y.softmax(1), reduction="batchmean") * 3, [(1.0, 3.0)]),
    "a sum over its own numbers": (lambda x, y: ((x - y) ** 2).sum() / 48, [(1.0,)]),
    "a mean of a mean": (lambda x, y: F.mse_loss(x, y).reshape(1).mean(), [(1.0, 1.0, 1.0)]),
}
NONE: dict[str, Loss] = {
    "a sum": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    "a sum over all items": lambda x, y: F.cross_entropy(x, y.argmax(1), reduction="sum") / 96,
    "a plain sum over all items": lambda x, y: ((x - y) ** 2).sum() / 192,
    "a root": lambda x, y: F.mse_loss(x, y).sqrt(),
    "a product": lambda x, y: F.mse_loss(x, y) * x.mean(),
}


@pytest.mark.parametrize("case", FACTORS.values(), ids=FACTORS)
def test_what_reaches_a_mean_is_read_factor_by_factor(case: tuple[Loss, list[tuple[float, ...]]]) -> None:
    loss, wanted = case
    assert _read(loss) == [pytest.approx(path) for path in wanted]


@pytest.mark.parametrize("loss", NONE.values(), ids=NONE)
def test_what_is_no_mean_of_its_own_batch_has_no_factor(loss: Loss) -> None:
    assert _read(loss) is None


def _read(loss: Loss) -> Any:
    value = loss(X.clone().requires_grad_(), Y)
    factors = Factors(graphs.roots_of(value), set())
    value.backward()
    factors.ended()
    return factors.read()


def test_a_measured_gradient_is_the_one_without_a_measure() -> None:
    plain, measured = (X.clone().requires_grad_() for _ in range(2))
    (F.mse_loss(plain, Y) / 3).backward()
    loss = F.mse_loss(measured, Y) / 3
    factors = Factors(graphs.roots_of(loss), set())
    loss.backward(retain_graph=True)
    factors.ended()
    before = factors.read()
    assert torch.equal(plain.grad, measured.grad)  # type: ignore[arg-type]
    loss.backward(torch.tensor(2.0))  # no hook is left
    assert factors.read() == before


JUDGED = {
    "plainly summed": (4, [(1.0,)], "summed", [1.0]),
    "weighted": (8, [(0.5,)], "summed", [0.5]),
    "a weight larger than 1": (2, [(1.0, 3.0)], "summed", [3.0]),
    "two terms, one small": (8, [(1.0,), (0.1,)], "summed", [1.0]),
    "averaged": (8, [(1.0, 1 / 8, 0.5)], "averaged", []),
    "averaged and weighted above 1": (8, [(1.0, 1 / 8, 10.0)], "averaged", []),
    "averaged by a product": (8, [(1.0, 1 / 16, 2.0)], "averaged", []),
    "averaged in bfloat16": (3, [(0.334,)], "averaged", []),
    "a weight that could be an average": (2, [(0.5,)], "averaged", []),
    "divided by more": (8, [(1 / 32,)], "unclear", []),
    "a last window that is shorter": (3, [(1 / 4,)], "unclear", []),
    "a window with what an epoch left over": (7, [(1 / 4,)], "unclear", []),
    "the scale of an unknown scaler": (4, [(65536.0,)], "unclear", []),
    "one pass": (1, [(1.0,)], "unclear", []),
}


@pytest.mark.parametrize("case", JUDGED.values(), ids=JUDGED)
def test_factors_are_held_against_the_number_of_passes(case: tuple[int, Any, str, list[float]]) -> None:
    passes, paths, verdict, factors = case
    assert judged(passes, [paths] * passes) == (verdict, factors)


def test_shares_of_the_whole_and_unmeasured_passes_are_no_habit() -> None:
    shares = [[(share,)] for share in (2.0, 1.0, 3.0)]
    assert judged(3, shares) == ("unclear", [])  # type: ignore[arg-type]
    assert judged(3, [[(1.0,)], None, [(1.0,)]]) == ("unclear", [])
    assert judged(3, []) == ("unclear", [])


# The probe, told of events as a session tells it --------------------------------------------------------------------


class Told(ByHand):
    """A host that samples each step, and knows where passes begin."""

    def __init__(self) -> None:
        super().__init__()
        self.sampling = True
        self.way: Any = []

    def made_at(self, tensor: Any) -> None:
        return None


class Training:
    """A model, its optimizer, and a probe that hears of what they do."""

    def __init__(self, rate: float = 0.1, optimizer: type[Any] = torch.optim.SGD) -> None:
        self.host = Told()
        self.probe = SummedPassesProbe(self.host)  # type: ignore[arg-type]
        self.net = nn.Linear(4, 1)
        self.optimizer = optimizer(self.net.parameters(), lr=rate)

    def loss(self) -> torch.Tensor:
        return F.mse_loss(self.net(X), Y[:, :1])

    def batch(self, loader: Any = "a loader") -> None:
        self.probe.batch_got(loader, None)

    def backward(self, loss: torch.Tensor, depth: int = 2) -> None:
        self.host.way = whereabouts(depth)
        self.probe.backward_starts(loss, False)
        loss.backward()
        self.probe.backward_ended(False)

    def step(self, clear: bool = True) -> None:
        self.probe.optimizer_starts(self.optimizer)
        self.optimizer.step()
        self.probe.optimizer_ended(self.optimizer)
        if clear:
            self.optimizer.zero_grad()

    @property
    def seen(self) -> list[SummedPasses]:
        return list(self.probe.totals(0))

    def counts(self) -> Counter[str]:
        return Counter({k: sum(getattr(r, k) for r in self.seen) for k in ("summed", "averaged", "unclear", "batches")})


@contextmanager
def installed(training: Training) -> Iterator[None]:
    training.probe.install()
    try:
        yield
    finally:
        training.probe.remove()


def test_passes_that_nothing_averages_are_summed() -> None:
    one = Training()
    for _ in range(3):
        for _ in range(4):
            one.batch()
            one.backward(one.loss())
        one.step()
    (record,) = one.seen
    assert (record.passes, record.factors, record.optimizer) == (4, [1.0], "SGD")
    assert (record.summed, record.averaged, record.unclear, record.batches) == (3, 0, 0, 3)
    assert record.place.path == __file__


def test_more_passes_than_are_measured_are_counted() -> None:
    one = Training()
    for _ in range(20):
        one.backward(one.loss() * 0.5)
    one.step()
    (record,) = one.seen
    assert (record.passes, record.factors, record.batches) == (20, [0.5], 0)


def _averaged(one: Training) -> None:
    for _ in range(4):
        one.backward(one.loss() / 4)


def _by_hand(one: Training) -> None:
    for _ in range(4):
        one.backward(one.loss())
    for parameter in one.net.parameters():
        assert parameter.grad is not None
        parameter.grad /= 4


def _cleared_between(one: Training) -> None:
    for _ in range(4):
        one.optimizer.zero_grad()
        one.backward(one.loss())


def _zeroed_between(one: Training) -> None:
    for _ in range(4):
        one.optimizer.zero_grad(set_to_none=False)
        one.backward(one.loss())


def _changed_between(one: Training) -> None:
    for _ in range(4):
        one.backward(one.loss())
        for parameter in one.net.parameters():
            assert parameter.grad is not None
            parameter.grad.clamp_(-1, 1)


def _not_the_first(one: Training) -> None:
    # Gradients of an earlier step: how many passes made them is not known.
    one.net.weight.grad = torch.ones_like(one.net.weight)
    one.net.bias.grad = torch.ones_like(one.net.bias)
    for _ in range(4):
        one.backward(one.loss())


def _divided_by_a_hook(one: Training) -> None:
    for parameter in one.net.parameters():
        parameter.register_hook(lambda gradient: gradient / 4)
    for _ in range(4):
        one.backward(one.loss())


def _from_several_places(one: Training) -> None:
    one.backward(one.loss())
    one.backward(one.loss())


def _other_networks(one: Training) -> None:
    agents = [nn.Linear(4, 1) for _ in range(4)]
    for agent in agents:
        one.optimizer.add_param_group({"params": agent.parameters()})
        one.backward(F.mse_loss(agent(X), Y[:, :1]))


QUIET = [
    _by_hand, _cleared_between, _zeroed_between, _changed_between, _not_the_first, _divided_by_a_hook,
    _from_several_places, _other_networks,
]  # fmt: skip


@pytest.mark.parametrize("passes", QUIET)
def test_what_changes_gradients_or_makes_none_of_its_own_is_not_judged(passes: Callable[[Training], None]) -> None:
    one = Training()
    for _ in range(2):
        passes(one)
        one.step()
    assert one.counts() == Counter()


def test_passes_that_are_averaged_are_known_as_such() -> None:
    one = Training()
    for _ in range(2):
        _averaged(one)
        one.step()
    assert one.counts() == Counter(averaged=2)


def test_passes_within_an_optimizers_step_are_its_own() -> None:
    one = Training()
    one.probe.optimizer_starts(one.optimizer)
    for _ in range(4):
        one.backward(one.loss())
    one.probe.optimizer_ended(one.optimizer)
    one.step()
    assert one.counts() == Counter()


def test_the_step_of_another_optimizer_uses_none_of_them() -> None:
    one, other = Training(), nn.Linear(4, 1)
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(2):
        for _ in range(2):
            one.backward(one.loss())
            one.probe.optimizer_starts(second)
            one.probe.optimizer_ended(second)
        one.step()
    assert [(r.passes, r.summed) for r in one.seen] == [(2, 2)]


def test_batches_of_several_loaders_are_no_micro_batches() -> None:
    one = Training()
    for _ in range(2):
        for task in ("one task", "another"):
            one.batch(task)
            one.backward(one.loss())
        one.step()
    assert one.counts() == Counter(summed=2)


@pytest.mark.parametrize(("limit", "clipped", "anyway"), [(1e-6, 2, 2), (1e6, 0, 0)])
def test_clipping_changes_gradients_and_is_no_average(limit: float, clipped: int, anyway: int) -> None:
    one = Training(optimizer=torch.optim.Adam)
    with installed(one):
        for _ in range(2):
            for _ in range(4):
                one.backward(one.loss())
            torch.nn.utils.clip_grad_norm_(one.net.parameters(), limit)
            one.step()
    (record,) = one.seen
    assert (record.summed, record.clipped, record.clipped_anyway, record.optimizer) == (2, clipped, anyway, "Adam")


def test_clipping_after_a_division_by_hand_is_not_judged() -> None:
    one = Training()
    with installed(one):
        _by_hand(one)
        torch.nn.utils.clip_grad_norm_(one.net.parameters(), 1.0)
        one.step()
    assert one.counts() == Counter()


@pytest.mark.parametrize(("divisor", "seen"), [(1, "summed"), (4, "averaged")])
def test_a_scalers_scale_is_no_weight(divisor: int, seen: str) -> None:
    one = Training()
    with installed(one):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(2):
            for _ in range(4):
                one.backward(scaler.scale(one.loss() / divisor))
            scaler.unscale_(one.optimizer)
            one.step()
            scaler.update()
    assert one.counts() == Counter({seen: 2})
    assert [r.factors for r in one.seen] == [[1.0] if divisor == 1 else []]


def test_passes_before_steps_are_sampled_again_belong_to_other_steps() -> None:
    one = Training()
    one.backward(one.loss())
    one.host.sampling = False
    one.batch()
    one.host.sampling = True
    for _ in range(2):
        one.backward(one.loss())  # on top of gradients that nobody has followed
    one.step()
    assert one.counts() == Counter()


def test_a_step_is_followed_to_its_end_and_none_is_begun_outside_of_samples() -> None:
    one = Training()
    with installed(one):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(2):
            for _ in range(3):
                one.backward(scaler.scale(one.loss()))
                one.host.sampling = False  # the window was too long
            scaler.unscale_(one.optimizer)
            one.step()
            scaler.update()
    assert [(r.passes, r.summed, r.unclear) for r in one.seen] == [(3, 1, 0)]


TRAINER = """
class Base:
    def compute_loss(self):
        return self.net

    def training_step(self, run):
        loss = self.compute_loss()
        return run()
"""


def test_a_trainers_loss_comes_from_a_method_a_function_or_the_model() -> None:
    names: dict[str, Any] = {}
    exec(compile(TRAINER, "/usr/lib/site-packages/transformers/trainer.py", "exec"), names)

    class Mine(names["Base"]):  # type: ignore[misc]
        def compute_loss(self) -> str:
            return "a loss"

    def given() -> None: ...

    def told(trainer: Any) -> tuple[str, str, str]:
        variables = trainer.training_step(lambda: trainers.variables(sys._getframe()))
        source = trainers.loss_source(variables["self"])
        return variables["loss"], source.given_by, source.place.function if source.place is not None else ""

    own, plain = Mine(), names["Base"]()
    plain.net = "the model's"
    assert told(own) == ("a loss", "method", f"{Mine.__qualname__}.compute_loss")
    assert told(plain) == ("the model's", "model", "")
    plain.compute_loss_func = given
    assert told(plain) == ("the model's", "function", given.__qualname__)
    assert trainers.variables(sys._getframe()) is None


def test_what_a_pass_measures_goes_with_its_step() -> None:
    one = Training()
    for _ in range(40):
        for _ in range(2):
            one.backward(one.loss())
        one.step()
    assert one.counts()["summed"] == 16
    assert not one.probe._step
