"""Normal distributions whose covariance is diagonal are counted and timed; those with a full one are not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch import distributions

from torchvet.probes.base import frames
from torchvet.probes.time.normals import diagonal
from torchvet.recording.records.distributions import DiagonalNormals
from torchvet.recording.records.training import Unchecked

Tensor = torch.Tensor
MEAN = torch.rand(12, 6, requires_grad=True)
SPREAD = torch.rand(12, 6).add(0.5).requires_grad_()
FULL = torch.eye(6) + 0.1
Normal: Any = distributions.MultivariateNormal
kl: Any = distributions.kl_divergence


def posterior() -> None:
    one = Normal(MEAN, covariance_matrix=torch.diag_embed(SPREAD**2))
    total: Any = one.log_prob(one.rsample()).sum() + kl(one, Normal(torch.zeros(6), torch.eye(6))).sum()
    total.backward()


def policy() -> None:
    one = Normal(MEAN, torch.diag(SPREAD[0]))
    total: Any = one.log_prob(MEAN.detach()).sum() - one.entropy().sum()
    total.backward()


def by_its_factor() -> None:
    one = Normal(MEAN, scale_tril=torch.diag_embed(SPREAD))
    one.log_prob(MEAN.detach()).sum().backward()


def without_gradients() -> None:
    with torch.no_grad():
        Normal(MEAN, torch.diag_embed(SPREAD)).log_prob(MEAN)


def full() -> None:
    Normal(MEAN, FULL).log_prob(MEAN.detach()).sum().backward()


def full_for_one_row() -> None:
    matrices = torch.diag_embed(SPREAD.detach())
    matrices[3, 4, 1] = matrices[3, 1, 4] = 1e-6
    Normal(MEAN, matrices).log_prob(MEAN.detach()).sum().backward()


def full_beside_a_diagonal_one() -> None:
    posterior()
    full()


def correlated_factor() -> None:
    Normal(MEAN, scale_tril=FULL.tril()).rsample()


def one_dimension() -> None:
    Normal(MEAN[:, :1], torch.diag_embed(SPREAD[:, :1])).log_prob(MEAN[:, :1].detach()).sum().backward()


def apart() -> None:
    one: Any = distributions.Independent(distributions.Normal(MEAN, SPREAD), 1)
    one.log_prob(one.rsample()).sum().backward()


def low_rank() -> None:
    one: Any = distributions.LowRankMultivariateNormal(MEAN, SPREAD.unsqueeze(-1), SPREAD)
    one.log_prob(MEAN.detach()).sum().backward()


def factored_by_hand() -> None:
    torch.linalg.cholesky(torch.diag_embed(SPREAD**2)).sum().backward()


def made_and_never_asked() -> None:
    torch.diag_embed(SPREAD)


def seen(
    run: Callable[[], None], monkeypatch: pytest.MonkeyPatch, how: str = "finished", before: Any = None
) -> list[Any]:
    monkeypatch.setitem(frames._owner_of_file, __file__, frames.USER)
    monkeypatch.setattr(diagonal, "WORTH", 0.0)
    host: Any = ByHand()
    host.elapsed, host.clock = float, SimpleNamespace(main_steps=1)
    probe = diagonal.DiagonalCovariances(host)
    probe.install()
    try:
        if before is not None:
            before()
        host.sampling = True
        host.ledger.enter()
        run()
        host.ledger.leave()
        assert host.ledger.broken is None
        probe.boundary(1, "training")
        host.sampled_steps, host.sampling, host.active = 1, False, False
        probe.last_look(how, None)
    finally:
        probe.remove()
    return list(host.written)


@pytest.mark.parametrize(
    ("run", "asked", "backward"),
    [
        (posterior, ["rsample", "log_prob", "kl"], True),
        (policy, ["log_prob", "entropy"], True),
        (by_its_factor, ["log_prob"], True),
        (without_gradients, ["log_prob"], False),
    ],
)
def test_diagonal_ones(run: Any, asked: list[str], backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Normal.__init__
    (record,) = seen(run, monkeypatch)
    assert isinstance(record, DiagonalNormals) and Normal.__init__ is original
    assert (record.rows, record.width, record.asked, record.backward) == (12, 6, asked, backward)
    assert record.place.function == run.__name__ and 0 < record.seconds < record.every
    assert record.whole > 0 and record.apart > 0


@pytest.mark.parametrize(
    "run",
    [
        full, full_for_one_row, full_beside_a_diagonal_one, correlated_factor, one_dimension, apart, low_rank,
        factored_by_hand, made_and_never_asked,
    ],
)  # fmt: skip
def test_others(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(run, monkeypatch) == []


def test_a_full_one_that_was_made_before_may_be_used_in_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(posterior, monkeypatch, before=full) == []
    assert seen(posterior, monkeypatch, before=policy)


def test_what_is_not_timed_is_said_and_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    (record,) = seen(policy, monkeypatch, "error")
    assert isinstance(record, Unchecked)
    before = torch.get_rng_state()
    seen(policy, monkeypatch)
    assert torch.equal(before, torch.get_rng_state())


def test_what_it_raises_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> None:
        with pytest.raises(ValueError, match="Exactly one"):
            Normal(MEAN)

    assert seen(wrong, monkeypatch) == []
