"""`inspect` and `compare` on profiler traces: told by content, folders are ranks, kinds are not mixed."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from torchvet.commands.compare import command as compare
from torchvet.commands.inspect import command as inspect
from torchvet.errors import BadInput
from torchvet.inspecting import inspect_paths, kind_of

DATA = Path(__file__).parent.parent / "data"
TRACES = DATA / "traces"
INPUT = TRACES / "cpu_input_bound.json.gz"
SNAPSHOT = DATA / "silmont.pickle"


def run(command: object, *words: str) -> Result:
    return CliRunner().invoke(command, list(words), standalone_mode=False)  # type: ignore[arg-type]


def test_a_trace_is_told_by_its_content(tmp_path: Path) -> None:
    plain = tmp_path / "unnamed"
    plain.write_bytes(gzip.decompress(INPUT.read_bytes()))
    assert kind_of(plain).name == kind_of(INPUT).name == "profiler trace"
    assert kind_of(SNAPSHOT).name == "CUDA memory snapshot"
    report = inspect_paths([plain])
    assert report.subject["kind"] == "trace" and "OPS301" in [f.code for f in report.findings]


def test_the_verb_reports_and_gates() -> None:
    result = run(inspect, str(INPUT))
    assert result.return_value == 1 and "OPS301" in result.output and "Next" in result.output
    assert run(inspect, str(INPUT), "--ignore", "OPS").return_value == 0


def test_a_folder_is_the_ranks_of_one_run(tmp_path: Path) -> None:
    for rank in (0, 1):
        shutil.copy(TRACES / f"gloo_rank{rank}.json.gz", tmp_path)
    (tmp_path / "notes.txt").write_text("not a trace")
    assert inspect_paths([tmp_path]).subject["ranks"] == [0, 1]


def test_a_folder_of_nothing_that_is_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"some": "settings"}))
    with pytest.raises(BadInput, match="has no CUDA memory snapshot, a profiler trace"):
        inspect_paths([tmp_path])


def test_kinds_are_not_mixed() -> None:
    with pytest.raises(BadInput, match="inspect files of one kind at a time"):
        inspect_paths([INPUT, SNAPSHOT])
    with pytest.raises(BadInput, match="give two of one kind"):
        CliRunner().invoke(compare, [str(INPUT), str(SNAPSHOT)], standalone_mode=False, catch_exceptions=False)


def test_two_traces_are_compared() -> None:
    other = TRACES / "cpu_recompiles.json.gz"
    result = run(compare, str(INPUT), str(other), "--format", "json")
    facts = json.loads(result.output)["facts"]["comparison"]
    step = next(d for d in facts["differences"] if d["title"] == "step by phase")
    assert step["gates"] and {"data", "forward"} <= {r["name"] for r in step["rows"]}
    assert run(compare, str(INPUT), str(INPUT), "--fail-on-growth", "0").return_value == 0
    assert "No difference" in run(compare, str(INPUT), str(INPUT)).output
