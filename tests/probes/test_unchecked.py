"""What could not be looked at is said, and nothing else is."""

from __future__ import annotations

import pytest

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.unchecked import of_unreadable, unchecked
from torchvet.probes.internals import private
from torchvet.probes.internals.compiled_regions import REGIONS


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def said(ledger: Ledger, unreadable: tuple[str, ...] = (), sampled: bool = True) -> list[str]:
    return [f"{u.check}: {u.reason}" for u in (*unchecked(ledger, sampled), *of_unreadable(unreadable))]


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile."""
    monkeypatch.setattr(REGIONS, "entered", 0)


def test_a_run_that_was_looked_at_in_full_has_no_gap(ledger: Ledger) -> None:
    assert said(ledger) == []


def test_what_torch_compile_keeps_out_is_said(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGIONS, "entered", 1)
    (gap,) = said(ledger)
    assert "torch.compile" in gap and "modules" in gap and "optimizer steps" in gap
    (unsampled, _) = said(ledger, sampled=False)
    assert unsampled.endswith("without another TorchDispatchMode and outside compiled regions")


def test_a_torch_that_compiles_modes_is_told_which_does_not(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.10 is one of them."""
    monkeypatch.setattr("torchvet.probes.base.unchecked.compiled_anything", lambda: True)
    monkeypatch.setattr(private, "MODES_BESIDE_COMPILE", False)
    (gap,) = said(ledger)
    assert gap.startswith("storages of steps after torch.compile was called") and gap.endswith("torch 2.11 does not")


def test_the_rest(ledger: Ledger) -> None:
    ledger.broken = RuntimeError("no such operator")
    found = said(ledger, unreadable=("b", "a"), sampled=False)
    assert found[0] == "storages of sampled steps: RuntimeError: no such operator"
    assert found[2].startswith("variables of a, b()") and found[1].endswith("without another TorchDispatchMode")
