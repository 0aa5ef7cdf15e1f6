"""What was written comes back, whatever happened to the process, the disk or the file in between."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
from handmade import census, holding, program, site, steps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchvet.errors import BadInput
from torchvet.recording import RankRecording, Recording, RecordingWriter, read
from torchvet.recording.records.base import Place, Program, Record, Source, Step
from torchvet.recording.records.ranks import ChildEnd
from torchvet.recording.records.training import Host, Outcome, Unchecked

bug = pytest.mark.xfail
RECORDS: list[Record] = [
    program(),
    *steps(3),
    census(3, holding("losses", 100, sites=[site()], kind="local")),
    Host(tick=3, resident=None, heap=5),
    Source(path="/project/train.py", text="a\nb  \n"),
    Unchecked(check="something", reason='ä "quoted" \n reason'),
    Outcome(how="finished", status=0, ticks=3, seconds=1.5),
]


def write(directory: Path, records: list[Record], rank: int = 0) -> Path:
    writer = RecordingWriter(directory, rank)
    for record in records:
        writer.write(record)
    writer.close()
    return writer.path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A recording of one rank."""
    write(tmp_path / "run.vet", RECORDS)
    return tmp_path / "run.vet"


def only(directory: Path) -> RankRecording:
    (rank,) = read(directory).ranks
    return rank


def test_how_a_child_ended_is_said_of_the_process_of_this_host(tmp_path: Path) -> None:
    """Ranks of two hosts: their processes may have the same numbers."""
    write(tmp_path, [program(pid=7), ChildEnd(pid=9, status=-9), RECORDS[-1]], rank=0)
    write(tmp_path, [program(pid=9), *steps(3)], rank=1)
    child = RecordingWriter(tmp_path, 0, child=True)
    child.write(program(pid=9))
    child.close()
    ends = {rank.name: rank.last(Outcome) for rank in read(tmp_path).ranks}
    assert ends["rank1"] is None
    assert ends["rank0.child1"] is not None and ends["rank0.child1"].status == -9


def test_everything_comes_back_in_order(directory: Path) -> None:
    rank = only(directory)
    assert rank.lines == RECORDS and rank.damaged == 0 and rank.rank == 0
    assert rank.program == RECORDS[0] and rank.last(Outcome) == RECORDS[-1]
    assert [s.n for s in rank.all(Step)] == [1, 2, 3]


def test_every_line_is_an_object_with_its_kind(directory: Path) -> None:
    lines = (directory / "rank0.jsonl").read_bytes().splitlines()
    assert len(lines) == len(RECORDS)
    assert [msgspec.json.decode(line)["k"] for line in lines][:2] == ["program", "step"]


def test_lines_are_there_before_the_file_is_closed(tmp_path: Path) -> None:
    """A process that is killed loses nothing that it has written."""
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(program())
    assert only(tmp_path / "run.vet").program is not None
    writer.close()


def test_ranks_are_files_of_their_own(tmp_path: Path) -> None:
    for number in (0, 3, 11):
        write(tmp_path / "run.vet", [program(rank=number)], number)
    assert sorted(r.rank for r in read(tmp_path / "run.vet").ranks) == [0, 3, 11]


def test_source_lines_are_quoted(directory: Path) -> None:
    recording = read(directory)
    assert recording.source_line(Place("/project/train.py", 2, "main")) == "b"
    for place in (
        None,
        Place("/project/train.py", 3, ""),
        Place("/project/train.py", 0, ""),
        Place("/other.py", 1, ""),
    ):
        assert recording.source_line(place) is None


# Damage --------------------------------------------------------------------------------------------------------------


def append(directory: Path, raw: bytes) -> None:
    with (directory / "rank0.jsonl").open("ab") as stream:
        stream.write(raw)


@pytest.mark.parametrize("cut", [1, 2, 10, 30])
def test_a_truncated_last_line_costs_that_line(directory: Path, cut: int) -> None:
    file = directory / "rank0.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    rank = only(directory)
    kept = RECORDS if cut == 1 else RECORDS[:-1]
    assert rank.lines == kept
    assert rank.damaged == len(RECORDS) - len(kept), "a line that lacks its newline only is whole"


def test_records_of_a_later_version_are_counted(directory: Path) -> None:
    append(directory, b'{"k":"telemetry","tick":1}\n')
    rank = only(directory)
    assert rank.lines == RECORDS and rank.damaged == 1


def test_fields_of_a_later_version_are_ignored(directory: Path) -> None:
    append(directory, b'{"k":"host","tick":9,"resident":1,"heap":2,"swap":{"used":[3]}}\n')
    rank = only(directory)
    assert rank.damaged == 0 and rank.last(Host) == Host(tick=9, resident=1, heap=2)


def test_a_damaged_line_in_the_middle_costs_that_line(directory: Path) -> None:
    file = directory / "rank0.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"k":"step","n":"two"}\n'
    file.write_bytes(b"".join(lines))
    rank = only(directory)
    assert len(rank.lines) == len(RECORDS) - 1 and rank.damaged == 1 and "`$.n`" in rank.damage


@pytest.mark.parametrize("raw", [
    b"\x00" * 100 + b"\n",
    b"null\n",
    b"[]\n",
    b'{"k":"step"}\n',
    b'{"k":"step","n":1e999,"kind":"training","t":0}\n',
    b'{"n":1}\n',
    pytest.param(b'{"k":"source","path":"\xff","text":""}\n'),
    pytest.param(b'{"k":"host","more":' + b"[" * 100_000 + b"\n"),
], ids=["zeros", "null", "list", "fields missing", "infinite", "no kind", "not utf-8", "nested"])  # fmt: skip
def test_lines_that_make_no_sense_are_counted(directory: Path, raw: bytes) -> None:
    append(directory, raw)
    rank = only(directory)
    assert rank.lines == RECORDS and rank.damaged == 1


@given(st.lists(st.one_of(
    st.binary(max_size=60),
    st.builds(lambda raw: b'{"k":"source","path":"' + raw + b'","text":""}', st.binary(max_size=8)),
    st.builds(lambda n, text: msgspec.json.encode({"k": "step", "n": n, "kind": text, "t": n}),
              st.one_of(st.integers(), st.floats(), st.none()), st.text(max_size=5)),
), max_size=6))  # fmt: skip
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
def test_whatever_is_appended_the_records_before_it_come_back(tmp_path: Path, raw: list[bytes]) -> None:
    directory = tmp_path / "any.vet"
    write(directory, RECORDS)
    append(directory, b"\n".join(raw))
    assert only(directory).lines[: len(RECORDS)] == RECORDS


# What is not a recording ---------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing\.vet: no such recording"):
        read(tmp_path / "missing.vet")


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.vet").write_text("text")
    with pytest.raises(BadInput, match="a recording is a directory"):
        read(tmp_path / "a.vet")


@pytest.mark.parametrize("manifest", [
    None, b"", b"{", b"[]", b'{"version":3}',
    pytest.param(b'{"format":"\xff"}'),
], ids=["missing", "empty", "cut", "list", "wrong type", "not utf-8"])  # fmt: skip
def test_a_directory_without_a_proper_manifest(directory: Path, manifest: bytes | None) -> None:
    file = directory / "manifest.json"
    file.unlink()
    if manifest is not None:
        file.write_bytes(manifest)
    with pytest.raises(BadInput, match="not a torchvet recording"):
        read(directory)


def test_a_recording_of_a_newer_format(directory: Path) -> None:
    (directory / "manifest.json").write_text('{"format":"torchvet.recording/2","version":"9"}')
    with pytest.raises(BadInput, match=r"torchvet\.recording/2.*this version reads.*torchvet\.recording/1"):
        read(directory)


def test_a_manifest_with_more_in_it_is_read(directory: Path) -> None:
    (directory / "manifest.json").write_text('{"format":"torchvet.recording/1","version":"0","more":[1]}')
    assert only(directory).lines == RECORDS


def test_a_recording_without_ranks_is_empty(directory: Path) -> None:
    (directory / "rank0.jsonl").unlink()
    assert read(directory).ranks == []


def test_a_rank_that_cannot_be_opened_is_said(directory: Path) -> None:
    (directory / "rank0.jsonl").unlink()
    (directory / "rank0.jsonl").mkdir()
    with pytest.raises(BadInput):
        read(directory)


def test_a_childs_file_that_nobody_may_read_is_said_and_the_programs_own_is_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may take all permissions from the files that it makes from then on."""
    child = directory / "rank0.child1.jsonl"
    child.write_text("")

    def opened(folder: Path, file: Path) -> BinaryIO:
        if file == child:
            raise PermissionError(13, "Permission denied", str(file))
        return file.open("rb")

    monkeypatch.setattr("torchvet.recording.reader.opened", opened)
    own, other = read(directory).ranks
    assert own.lines == RECORDS and not own.damaged
    assert other.child == 1 and "Permission denied" in other.unreadable


# Writing where it does not work --------------------------------------------------------------------------------------


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        RecordingWriter(tmp_path / "file" / "run.vet")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "run.vet").mkdir(mode=0o500)
    with pytest.raises(OSError):
        RecordingWriter(tmp_path / "run.vet")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_does_not_stop_the_program(tmp_path: Path) -> None:
    directory = tmp_path / "run.vet"
    directory.mkdir()
    (directory / "rank0.jsonl").symlink_to("/dev/full")
    writer = RecordingWriter(directory)
    for record in RECORDS:
        writer.write(record)
    assert writer.failed is not None and writer.failed.errno is not None
    writer.close()


OUT_OF_ROOM = """
import resource, sys
from pathlib import Path
from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Step
from torchvet.recording.records.training import Outcome, Unchecked
from handmade import program
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
writer = RecordingWriter(Path(sys.argv[1]))
writer.write(program())
for n in range(1, 400):
    writer.write(Step(n=n, kind="training", t=n / 10))
writer.write_last(Outcome(how="finished", status=0, ticks=399, seconds=40.0))
"""


@pytest.mark.parametrize("room", [9_000, 9_001, 9_013, 12_345, 60_000])
def test_a_full_disk_leaves_whole_records_and_how_the_program_ended(tmp_path: Path, room: int) -> None:
    """The newest make room for the end, and for a word that others are missing."""
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", OUT_OF_ROOM, str(tmp_path / "run.vet"), str(room)], check=True, env=there)
    rank = only(tmp_path / "run.vet")
    assert rank.damaged == 0 and rank.program is not None
    assert [o.how for o in rank.all(Outcome)] == ["finished"]
    (lost,) = [*rank.all(Unchecked), None] if room == 60_000 else rank.all(Unchecked)
    assert (lost is None) == (room == 60_000) == (len(rank.all(Step)) == 399)
    assert lost is None or (lost.failed == "everything" and "File too large" in lost.reason)


def test_what_was_recorded_stays_where_nothing_can_be_written_any_more(tmp_path: Path) -> None:
    late = OUT_OF_ROOM.replace("resource.setrlimit", "limit = lambda: resource.setrlimit")
    late = late.replace("writer.write_last", "limit()\nwriter.write_last")
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", late, str(tmp_path / "run.vet"), "0"], check=True, env=there)
    assert len(only(tmp_path / "run.vet").all(Step)) == 399


def test_a_program_that_closes_all_files_gets_none_of_its_own_written_to(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(program())
    number = writer._lines.file
    assert number is not None and number > 100, "out of the way of a program's own"
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    os.dup2(theirs, number)
    writer.write(steps(1)[0])
    writer.close()
    assert (tmp_path / "theirs").read_bytes() == b""
    os.fstat(number)  # it is the program's now, and open
    for file in (theirs, number):
        os.close(file)
    assert [type(r) for r in only(tmp_path / "run.vet").lines] == [Program, Step]


def test_a_recording_that_is_removed_meanwhile_stops_nothing(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    number = writer._lines.file
    assert number is not None
    os.close(number)
    shutil.rmtree(tmp_path / "run.vet")
    writer.write(program())
    writer.write_last(Outcome(how="finished", status=0, ticks=0, seconds=0.0))
    writer.close()
    assert writer.failed is not None and not list(tmp_path.iterdir())


def test_a_relative_folder_stays_the_same_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert RecordingWriter(Path("run.vet")).path == tmp_path / "run.vet" / "rank0.jsonl"


class Version(str):
    """As torch's own: text, and no `str`."""


def test_text_of_a_class_of_its_own_is_text_beside_names_that_are_none(tmp_path: Path) -> None:
    write(tmp_path / "run.vet", [program(path="/project/\udcff.py", torch=Version("2.13.0"))])
    (written,) = only(tmp_path / "run.vet").all(Program)
    assert (written.torch, written.path) == ("2.13.0", "/project/\\udcff.py")


def test_writing_after_closing_is_dropped(directory: Path) -> None:
    writer = RecordingWriter(directory)
    writer.close()
    writer.close()
    writer.write(program())
    assert only(directory).lines == []


@pytest.mark.parametrize("path", ["/project/\udcff.py", "/project/ä.py", "/project/\x00.py", "\U0001f600"])
def test_names_that_are_no_text_are_written_all_the_same(tmp_path: Path, path: str) -> None:
    write(tmp_path / "run.vet", [Source(path=path, text=f"# {path}"), program(path=path)])
    rank = only(tmp_path / "run.vet")
    assert rank.damaged == 0 and len(rank.lines) == 2
    assert rank.all(Source)[0].path.startswith("/project/") or path == rank.all(Source)[0].path


def test_a_forked_child_does_not_write(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(program())
    child = os.fork()
    if child == 0:
        writer.write(Outcome(how="finished", status=0, ticks=0, seconds=0.0))
        os._exit(0)
    os.waitpid(child, 0)
    writer.write(steps(1)[0])
    writer.close()
    assert [type(r) for r in only(tmp_path / "run.vet").lines] == [Program, Step]


def test_several_threads_write_whole_lines(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    long = Unchecked(check="x" * 2000, reason="y" * 2000)
    threads = [threading.Thread(target=lambda: [writer.write(long) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    rank = only(tmp_path / "run.vet")
    assert rank.damaged == 0 and len(rank.lines) == 800


KILLED = """
import os, signal, sys
from pathlib import Path
from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Step
writer = RecordingWriter(Path(sys.argv[1]))
for n in range(1, 51):
    writer.write(Step(n=n, kind="training", t=0.0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_its_records(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run.vet")], check=False)
    assert ran.returncode < 0
    assert len(only(tmp_path / "run.vet").all(Step)) == 50


def test_a_second_run_into_the_same_directory_replaces_the_first(directory: Path) -> None:
    write(directory, [program(pid=77)])
    rank = only(directory)
    assert len(rank.lines) == 1 and rank.program is not None and rank.program.pid == 77


def test_a_recording_in_memory_needs_no_path() -> None:
    recording = Recording([RankRecording(0, [program()])])
    assert recording.path is None and recording.sources == {} and recording.source_line(Place("a", 1, "")) is None
