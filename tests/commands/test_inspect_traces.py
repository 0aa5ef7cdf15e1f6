"""`inspect` and `compare` on profiler traces: told by content, folders are ranks, kinds are not mixed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from torchvet.commands import main
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
    with pytest.raises(BadInput, match="has nothing to inspect"):
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


@pytest.mark.parametrize("source", [INPUT, SNAPSHOT], ids=["trace", "snapshot"])
def test_names_that_are_no_utf8(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file and several are read; reports, exports and comparisons show the name escaped."""
    path = tmp_path / os.fsdecode(b"na\xffme.bin")
    shutil.copy(source, path)
    shutil.copy(source, tmp_path / "other.bin")
    outputs = [word for name in ("r.json", "r.sarif", "r.md", "r.txt") for word in ("-o", str(tmp_path / name))]
    exports = [word for name in ("e.jsonl", "e.csv", "e.perfetto.json", "e.speedscope.json")
               for word in ("--export", str(tmp_path / name))]  # fmt: skip
    assert main(["inspect", "-q", *outputs, *exports, str(path)]) == 1
    assert main(["inspect", "-q", str(path), str(tmp_path / "other.bin")]) == 1
    monkeypatch.chdir(tmp_path)  # a path that is too long for its line would lose its middle
    assert main(["compare", path.name, "other.bin"]) == 0
    said = capsys.readouterr()
    assert "na\\udcffme.bin" in said.out and not said.err
    subject = json.loads((tmp_path / "r.json").read_text("utf-8"))["subject"]
    assert "na\\udcffme.bin" in subject.get("path", "") + "".join(subject.get("paths", ()))


def test_a_damaged_file_in_a_folder_is_named(tmp_path: Path) -> None:
    shutil.copy(SNAPSHOT, tmp_path / "rank0.pickle")
    (tmp_path / "rank1.pickle").touch()
    (tmp_path / "rank2.pickle").symlink_to(tmp_path / "gone")
    (tmp_path / "notes.txt").touch()
    reasons = [n.reason for n in inspect_paths([tmp_path]).not_checked if n.check == "one of the files"]
    assert len(reasons) == 2 and "rank1.pickle: is empty" in reasons[0] and "rank2.pickle: cannot be read" in reasons[1]


def test_what_is_packed_says_what_it_is(tmp_path: Path) -> None:
    packed = tmp_path / "snapshot.pickle.gz"
    packed.write_bytes(gzip.compress(SNAPSHOT.read_bytes()))
    with pytest.raises(BadInput, match="is a gzipped pickle: unpack it first"):
        kind_of(packed)
    packed.write_bytes(gzip.compress(b"hello"))
    with pytest.raises(BadInput, match="is gzip, but no trace"):
        kind_of(packed)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="is a pipe"):
        kind_of(tmp_path / "pipe")


@pytest.mark.parametrize("given", ["file", "folder", "link"])
def test_a_report_never_takes_the_place_of_what_is_read(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, link = tmp_path / "trace.json", tmp_path / "report.json"
    content = gzip.decompress(INPUT.read_bytes())
    trace.write_bytes(content)
    link.symlink_to(trace)
    asked = [str(tmp_path if given == "folder" else trace), "-o", str(link if given == "link" else trace)]
    assert main(["inspect", *asked]) == 2
    assert main(["compare", str(trace), str(trace), *asked[1:]]) == 2
    assert capsys.readouterr().err.count("is one of the files to be read") == 2
    assert trace.read_bytes() == content
    assert main(["inspect", "-q", str(trace), "-o", str(tmp_path / "new.json")]) == 1


def test_two_recordings_are_not_inspected_together(tmp_path: Path) -> None:
    for name in ("a.vet", "b.vet"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    with pytest.raises(BadInput, match="is a recording; inspect one at a time"):
        inspect_paths([tmp_path / "a.vet", tmp_path / "b.vet"])


def test_a_gate_that_nothing_could_be_held_against_is_no_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace that ends before its first event has no step to compare; one that is cut says so."""
    content = gzip.decompress(INPUT.read_bytes())
    empty, cut = tmp_path / "empty.json", tmp_path / "cut.json"
    empty.write_bytes(content[: content.index(b'"traceEvents"') + 16])
    cut.write_bytes(content[: len(content) * 3 // 4])
    assert main(["compare", "--fail-on-growth", "1%", str(INPUT), str(empty)]) == 3
    shown = capsys.readouterr().out
    assert shown.startswith("Could not judge") and "measured on one side only" in shown
    assert main(["compare", str(INPUT), str(cut)]) == 0
    # The path of a folder for tests may be longer than a line.
    assert "cut.json:theendofthetrace" in "".join(capsys.readouterr().out.split())
    assert main(["compare", "--fail-on-growth", "1%", str(INPUT), str(INPUT)]) == 0
    assert capsys.readouterr().out.count("what the device did") == 1, "what is true of both is said once"
