"""Full disks, closed streams, folders that vanish, recordings that are there already: the program's own end stands,
nothing of the user's is lost, and what could not be seen is said."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from observing import Bench

from torchvet.errors import BadInput
from torchvet.recording import read
from torchvet.recording.writer import claim
from torchvet.supervisor.recording_dir import Keep

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
linux = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")


def ran(bench: Bench) -> list[str]:
    """What the program noted of its runs."""
    file = bench.folder / "ran"
    return file.read_text().split() if file.exists() else []


NOTES = "open('ran', 'a').write('x ')"


# Recordings -----------------------------------------------------------------------------------------------------


def test_a_recording_is_never_replaced(bench: Bench) -> None:
    bench.write("program.py", NOTES)
    assert bench.observed("--record", "run.vet", "program.py").status == 0
    first = (bench.folder / "run.vet" / "rank0.jsonl").read_bytes()
    again = bench.observed("--record", "run.vet", "program.py")
    assert again.status == 2 and again.err.startswith("torchvet: --record run.vet: has the recording of another run")
    assert (bench.folder / "run.vet" / "rank0.jsonl").read_bytes() == first and ran(bench) == ["x"]


def test_a_folder_that_happens_to_have_a_manifest_is_left_as_it_is(bench: Bench) -> None:
    bench.write("app/manifest.json", '{"name": "my app"}')
    bench.write("app/rank0.jsonl", "mine")
    bench.write("program.py", NOTES)
    again = bench.observed("--record", "app", "program.py")
    assert again.status == 2 and not ran(bench)
    assert {p.name: p.read_text() for p in (bench.folder / "app").iterdir()} == {
        "manifest.json": '{"name": "my app"}', "rank0.jsonl": "mine"
    }  # fmt: skip


def test_of_two_that_start_at_once_one_has_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a folder and the claim another may come."""
    monkeypatch.setattr(Keep, "_check_free", lambda self, given, launch: claim(self.directory, "another"))
    with pytest.raises(BadInput, match="has the recording of another run"):
        Keep(str(tmp_path / "run.vet"))
    assert [p.name for p in (tmp_path / "run.vet").iterdir()] == ["manifest.json"]


def test_ranks_of_another_launch_are_refused_and_those_of_their_own_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "a"}.items():
        monkeypatch.setenv(name, value)
    Keep(str(tmp_path / "run.vet"))
    monkeypatch.setenv("RANK", "1")
    Keep(str(tmp_path / "run.vet"))
    assert len(read(tmp_path / "run.vet").ranks) == 2
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "b")
    with pytest.raises(BadInput, match="has the recording of another run"):
        Keep(str(tmp_path / "run.vet"))


def test_ranks_that_are_launched_again_with_the_same_variables_do_not_replace_what_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "a"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "run.vet"
    for start, port in ("0", "1"), ("1", "1"), ("2", "2"):  # an elastic launcher starts its ranks again
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", start)
        monkeypatch.setenv("MASTER_PORT", port)
        Keep(str(folder))
    monkeypatch.setenv("MASTER_PORT", "1")
    (folder / "rank0.jsonl").write_text("earlier")
    monkeypatch.setattr(os, "getppid", lambda: 1)  # another launcher
    with pytest.raises(BadInput, match="has an earlier recording of the same ranks"):
        Keep(str(folder))
    assert (folder / "rank0.jsonl").read_text() == "earlier"


def test_ranks_that_are_started_by_hand_again_do_not_replace_what_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    Keep(str(tmp_path / "run.vet"))
    monkeypatch.setenv("RANK", "1")
    Keep(str(tmp_path / "run.vet"))
    with pytest.raises(BadInput, match="has an earlier recording of the same ranks"):
        Keep(str(tmp_path / "run.vet"))


def test_the_only_rank_of_no_launcher_is_a_program_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    Keep(str(tmp_path / "run.vet"))
    with pytest.raises(BadInput, match="has the recording of another run"):
        Keep(str(tmp_path / "run.vet"))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a")
    for _ in range(2):  # torchrun starts it again after a failure
        Keep(str(tmp_path / "launched.vet"))


def test_a_program_that_did_not_start_leaves_no_recording(bench: Bench) -> None:
    bench.write("package/__init__.py", "")
    assert bench.observed("--record", "new/run.vet", "-m", "package").status == 2
    assert not (bench.folder / "new").exists()
    (bench.folder / "old").mkdir()
    assert bench.observed("--record", "old", "-m", "package").status == 2
    assert not list((bench.folder / "old").iterdir())


def test_a_recording_that_the_program_removes_is_said_to_be_gone(bench: Bench) -> None:
    bench.write("program.py", "import shutil; shutil.rmtree('run.vet'); print('done'); raise SystemExit(5)")
    ended = bench.observed("--record", "run.vet", "program.py")
    assert (ended.out, ended.status) == ("done\n", 5)
    assert bench.facts["damaged"] == 1 and bench.facts["status"] == 5


WATCHED = """
import shutil, torch, torchvet
with torchvet.watch(record="run.vet") as watched:
    shutil.rmtree("run.vet")
print(watched.report.verdict, watched.report.not_checked[0].reason)
try:
    torchvet.watch(record="watched.py/run.vet").__enter__()
except torchvet.errors.BadInput as error:
    print(error)
"""


def test_a_program_that_watches_itself_goes_on_without_its_recording(tmp_path: Path) -> None:
    (tmp_path / "watched.py").write_text(WATCHED)
    ended = subprocess.run([sys.executable, "watched.py"], cwd=tmp_path, capture_output=True, text=True)
    first, second = ended.stdout.splitlines()
    assert first.startswith("undetermined ") and "no such recording" in first
    assert second.startswith("watch(): the recording cannot be written") and not ended.stderr


# Disks ----------------------------------------------------------------------------------------------------------


def most(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("room", [120, 700])
def test_the_program_ends_as_it_would_where_nothing_can_be_recorded(bench: Bench, room: int) -> None:
    bench.write("program.py", "print('done'); raise SystemExit(5)")
    ended = bench.run(bench.command("run", "program.py"), preexec_fn=most(room))
    assert "done\n" in ended.out and ended.status == 5 and "Traceback" not in ended.err


@full
def test_a_report_that_cannot_be_printed_is_said_and_the_program_keeps_its_status(bench: Bench) -> None:
    bench.write("program.py", "raise SystemExit(5)")
    with open("/dev/full", "w") as nowhere:
        ended = bench.run(bench.command("run", "program.py"), stdout=nowhere)
        assert (ended.err, ended.status) == (
            "torchvet: the report could not be printed: No space left on device\n", 5
        )  # fmt: skip
        ended = bench.run(bench.command("--help"), stdout=nowhere)
        assert (ended.err, ended.status) == ("torchvet: stdout: No space left on device\n", 2)


@full
def test_a_message_that_nobody_can_read_changes_nothing(bench: Bench) -> None:
    bench.write("program.py", "raise SystemExit(5)")
    with open("/dev/full", "w") as nowhere:
        assert bench.run(bench.command("run", "program.py", "-x"), stderr=nowhere, stdout=nowhere).status == 5
        assert bench.run(bench.command("run", "missing.py"), stderr=nowhere).status == 2


def test_a_report_that_cannot_be_written_is_printed_and_an_earlier_one_stays(bench: Bench) -> None:
    bench.write("program.py", "raise SystemExit(5)")
    bench.write("report.json", "an earlier one").chmod(0o640)
    words = ("run", "--format", "json", "-o", "report.json", "program.py")
    ended = bench.run(bench.command(*words), preexec_fn=most(300))
    assert ended.status == 5 and json.loads(ended.out)["facts"]["test"]["status"] == 5
    assert ended.err == "torchvet: report.json: the report could not be written: File too large\n"
    assert (bench.folder / "report.json").read_text() == "an earlier one"
    assert bench.run(bench.command(*words)).status == 5 and bench.facts["status"] == 5
    assert (bench.folder / "report.json").stat().st_mode & 0o777 == 0o640
    assert {p.name for p in bench.folder.iterdir()} == {"program.py", "report.json"}


# Streams and folders --------------------------------------------------------------------------------------------


@linux
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_are_closed_for_the_program_too(bench: Bench, closed: tuple[int, ...]) -> None:
    bench.write(
        "program.py", "import sys; open('seen', 'w').write(str([sys.stdin, sys.stdout, sys.stderr].count(None)))"
    )

    def prepare() -> None:
        for number in closed:
            os.close(number)

    ended = bench.run(bench.command("run", "-o", "report.json", "program.py"), preexec_fn=prepare)
    assert ended.status == 0 and ended.err == ""
    assert (bench.folder / "seen").read_text() == str(len(closed)) and bench.facts["how"] == "finished"


def test_a_working_directory_that_is_gone_is_said(bench: Bench) -> None:
    script = bench.write("program.py", NOTES)
    (bench.folder / "gone").mkdir()

    def prepare() -> None:
        os.chdir(bench.folder / "gone")
        os.rmdir(bench.folder / "gone")

    ended = bench.run(bench.command("run", str(script)), preexec_fn=prepare)
    assert (ended.out, ended.status) == ("", 2) and "working directory has been removed" in ended.err


def test_a_working_directory_that_the_program_removes_ends_nothing(bench: Bench) -> None:
    bench.write("program.py", "import os; os.mkdir('w'); os.chdir('w'); os.rmdir('../w'); print('done')")
    assert bench.same("program.py").out == "done\n"


@pytest.mark.skipif(sys.platform == "darwin", reason="names there are UTF-8")
@pytest.mark.parametrize("name", [b"a b.py", b"new\nline.py", b"\xff\xe9.py"])
def test_a_script_of_any_name(bench: Bench, name: bytes) -> None:
    path = os.fsdecode(name)
    (bench.folder / path).write_text("import sys; print(ascii(sys.argv[0]))")
    as_c = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert bench.same(path, env=as_c).status == 0
    assert bench.facts["how"] == "finished" and json.dumps(bench.facts)


# Code on the command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(sys.argv, sys.path[0], sys.orig_argv[-4:])",
        "print(__name__, '__file__' in globals(), __spec__, sorted(vars()))",
        "def f():\n    raise ValueError(7)\nf()",
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()",
        "import sys; print(sys.stdin.read()); sys.exit(4)",
        "import warnings; warnings.warn('w'); print(ascii('\u00e4'))",
        "import inspect\ndef f(): pass\ntry: print(inspect.getsource(f))\nexcept OSError as e: print(e)",
        "x = input",
        "",
    ],
)
def test_code_on_the_command_line_runs_as_python_runs_it(bench: Bench, code: str) -> None:
    bench.same("-c", code, "--lr", "0.1")
    assert bench.facts["argv"] == ["-c", code.encode("utf-8", "backslashreplace").decode(), "--lr", "0.1"]


def test_code_that_cannot_be_parsed_is_said_and_nothing_runs(bench: Bench) -> None:
    ended = bench.observed("-c", "x = (")
    assert ended.status == 2 and ended.err.startswith("torchvet: -c, line 1: SyntaxError")
