"""`torchvet inspect` knows traces by their content; two traces can be set side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_building import Program, ranks, step

from torchvet.comparing import compare
from torchvet.comparing.traces import side_of
from torchvet.errors import BadInput
from torchvet.inspecting import inspect_paths, kind_of


def loads(program: Program) -> None:
    program.load(30_000)
    step(program)
    program.item()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "no-extension"])
def test_a_trace_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    path = Program().train(4, loads).write(tmp_path / name)
    assert kind_of(path).name == "profiler trace"
    assert [f.code for f in inspect_paths([path]).findings] == ["OPS301"]
    assert inspect_paths([path], ignore=["OPS"]).findings == []


def test_a_folder_of_traces_is_a_run_of_many_ranks(tmp_path: Path) -> None:
    for program in ranks(3, 3, late=1, by=100_000):
        program.write(tmp_path / f"rank{program.rank}.json")
    report = inspect_paths([tmp_path])
    assert report.subject["ranks"] == [0, 1, 2]
    assert [(f.code, f.rank) for f in report.findings] == [("DST103", 1)]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    with pytest.raises(BadInput):
        inspect_paths([tmp_path])


def test_two_traces_side_by_side(tmp_path: Path) -> None:
    before = Program().train(4, step).write(tmp_path / "before.json")
    after = Program().train(4, loads).write(tmp_path / "after.json")
    found = {d.title: d for d in compare(side_of(before), side_of(after)).differences}
    largest = found["device by activity"].rows[0]
    assert "input" in largest.name
    assert largest.by == pytest.approx(0.030, rel=0.01)
    same = compare(side_of(before), side_of(before))
    assert all(d.rows == [] for d in same.differences)
