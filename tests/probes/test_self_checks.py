"""Each probe proves itself at the start; one that cannot is switched off alone, and the record says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hosts import ByHand

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.internals import private
from torchvet.probes.session import self_checks

LEAK = """
import torch

class Trainer:
    def __init__(self):
        self.model, self.losses = torch.nn.Linear(64, 64), []
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self):
        for _ in range(40):
            x = torch.randn(256, 64)
            loss = self.model(x).relu().sum()
            self.optimizer.zero_grad()
            self.losses.append(self.model(x).relu().sum())
            loss.backward()
            self.optimizer.step()

Trainer().fit()
"""


def report_of(tmp_path: Path, before: str) -> dict[str, Any]:
    """The report on a leak, where `before` has run before torchvet's probes are loaded."""
    program = tmp_path / "leak.py"
    program.write_text(LEAK)
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(before)
    command = [sys.executable, "-m", "torchvet", "run", "--format", "json", str(program)]
    path = ":".join(filter(None, [str(tmp_path), *sys.path]))
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Takes a name out of torch as soon as torch has been imported: before the probes are, which hear of the same import.
WITHOUT = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util
        spec = importlib.util.find_spec("torch")
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            import importlib
            owner = importlib.import_module({owner!r}) if {owner!r} in sys.modules else module
            for part in {parts!r}:
                owner = getattr(owner, part)
            delattr(owner, {name!r})
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Finder())
"""


def test_all_checks_pass_and_leave_nothing_behind() -> None:
    state, modules = torch.random.get_rng_state(), set(sys.modules)
    assert list(self_checks.failures()) == []
    assert torch.equal(state, torch.random.get_rng_state())
    assert set(sys.modules) == modules
    assert torch.is_grad_enabled()
    assert private.modes_on() == 0


def test_checks_run_whatever_the_program_has_set() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        with torch.inference_mode():
            assert list(self_checks.failures()) == []
            assert torch.is_inference_mode_enabled()
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


def test_checks_wait_while_modes_or_hooks_are_on() -> None:
    assert self_checks.possible()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert not self_checks.possible()
        (torch.ones(2, requires_grad=True).exp()).sum().backward()  # they are still in use
    with Ledger():
        assert not self_checks.possible()
    assert self_checks.possible()
    assert torch.autograd.graph.disable_saved_tensors_hooks("").__class__  # and can still be switched


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "storages": lambda patch: patch.setattr(Ledger, "_all_born", lambda *told: None),
    "survival": lambda patch: patch.setattr("torchvet.probes.base.ledger._Death.__call__", lambda *told: None),
    "graphs": lambda patch: patch.setattr("torchvet.probes.base.graphs.saved_tensors", lambda node: iter(())),
    "names": lambda patch: patch.setattr("torchvet.probes.objects.heap.gc.get_referents", lambda *told: []),
    "numbers": lambda patch: patch.setattr("torchvet.probes.internals.finite.numeric", lambda value: False),
}


@pytest.mark.parametrize("probe", BREAKS)
def test_a_probe_that_finds_nothing_fails_its_check(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BREAKS[probe](monkeypatch)
    failed = dict(self_checks.failures())
    monkeypatch.undo()
    assert probe in failed
    assert failed[probe].failed == probe
    assert set(failed) <= {probe, "survival"}, "the others still work"


def test_only_what_fails_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = ByHand()
    monkeypatch.setattr("torchvet.probes.base.graphs.saved_tensors", lambda node: iter(()))
    proofs = self_checks.Proofs(host, None)  # type: ignore[arg-type]
    proofs.begin()
    monkeypatch.undo()
    proofs.end()
    try:
        assert [record.failed for record in host.written] == ["graphs"]
        assert host.broken == {"graphs"}
        assert not host.ledger.refused
        assert not self_checks.graphs.followed()
    finally:
        self_checks.graphs.switch(on=True)


@pytest.mark.parametrize(
    "path",
    ["torch._C._functorch.is_functorch_wrapped_tensor", "torch._C._current_graph_task_id", "torch._foreach_norm"],
)
def test_a_missing_name_switches_off_what_needs_it_and_nothing_else(path: str, tmp_path: Path) -> None:
    owner, _, name = path.rpartition(".")
    parts = owner.split(".")[1:]
    report = report_of(tmp_path, WITHOUT.format(owner="torch", parts=parts, name=name))
    gaps = {gap["check"]: gap["reason"] for gap in report["not_checked"]}
    assert any(path in reason for reason in gaps.values()), gaps
    assert "everything" not in gaps
    assert any(f["holder"] and f["holder"]["name"].endswith(".losses") for f in report["findings"])
