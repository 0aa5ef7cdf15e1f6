"""What no replay explains is looked for in the steps that follow, as they run: found, or told why not; unchanged."""

from __future__ import annotations

import contextlib
import functools
import gc
import runpy
import textwrap
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import torchvet
from torchvet.finding import Report
from torchvet.probes.internals.modes import OwnMode
from torchvet.probes.numerics import nonfinite, online_nonfinite_search
from torchvet.probes.replay.sources import PassingTaints, Source
from torchvet.recording import read
from torchvet.recording.records.nonfinite import NonFinite

PROGRAMS = Path(__file__).parent.parent / "data" / "nonfinite"
NO_REPLAY = "CUDA is in use, and cannot be used in a forked process"


@pytest.fixture(autouse=True)
def no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a replay is out of the question."""
    monkeypatch.setattr(nonfinite, "why_not", lambda: NO_REPLAY)


def watched(text: str, folder: Path, **names: Any) -> tuple[list[NonFinite], Report]:
    """The records of a program, and what is said of it. `# BAD` in it marks a line (see `line_of`)."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text), "utf-8")
    with torchvet.watch(record=folder / "run.vet") as watch:
        runpy.run_path(str(path), init_globals=names, run_name="__main__")
    assert watch.report is not None
    return read(folder / "run.vet").ranks[0].all(NonFinite), watch.report


def line_of(text: str) -> int:
    """The marked line."""
    return next(n for n, line in enumerate(textwrap.dedent(text).splitlines(), 1) if line.endswith("# BAD"))


FROM_THE_START = [
    "carried_state", "checkpoint", "closure_lbfgs", "custom_fn", "discriminator_passes", "fp16_autocast",
    "gan", "hook_grad_penalty",
    "inplace", "masked_row", "rnn_state", "target_nan", "two_losses", "two_scaled_optimizers", "where",
]  # fmt: skip


@pytest.mark.parametrize("name", FROM_THE_START)
def test_a_look_at_running_steps_finds_what_a_replay_would(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = nonfinite.NonFiniteWatcher.install

    def begun(self: Any) -> None:
        install(self)
        self._live.begin(NonFinite(tick=0, symptom="loss", found="not-reproduced"))
        self._live.advance()

    monkeypatch.setattr(nonfinite.NonFiniteWatcher, "install", begun)
    text = (PROGRAMS / f"{name}.py").read_text("utf-8")
    records, _ = watched(text, tmp_path)
    (line, reason), *_ = (
        (n, line.rpartition(" ")[2]) for n, line in enumerate(text.splitlines(), 1) if "# EXPECT" in line
    )
    first = records[0]
    assert first.place is not None and (first.place.line, first.reason) == (line, reason), first
    assert first.live and first.failed == 0 and first.found != "not-reproduced"


LEFT_OUT = """
    import torch
    from torch import nn

    torch.manual_seed(0)


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1)

        def forward(self, x, bad):
            h = torch.relu(self.a(x)) * (not bad) + (not bad)
            return self.b(torch.log(h))  # BAD


    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for it in range(16):
        loss = net(torch.randn(8, 4), it % 4 == 3).sum()
        optimizer.zero_grad()
        loss.backward()
        if torch.isfinite(nn.utils.clip_grad_norm_(net.parameters(), 1.0)):
            optimizer.step()
"""


def test_the_step_that_fails_next_is_seen_as_it_runs(tmp_path: Path) -> None:
    """Steps are numbered by the optimizer's, and the program leaves some out: its own counter is said as well."""
    (opening, found, *_), report = watched(LEFT_OUT, tmp_path)
    assert (opening.found, opening.tick, opening.loop, opening.note) == ("not-reproduced", 4, {"it": 3}, NO_REPLAY)
    assert (found.found, found.reason, found.operator) == ("operator", "log-of-zero", "aten.log")
    assert (found.tick, found.loop, found.live, found.failed) == (7, {"it": 7}, 4, 4)
    assert found.place is not None and found.place.line == line_of(LEFT_OUT) and found.module == "Net"
    assert [(o.dtype, o.shape, o.zeros) for o in found.operands] == [("float32", (8, 8), 64)]
    (said,) = (f for f in report.findings if f.code == "NUM101")
    assert said.location is not None and said.location.line == line_of(LEFT_OUT)
    assert "step 7: log in Net" in said.message
    assert any(r.role == "live" and "step 4" in r.message for r in said.related)


POISONED = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for it in range(9):
        y = net(torch.randn(8, 4))
        loss = (y / (y.sum() if it != 5 else 0 * y.sum())).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_weights_that_are_lost_end_the_look(tmp_path: Path) -> None:
    records, report = watched(POISONED, tmp_path)
    assert [(r.found, r.tick, r.live) for r in records] == [("not-reproduced", 6, None), ("not-reproduced", 6, 1)]
    words = "parameters already not finite since step 6"
    assert words in (records[1].note or "")
    (said,) = (f for f in report.findings if f.code == "NUM101")
    assert words in said.cause and said.severity == "error"


def test_weights_that_were_lost_before_the_first_step_are_told_without_any_look(tmp_path: Path) -> None:
    text = POISONED.replace("optimizer =", "net.weight.data[1, 2] = torch.nan\n    optimizer =")
    records, _ = watched(text, tmp_path)
    assert [(r.found, r.reason) for r in records] == [("input", "bad-parameter")]
    assert records[0].result is not None and (records[0].result.name, records[0].result.nans) == ("weight", 1)


@pytest.mark.parametrize(("steps", "seconds"), [(3, 10.0), (50, 0.0)])
def test_a_look_has_an_end(steps: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online_nonfinite_search, "MOST_STEPS", steps)
    monkeypatch.setattr(online_nonfinite_search, "MOST_SECONDS", seconds)
    text = LEFT_OUT.replace("it % 4 == 3", "it == 3") + "    left.append(len(modes()))\n"
    left: list[int] = []
    (_, ended), report = watched(text, tmp_path, left=left, modes=_looking)
    assert ended.found == "not-reproduced" and ended.failed == 4
    if seconds:
        assert "the 3 passes after it were looked at as they ran, none went wrong" in (ended.note or "")
    else:
        assert "looking ended with 0 s of its own" in (ended.note or "")
    assert left == [0], "and nothing is left switched on"
    assert len([f for f in report.findings if f.code == "NUM101"]) == 1


def _looking() -> list[Any]:
    return [m for m in _get_current_dispatch_mode_stack() if isinstance(m, online_nonfinite_search.LiveMode)]


def test_what_other_threads_compute_is_not_seen_and_that_is_said(tmp_path: Path) -> None:
    text = """
        import threading
        import torch
        from torch import nn

        net = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


        def work(x, out, bad):
            out.append(torch.log(net(x).abs() * (not bad)).mean())


        for it in range(9):
            out = []
            thread = threading.Thread(target=work, args=(torch.randn(8, 4), out, it % 3 == 2))
            thread.start()
            thread.join()
            optimizer.zero_grad()
            out[0].backward()
            if torch.isfinite(out[0]):
                optimizer.step()
    """
    records, _ = watched(text, tmp_path)
    assert {r.found for r in records} == {"not-reproduced"}
    assert "2 went wrong; what made it was not among the operators" in (records[-1].note or "")


def test_a_program_that_trains_in_a_thread_is_looked_at_there(tmp_path: Path) -> None:
    body = textwrap.dedent(LEFT_OUT).partition("for it in")
    text = f"{body[0]}\ndef main():\n" + textwrap.indent("for it in" + body[2], "    ")
    text += "\nimport threading\nthread = threading.Thread(target=main)\nthread.start()\nthread.join()\n"
    records, _ = watched(text, tmp_path)
    assert records[1].place is not None and records[1].place.line == line_of(text)


class Counting(TorchDispatchMode):
    """A mode of the program's own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_of_the_programs_own_stay_what_they_are(tmp_path: Path) -> None:
    text = textwrap.dedent(LEFT_OUT).replace("    loss = net", "    inner.__enter__(); loss = net")
    text = text.replace("    optimizer.zero_grad()", "    inner.__exit__(None, None, None); optimizer.zero_grad()")
    modes = Counting(), Counting()
    before = _python_dispatch._is_in_torch_dispatch_mode
    with modes[0]:
        records, _ = watched(text, tmp_path, inner=modes[1])
        assert _get_current_dispatch_mode_stack() == [modes[0]]
    assert records[1].reason == "log-of-zero" and records[1].place is not None
    assert records[1].place.line == line_of(LEFT_OUT), "the program's line, not its mode's"
    assert modes[1].seen.count("aten.log.default") == 16
    own = "randn t addmm relu mul add log sum detach"
    assert {name.split(".")[1] for name in modes[1].seen} <= set(own.split()), (
        "what the look computes is not its matter"
    )
    assert _python_dispatch._is_in_torch_dispatch_mode == before


class Quiet(OwnMode):  # type: ignore[no-untyped-call]
    """One of torchvet's own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_mode_beneath_others_leaves_torch_as_it_was(ours_first: bool) -> None:
    def state() -> tuple[Any, ...]:
        stack = list(_get_current_dispatch_mode_stack())
        return stack, _python_dispatch._is_in_torch_dispatch_mode, _python_dispatch._is_in_non_infra_torch_dispatch_mode

    before, theirs, ours = state(), Counting(), Quiet()
    with theirs:
        within = state()
        assert ours.enter_beneath()
        assert _get_current_dispatch_mode_stack() == [ours, theirs]
        if ours_first:
            ours.leave()
            assert state() == within
    ours.leave()
    assert state() == before


def test_bad_tensors_are_not_kept_alive_and_one_that_is_fixed_is_forgotten() -> None:
    taints, source = PassingTaints(), Source(index=1, kind="nan")
    tensor = torch.full((4,), torch.nan)
    alive = weakref.ref(tensor.untyped_storage())
    taints.add(tensor[1:], [source], [])
    known = taints.of(tensor)
    assert known is not None and known.nan == [source] and known.tensor is None
    taints.discard(tensor[:2])
    assert taints.of(tensor) is known, "the rest of it may be bad still"
    taints.discard(tensor)
    assert taints.of(tensor) is None
    taints.add(tensor, [source], [])
    del tensor
    gc.collect()
    assert alive() is None and not taints._by_key


def evaluate(
    net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, step: int, bad: int
) -> torch.Tensor:  # fmt: skip
    """A closure."""
    optimizer.zero_grad(set_to_none=step % 2 == 0)
    out = net(x)
    loss: torch.Tensor = (torch.log(out.abs() * 0) if step % 5 == bad else out).square().mean()
    loss.backward()
    return loss.detach()


def train(seed: int, bad: int) -> list[torch.Tensor]:
    """Batch norm, dropout, a closure, in-place and random operators; every fifth step is bad, and is taken back."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 2))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    seen = []
    for step in range(25):
        x = torch.randn(8, 6).mul_(2)
        closure = functools.partial(evaluate, net, optimizer, x, step, bad)
        before = [p.detach().clone() for p in net.parameters()]
        loss = optimizer.step(closure) if step % 3 else closure()
        seen.append(loss)
        if not torch.isfinite(loss):
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
            with torch.no_grad():
                for p, b in zip(net.parameters(), before, strict=True):
                    p.copy_(b)
    return [*(t.clone() for t in net.state_dict().values()), *seen, torch.get_rng_state()]


def test_a_run_that_is_looked_at_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    bare = train(0, 3)
    with torchvet.watch(record=tmp_path / "run.vet"):
        looked_at = train(0, 3)
    for one, other in zip(bare, looked_at, strict=True):
        assert torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    records = read(tmp_path / "run.vet").ranks[0].all(NonFinite)
    assert any(r.live and r.reason == "log-of-zero" for r in records), records


COMPILED = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Linear(4, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


    def forward(x, c):
        return torch.log(torch.sigmoid(net(x)) * c)  # BAD


    fast = torch.compile(forward, backend="aot_eager")
    for it in range(8):
        loss = fast(torch.randn(8, 4), torch.tensor(float(it % 4 != 3))).sum()
        optimizer.zero_grad()
        loss.backward()
        if torch.isfinite(loss):
            optimizer.step()
"""


@pytest.mark.parametrize("replayed", [True, False])
def test_compiled_regions_are_done_again_eagerly_and_that_is_said(
    replayed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if replayed:
        monkeypatch.setattr(nonfinite, "why_not", lambda: None)
    records, report = watched(COMPILED, tmp_path)
    found = next(r for r in records if r.found == "operator")
    assert (found.operator, found.reason) == ("aten.log", "log-of-zero")
    assert found.place is not None
    if replayed:
        assert (found.place.line, found.note) == (line_of(COMPILED), None)
    else:
        assert "in a torch.compile region" in (found.note or ""), "only its first line is known"
    gaps = {n.check: n.reason for n in report.not_checked}
    assert "run eagerly" in gaps["operators inside torch.compile regions, where values are not finite"]
    assert "the first value that is not finite" not in gaps, "what is traced has no values to look at"


def test_a_look_that_fails_lets_the_program_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setenv("TORCHVET_DEBUG", "")
    monkeypatch.setattr(online_nonfinite_search.LiveMode, "_before", broken)
    with contextlib.redirect_stdout(None):
        records, report = watched(LEFT_OUT, tmp_path)
    assert {r.found for r in records} == {"not-reproduced"}
    assert any("no memory" in n.reason for n in report.not_checked)
