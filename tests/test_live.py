"""What is shown of a run that goes on: read from a recording that grows."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from torchvet.finding import Finding, Location, Remedy, Report
from torchvet.supervisor import progress
from torchvet.supervisor.live import page, sparkline
from torchvet.supervisor.progress import Progress, SoFar
from torchvet.supervisor.tail import Tail, Tails
from torchvet.workflows.report_output import Delivery
from torchvet.workflows.so_far import findings_so_far
from torchvet.workflows.until_verdict import UntilVerdict


def finding(**given: Any) -> Finding:
    return Finding(
        code="MEM101",
        name="graph-retained",
        evidence="observed",
        message="m",
        cause="c",
        remedy=Remedy(summary="r"),
        **given,
    )


def write(file: Path, *records: dict[str, Any], end: str = "\n") -> None:
    with file.open("a") as stream:
        stream.write("\n".join(json.dumps(r) for r in records) + end)


def step(n: int, **more: Any) -> dict[str, Any]:
    return {"k": "step", "n": n, "kind": "training", "t": n * 0.01, **more}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(tail: Tail, found: list[str]) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(page(tail, found))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_recording_is_read_as_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "rank0.jsonl"
    tail = Tail(file)
    tail.read()
    assert (tail.step, tail.memory, tail.growth) == (0, 0, None)
    write(file, step(1), {"k": "host", "tick": 1, "resident": 5_000_000, "heap": 1})
    write(file, {"k": "hostsamples", "ticks": [2, 3], "resident": [5_000_000, 6_000_000]}, step(3))
    write(file, step(4), end="")
    tail.read()
    assert (tail.step, tail.memory) == (3, 6_000_000), "half a line waits"
    write(file, {"k": "x"}, {"k": "survivors", "steps": 2, "bytes": 8_000}, {"k": "nonfinite", "tick": 4})
    write(file, {"k": "nonfinite", "tick": 9}, {"k": "outcome", "how": "finished"})
    file.open("ab").write(b"\xff not json\n")
    tail.read()
    assert (tail.growth, tail.bad_since, tail.ended) == (4_000.0, 4, True)
    assert tail.step_seconds == pytest.approx(0.01)


def test_the_memory_of_a_device_comes_before_the_hosts(tmp_path: Path) -> None:
    file = tmp_path / "rank0.jsonl"
    write(file, step(1, allocated=77), {"k": "host", "tick": 1, "resident": 5_000_000, "heap": 1})
    tail = Tail(file)
    tail.read()
    assert tail.memory == 77


def test_of_several_processes_the_one_that_trains_is_shown(tmp_path: Path) -> None:
    tails = Tails(tmp_path)
    assert tails.read().step == 0 and not tails.ended
    write(tmp_path / "rank0.jsonl", {"k": "outcome"})
    write(tmp_path / "rank1.jsonl", step(8))
    assert tails.read().step == 8 and not tails.ended
    write(tmp_path / "rank1.jsonl", {"k": "outcome"})
    tails.read()
    assert tails.ended


def test_on_a_terminal_of_the_programs_own_lines_come_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stdout", Terminal())
    terminal = Terminal()
    line = Progress(tmp_path, terminal, wanted=True)
    write(tmp_path / "rank0.jsonl", step(1200), {"k": "survivors", "steps": 2, "bytes": 8_000})
    said = []
    for _ in range(200):
        now[0] += 1
        line.tick()
        said.append(terminal.getvalue().count("\n"))
    line.clear()
    assert [said.index(n) + 1 for n in (1, 2, 3, 4)] == [10, 30, 70, 150]
    assert terminal.getvalue().startswith("torchvet: step 1,200 · ") and "\r" not in terminal.getvalue()
    assert "4.0 kB per step still alive" in terminal.getvalue()


def test_where_nobody_looks_nothing_is_read(tmp_path: Path) -> None:
    stream = io.StringIO()
    write(tmp_path / "rank0.jsonl", step(5))
    line = Progress(tmp_path, stream, wanted=True)
    line.tick()
    line.clear()
    assert stream.getvalue() == ""


def test_findings_so_far_are_looked_for_and_a_fault_of_the_search_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_FIND_FIRST", 0.0)
    so_far = SoFar(lambda: ["MEM101 train.py:42"])
    so_far.tick()
    so_far.end()
    assert so_far.found == ["MEM101 train.py:42"]
    broken = SoFar(lambda: [str(1 / 0)])
    for _ in range(2):
        broken.tick()
        broken.end()
    assert broken.found == []


def test_the_page_names_what_is_known_and_no_markup_of_the_programs_counts(tmp_path: Path) -> None:
    file = tmp_path / "rank0.jsonl"
    tail = Tail(file)
    assert "none yet" in shown(tail, [])
    write(file, {"k": "program", "argv": ["[bold]train.py"], "pid": 1}, step(10), {"k": "nonfinite", "tick": 7})
    write(file, step(20, phases={"data": 3.0, "forward": 1.0}), {"k": "host", "tick": 1, "resident": 2_000_000})
    tail.read()
    text = shown(tail, ["MEM101 train.py:42", "OPS301"])
    for part in ("[bold]train.py", "20 in", "2.0 MB", "data 75 %", "not finite in step 7", "MEM101 train.py:42"):
        assert part in text


def test_a_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([5, 5]) == "▁▁"
    assert sparkline([0, 50, 100]) == "▁▄█"


def test_what_until_verdict_has_diagnosed_is_not_diagnosed_again(tmp_path: Path) -> None:
    def diagnose(_: object) -> Report:
        raise AssertionError("it was diagnosed again")

    location = Location(path="/code/train.py", line=7)
    known = [finding(severity=s, location=location) for s in ("info", "warning")]
    until = UntilVerdict(tmp_path, diagnose)
    find = findings_so_far(tmp_path, Delivery(outputs=(), format=None, quiet=True), until)
    assert find() == []
    until.latest = Report(subject={}, verdict="findings", findings=known)
    assert find() == [f"{known[0].code} train.py:7"]
