"""`torchvet.watch()` as surfaces use it: again and again, within another watch, and with every step sampled."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import torchvet
from torchvet.commands import main
from torchvet.diagnosis.diagnose import diagnose
from torchvet.probes.session.session import Session, session_in_process
from torchvet.recording import read
from torchvet.recording.records.base import Window


def train(steps: int, keep: list[torch.Tensor] | None = None, model: nn.Module | None = None) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(256, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if keep is not None:
            keep.append(model(torch.randn(256, 64)))
    return losses


def leaks(watch: torchvet.Watch) -> list[str]:
    assert watch.report is not None
    return [f.code for f in watch.report.findings if (f.measured.bytes_per_step or 0) > 0]


def sessions() -> int:
    gc.collect()
    return sum(type(one) is Session for one in gc.get_objects())


def test_watches_that_follow_each_other_leave_nothing_behind() -> None:
    """But for the last, which stands in tables, and one that torch's compiler has found while it looked at torch."""
    for _ in range(4):
        with torchvet.watch():
            train(2)
    assert sessions() <= 2
    assert session_in_process() is None


def test_a_later_watch_sees_what_a_first_one_would() -> None:
    with torchvet.watch() as first:
        train(24, [])
    with torchvet.watch() as second:
        train(24)
    with torchvet.watch() as third:
        train(24, [])
    assert leaks(first) == leaks(third) == ["MEM101"]
    assert leaks(second) == []


def test_a_watch_sees_as_much_once_something_was_compiled() -> None:
    compiled = torch.compile(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)), backend="eager")
    compiled(torch.randn(256, 64))
    with torchvet.watch() as plain:
        train(24, [])
    with torchvet.watch() as within:
        train(24, [], compiled)
    assert leaks(plain) == leaks(within) == ["MEM101"]
    assert plain.report is not None and plain.report.not_checked == []


def test_a_watch_within_another_says_that_it_is_not_the_one_that_sees() -> None:
    with torchvet.watch() as outer:
        with torchvet.watch() as inner:
            train(3)
        train(24, [])
    assert inner.report is not None and inner.report.verdict == "undetermined"
    assert "observed already" in inner.report.not_checked[0].reason
    assert leaks(outer) == ["MEM101"]


def test_a_watched_function_may_call_itself() -> None:
    watch = torchvet.watch()

    @watch
    def count(number: int) -> int:
        train(12)
        return number if number == 0 else count(number - 1)

    assert count(1) == 0
    assert watch.report is not None and watch.report.facts["steps"] == 24


def test_a_watch_that_met_no_torch_waits_for_it_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.meta_path)
    watch = torchvet.watch()
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "torch")
        watch.start()
        assert sys.meta_path != before
        watch.stop()
    assert sys.meta_path == before


def test_the_interpreters_fault_handler_is_as_it_was() -> None:
    enabled = faulthandler.is_enabled()
    faulthandler.disable()
    try:
        with torchvet.watch():
            assert faulthandler.is_enabled()
        assert not faulthandler.is_enabled()
    finally:
        if enabled:
            faulthandler.enable(sys.__stderr__)


def test_a_fork_after_many_watches_calls_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    with torchvet.watch():
        pass
    monkeypatch.setattr(os, "register_at_fork", lambda **calls: registered.append(calls))
    with torchvet.watch():
        train(1)
    assert registered == []


def test_all_steps_but_the_first_are_sampled_where_that_is_asked(tmp_path: Path) -> None:
    with torchvet.watch(record=tmp_path / "all", every_step=True) as watch:
        train(12)
    windows = read(tmp_path / "all").ranks[0].all(Window)
    assert {step for w in windows for step in range(w.first, w.last + 1)} >= set(range(2, 13))
    assert leaks(watch) == []


def test_a_peak_is_known_without_any_step() -> None:
    model = nn.Linear(1000, 1000)
    with torchvet.watch(every_step=True) as watch:
        model(torch.randn(500, 1000))
    assert watch.report is not None
    # The input and the output, 2 MB each, beside 4 MB of parameters that the window did not see made.
    assert 4_000_000 <= watch.report.facts["peak"]["bytes"] <= 8_100_000


def test_losses_are_the_same_with_every_step_sampled() -> None:
    plain = train(12)
    with torchvet.watch(every_step=True):
        watched = train(12)
    assert watched == plain


def test_the_program_that_is_named_is_the_reports_subject(tmp_path: Path) -> None:
    with torchvet.watch(program=tmp_path / "test_it.py") as watch:
        train(3)
    assert watch.report is not None
    assert watch.report.subject["path"] == str(tmp_path / "test_it.py") and watch.report.subject["argv"] == []


def test_a_page_has_the_charts_that_a_run_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed")
    monkeypatch.setattr("torchvet.renderers.html.page.plotly", lambda: "/* plotly */")
    kept: list[torch.Tensor] = []
    with torchvet.watch(output=tmp_path / "watched.html", record=tmp_path / "run.vet") as watched:
        train(40, kept)
    assert leaks(watched) == ["MEM101"]
    text = (tmp_path / "watched.html").read_text("utf-8")
    assert main(["report", str(tmp_path / "run.vet"), "-q", "-o", str(tmp_path / "reported.html")]) == 1
    sections = re.findall('<section id="([a-z-]+)"', (tmp_path / "reported.html").read_text("utf-8"))
    assert re.findall('<section id="([a-z-]+)"', text) == sections
    assert {"memory", "growth", "holders", "time", "numbers"} <= set(sections)


def test_the_first_rank_writes_and_a_watch_within_another_says_that_it_does_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    monkeypatch.setenv("RANK", "1")
    with torchvet.watch(output=file):
        train(2)
    assert not file.exists()
    monkeypatch.setenv("RANK", "0")
    with torchvet.watch(), torchvet.watch(output=file):
        train(2)
    assert "observed already" in file.read_text("utf-8")


def test_an_output_that_is_no_format_is_refused_at_once() -> None:
    with pytest.raises(torchvet.BadInput, match=r"\.pdf"):
        torchvet.watch(output="report.pdf")


def test_ranks_record_side_by_side_and_each_reports_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    watches = []
    for rank, kept in ((1, []), (0, None)):
        monkeypatch.setenv("RANK", str(rank))
        with torchvet.watch(record=tmp_path / "run.vet", output=tmp_path / f"{rank}.json") as watch:
            train(30, kept)  # type: ignore[arg-type]
        watches.append(watch)
    leaky, healthy = (watch.report for watch in watches)
    assert leaky is not None and leaks(watches[0]) == ["MEM101"] and leaky.findings[0].rank == 1
    assert healthy is not None and healthy.findings == [] and "absent_ranks" not in healthy.facts
    assert [(tmp_path / f"{rank}.json").exists() for rank in (0, 1)] == [True, False], "the first rank writes"
    both = diagnose(read(tmp_path / "run.vet"))
    assert both.subject["ranks"] == [0, 1] and both.findings[0].rank == 1
    assert "of 2 ranks only rank 1 does" in both.findings[0].cause


def test_the_first_rank_is_the_groups_where_no_launcher_says_it(tmp_path: Path) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        with torchvet.watch(record=tmp_path / "run.vet", output=tmp_path / "report.json"):
            train(2)
    finally:
        torch.distributed.destroy_process_group()
    assert not (tmp_path / "report.json").exists()
    assert [file.name for file in (tmp_path / "run.vet").glob("*.jsonl")] == ["rank1.jsonl"]


def test_a_generator_that_is_closed_has_not_failed() -> None:
    watched = torchvet.watch()

    def batches() -> Iterator[int]:
        with watched:
            yield 1

    for _ in batches():
        break
    assert watched.report is not None and watched.report.facts["outcome"]["how"] == "finished"


@pytest.mark.parametrize(("error", "how"), [
    (ValueError("the batch is empty"), "exception"),
    (MemoryError(), "out-of-memory"),
    (SystemExit("no such file"), "exit"),
    (SystemExit(0), "exit"),
    (KeyboardInterrupt(), "interrupt"),
])  # fmt: skip
def test_a_block_ends_as_a_program_does(error: BaseException, how: str) -> None:
    watched = torchvet.watch()
    with pytest.raises(type(error)), watched:
        raise error
    report = watched.report
    assert report is not None and report.facts["outcome"]["how"] == how
    # Only one that failed is said to have failed.
    failed = any(e["witness"] == "end" for e in report.facts["verdict"]["evidence"])
    assert failed == (how not in ("interrupt",) and getattr(error, "code", 1) != 0)
    assert report.verdict == "undetermined"


def test_the_traceback_of_an_error_is_the_programs(tmp_path: Path) -> None:
    def hook(grad: torch.Tensor) -> None:
        raise ValueError("in a hook")

    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(hook)
    with pytest.raises(ValueError, match="in a hook") as found, torchvet.watch():
        weight.sum().backward()
    own = str(Path(torchvet.__file__).parent)
    assert [str(entry.path) for entry in found.traceback if str(entry.path).startswith(own)] == []
