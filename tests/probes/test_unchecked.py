"""What could not be looked at is said, and nothing else is."""

from __future__ import annotations

from typing import cast

import pytest

from torchvet.probes import taps
from torchvet.probes.ledger import Ledger
from torchvet.probes.taps import Taps
from torchvet.probes.unchecked import unchecked


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def said(ledger: Ledger, refused: bool = False, unreadable: tuple[str, ...] = (), sampled: bool = True) -> list[str]:
    one = Taps(cast(taps.Listener, None))
    one.modules_refused = refused
    return [f"{u.check}: {u.reason}" for u in unchecked(ledger, one, unreadable, sampled)]


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests compile."""
    monkeypatch.setattr("torchvet.probes.unchecked.compiled_anything", lambda: False)


def test_a_run_that_was_looked_at_in_full_has_no_gap(ledger: Ledger) -> None:
    assert said(ledger) == []


def test_what_torch_compile_keeps_out_is_said(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    (gap,) = said(ledger, refused=True)
    assert "without no_grad" in gap and "torch.compile" in gap
    monkeypatch.setattr("torchvet.probes.unchecked.compiled_anything", lambda: True)
    assert len(said(ledger, refused=True)) == 2


def test_the_rest(ledger: Ledger) -> None:
    ledger.broken = RuntimeError("no such operator")
    found = said(ledger, unreadable=("b", "a"), sampled=False)
    assert found[0] == "storages of sampled steps: RuntimeError: no such operator"
    assert found[1].startswith("variables of a, b()") and found[2].endswith("was active in every step")
