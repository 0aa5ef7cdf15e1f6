"""`torchvet inspect --engine`: many files, one report."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchvet.commands import main
from torchvet.errors import BadInput, MissingExtra
from torchvet.finding import Report
from torchvet.fleet import inspect_fleet
from torchvet.fleet.digest import Asked, Digest, digest_of
from torchvet.fleet.engines import DIED, Work
from torchvet.fleet.local_engine import LocalEngine
from torchvet.fleet.paths import files_of, local_copy
from torchvet.renderers import renderer_for


class Elsewhere:
    """An engine whose workers have a working directory of their own, as those of a cluster that runs already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def digests(self, paths: Sequence[str], work: Work) -> Generator[Digest, None, None]:
        for path in paths:
            here = os.getcwd()
            os.chdir(self.folder)
            try:
                digest = work(path)
            finally:
                os.chdir(here)
            yield digest


class Here:
    """An engine without processes. Ctrl-C comes after so many files."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def digests(self, paths: Sequence[str], work: Work) -> Generator[Digest, None, None]:
        for number, path in enumerate(paths):
            if number == self.most:
                raise KeyboardInterrupt
            yield work(path)


@pytest.fixture(scope="module")
def report(fleet: Path) -> Report:
    return inspect_fleet(files_of([str(fleet)]), Here(), Asked())


def occurrence(report: Report, code: str) -> dict[str, Any]:
    found: dict[str, Any] = next(o for o in report.facts["occurrences"] if o["code"] == code)
    return found


def text(report: Report, format: str = "text") -> str:
    return renderer_for(format).render(report, width=0)


def test_a_leak_that_three_of_four_ranks_have_is_one_finding(report: Report, fleet: Path) -> None:
    (leak,) = (f for f in report.findings if f.code in ("MEM101", "MEM102"))
    assert leak.ranks == [1, 2, 3] and leak.rank == 3 and leak.measured.bytes_per_step == 3 << 20
    facts = occurrence(report, leak.code)
    assert facts["files"] == [str(fleet / f"rank{n}.pickle") for n in (1, 2, 3)]
    assert (facts["figure"], facts["low"], facts["median"], facts["high"]) == (
        "bytes_per_step", 1 << 20, 2 << 20, 3 << 20,
    )  # fmt: skip
    assert leak.related[0].message == "3 of 4 snapshots (ranks 1, 2, 3): 1.0 MB to 3.1 MB per step, median 2.1 MB"


def test_what_only_a_comparison_shows_is_found_by_the_digests(report: Report) -> None:
    late = next(f for f in report.findings if f.code == "DST103")
    assert late.rank == 2 and "arrives" in late.message


def test_damaged_files_are_listed_and_not_fatal(report: Report, fleet: Path) -> None:
    listed = {item.check: item.reason for item in report.not_checked}
    assert "ends in the middle" in listed[str(fleet / "rank8.pickle")]
    assert "is not known" in listed[str(fleet / "rank9.json")]
    assert str(fleet / "notes.txt") not in listed
    fleet_facts = report.facts["fleet"]
    assert (fleet_facts["files"], fleet_facts["read"], fleet_facts["kinds"]) == (10, 8, {"snapshot": 4, "trace": 4})


def test_a_gap_of_many_files_is_said_once(tmp_path: Path) -> None:
    from making_snapshots import Recorder, Training

    for rank in range(3):
        training = Training(Recorder(), layers=2, activations=4)
        training.step()
        training.recorder.write(tmp_path / f"rank{rank}.pickle")
    found = inspect_fleet(files_of([str(tmp_path)]), Here(), Asked())
    growth = [g for g in found.not_checked if g.check == "growth from step to step in the file"]
    assert len(growth) == 1 and "(3 files: " in growth[0].reason


def test_the_page_says_what_files_have_in_common(report: Report) -> None:
    page = text(report)
    assert page.startswith("8 of 10 files read: ")
    assert "seen in" in page and "3 of 4 snapshots" in page and "traces       4" in page
    assert text(report, "markdown").startswith("## torchvet: 8 of 10 files read: ")


def test_files_that_stand_out_are_named(tmp_path: Path) -> None:
    from making_snapshots import MB, Recorder, Training

    for rank in range(5):
        training = Training(Recorder(), layers=2, width=(64 if rank == 3 else 4) * MB, activations=4)
        for _ in range(2):
            training.step()
        training.recorder.write(tmp_path / f"rank{rank}.pickle")
    found = inspect_fleet(files_of([str(tmp_path)]), Here(), Asked())
    assert {(o["rank"], o["column"]) for o in found.facts["outliers"]} == {(3, "peak_bytes"), (3, "reserved_bytes")}
    assert "rank3.pickle has a peak of" in " ".join(text(found).split())


def test_both_engines_give_the_same_bytes(report: Report, fleet: Path) -> None:
    processes = inspect_fleet(files_of([str(fleet)]), LocalEngine(2), Asked())
    assert text(processes, "json") == text(report, "json")


def test_ray_gives_the_same_bytes(report: Report, fleet: Path) -> None:
    pytest.importorskip("ray")
    from torchvet.fleet.ray_engine import RayEngine

    assert text(inspect_fleet(files_of([str(fleet)]), RayEngine(2), Asked()), "json") == text(report, "json")


def test_relative_paths_are_those_of_the_command(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fleet.parent)
    paths = files_of([fleet.name])
    assert not any(Path(path).is_absolute() for path in paths)
    there = text(inspect_fleet(paths, Elsewhere(tmp_path), Asked()), "json")
    assert there == text(inspect_fleet(paths, Here(), Asked()), "json")


def test_a_cluster_that_runs_already_gives_the_same_bytes(
    fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    from torchvet.fleet.ray_engine import RayEngine

    monkeypatch.chdir(tmp_path)
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        monkeypatch.chdir(fleet.parent)
        paths = files_of([fleet.name])
        there = text(inspect_fleet(paths, RayEngine(address=cluster.address), Asked()), "json")
    finally:
        cluster.shutdown()
    assert there == text(inspect_fleet(paths, Here(), Asked()), "json")


def test_an_address_where_nothing_listens_is_bad_input_at_once(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ray:
        is_initialized, init = (
            staticmethod(lambda: False),
            staticmethod(lambda **_: pytest.fail("Ray tries for minutes")),
        )

    monkeypatch.setattr("torchvet.fleet.ray_engine.extra", lambda *_: Ray)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert main(["inspect", str(fleet), "--engine", "ray", "--address", address]) == 2
    assert f"Ray: the cluster at {address} cannot be reached: " in capsys.readouterr().err


def test_an_ignored_rule_is_asked_of_no_file_and_in_no_comparison(fleet: Path) -> None:
    found = inspect_fleet(files_of([str(fleet)]), Here(), Asked(ignore=("MEM1", "DST")))
    assert not {f.code for f in found.findings} & {"MEM101", "MEM102", "DST103"}


def test_an_interrupted_report_says_how_far_it_came(fleet: Path) -> None:
    found = inspect_fleet(files_of([str(fleet)]), Here(3), Asked())
    assert text(found).startswith("Interrupted, 3 of 10 files read: ")
    assert found.not_checked[0].check == "7 files" and found.not_checked[0].reason.startswith("interrupted")
    nothing = inspect_fleet(files_of([str(fleet)]), Here(0), Asked())
    assert nothing.verdict == "undetermined" and text(nothing).startswith("Interrupted, 0 of 10 files read: ")


def test_none_that_can_be_read_is_bad_input(fleet: Path) -> None:
    with pytest.raises(BadInput, match=r"none of 2 files could be read; the first: .*rank8.pickle"):
        inspect_fleet([str(fleet / "rank8.pickle"), str(fleet / "rank9.json")], Here(), Asked())


def test_the_digest_of_a_file_is_some_kilobytes(fleet: Path) -> None:
    import pickle

    for name in ("rank3.pickle", "rank2.json.gz"):
        assert len(pickle.dumps(digest_of(str(fleet / name), Asked()))) < 20_000


def test_many_collectives_are_cut_at_whole_steps() -> None:
    from torchvet.fleet.digest import _fewer
    from torchvet.readers.trace_facts import Collective

    def calls(step: int, number: int) -> list[Collective]:
        return [Collective(step, "all_reduce", 0.0, 0.1, "backward")] * number

    assert len(_fewer(calls(0, 300) + calls(1, 200) + calls(2, 1))) == 500
    assert len(_fewer(calls(0, 900) + calls(1, 1))) == 900


# ---- the verb


def test_the_verb_reports_and_shows_progress(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", f"{fleet}/*.pickle", str(fleet), "--engine", "local", "--workers", "2", "--format", "json"]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["facts"]["fleet"]["files"] == 10
    # On a busy machine there is a line before it.
    last = shown.err.splitlines()[-1]
    assert last.startswith("torchvet: 10 of 10 files · ") and last.endswith(" MB/s")
    assert main([*arguments, "--quiet"]) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--workers", "2"], "--workers needs --engine"),
        (["--address", "auto"], "--address needs --engine"),
        (["--engine", "local", "--address", "auto"], "add --engine ray"),
        (["--engine", "local", "--export", "a.csv"], "without --engine"),
        (["--engine", "local", "no*where"], "no*where: means no file"),
        (["--engine", "local", "nothere://x"], "nothere://x: "),
        (["--engine", "local", "-o", "{fleet}/rank1.json.gz.json"], None),
    ],
)
def test_options_that_make_no_sense_are_status_2(
    more: list[str], message: str | None, fleet: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if message is None:
        (tmp_path / "a.json").write_bytes(b"{}")
        more, message = ["--engine", "local", str(tmp_path / "a.json"), "-o", str(tmp_path / "a.json")], "to be read"
    assert main(["inspect", str(fleet / "rank1.pickle"), *more]) == 2
    assert message in capsys.readouterr().err


def test_without_the_extra_the_message_says_how_to_install_it(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("fsspec", "ray"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main(["inspect", "s3://bucket/*.pickle", "--engine", "local"]) == 2
    assert "needs fsspec: python -m pip install 'torchvet[fleet]'" in capsys.readouterr().err
    assert main(["inspect", str(fleet), "--engine", "ray"]) == 2
    assert "needs ray: python -m pip install 'torchvet[fleet]'" in capsys.readouterr().err
    with pytest.raises(MissingExtra):
        files_of(["memory://x"])


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process there")
def test_ctrl_c_gives_a_partial_report_and_ends_by_the_signal(fleet: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "rank5.pickle"
    os.mkfifo(pipe)  # reading it never ends
    code = (
        "import sys, time\nfrom torchvet.commands import main\nfrom torchvet.fleet import digest, progress\n"
        "progress._RARELY, read = 0, digest.inspect_paths\n"
        f"digest.inspect_paths = lambda paths, **more: time.sleep(600) if str(paths[0]) == {str(pipe)!r} else "
        "read(paths, **more)\nsys.exit(main())"
    )
    command = [sys.executable, "-c", code, "inspect", str(fleet / "*.pickle"), str(pipe), "--engine", "local"]
    process = subprocess.Popen(
        [*command, "--workers", "2", "-o", str(tmp_path / "r.json")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    while not process.stderr.readline().startswith("torchvet: 5 of 6 files"):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, said
    assert out.startswith("Interrupted, 4 of 6 files read: ")
    assert json.loads((tmp_path / "r.json").read_text())["facts"]["fleet"]["interrupted"] is True


# ---- workers that die


def killed(path: str, folder: Path, times: int) -> Digest:
    """The worker that gets the third file dies by SIGKILL, so many times."""
    marks = [folder / f"{Path(path).name}.{number}" for number in range(times)]
    left = [mark for mark in marks if not mark.exists()]
    if path.endswith("2") and left:
        left[0].touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Digest(path=path, kind="run", verdict="clean")


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL there")
@pytest.mark.parametrize(("times", "lost"), [(1, []), (2, ["2"])])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_killed_worker_costs_its_file_alone_and_not_at_once(
    workers: int, times: int, lost: list[str], tmp_path: Path
) -> None:
    paths = [str(number) for number in range(9)]
    found = list(LocalEngine(workers).digests(paths, partial(killed, folder=tmp_path, times=times)))
    assert sorted(d.path for d in found) == paths
    assert [d.path for d in found if d.error is not None] == lost


@pytest.mark.parametrize(("times", "lost"), [(1, []), (2, ["2"])])
def test_ray_tries_a_killed_worker_again(times: int, lost: list[str], tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    from torchvet.fleet.ray_engine import RayEngine

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import this file
    found = list(RayEngine(2).digests([str(n) for n in range(4)], partial(killed, folder=tmp_path, times=times)))
    assert sorted(d.path for d in found) == ["0", "1", "2", "3"]
    assert [(d.path, d.error) for d in found if d.error is not None] == [(path, DIED) for path in lost]


def test_what_ray_prints_does_not_get_into_the_report(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def some(references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        print("(raylet) A worker died")
        return references[:num_returns], references[num_returns:]

    class Ray:
        class exceptions:
            WorkerCrashedError = RayError = ValueError

        is_initialized, cluster_resources = staticmethod(lambda: True), staticmethod(lambda: {"CPU": 2.0})
        wait, get, cancel = staticmethod(some), staticmethod(lambda one: one()), staticmethod(lambda *_, **__: None)

        @staticmethod
        def remote(**_: object) -> Any:
            return lambda work: SimpleNamespace(remote=partial(partial, work))

    monkeypatch.setattr("torchvet.fleet.ray_engine.extra", lambda *_: Ray)
    assert main(["inspect", f"{fleet}/rank1.pickle", "--engine", "ray", "--format", "json"]) in (0, 1, 3)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["facts"]["fleet"]["read"] == 1
    assert "(raylet) A worker died" in shown.err


def waits(path: str) -> Digest:
    time.sleep(600 if path == "1" else 0)
    return Digest(path=path)


def test_closing_the_iterator_ends_the_processes() -> None:
    before = time.monotonic()
    coming = LocalEngine(2).digests(["0", "1", "2"], waits)
    assert next(coming).path == "0"
    coming.close()
    assert time.monotonic() - before < 30


# ---- remote files


def test_remote_files_are_copied_read_and_removed(
    fleet: Path, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.put(str(fleet) + "/", "/ranks", recursive=True)
    paths = files_of(["memory://ranks/rank*", "memory://ranks"])
    assert [p for p in paths if p.startswith("memory://")] == paths and len(paths) == 10
    found = inspect_fleet(paths, Here(), Asked())
    assert list(tmp_path.iterdir()) == []
    for name in ("verdict", "findings"):
        assert getattr(found, name) == getattr(report, name)
    assert found.facts["rows"] == [
        {**row, "path": row["path"].replace(str(fleet), "memory:///ranks")} for row in report.facts["rows"]
    ]
    damaged = {g.check: g.reason for g in found.not_checked}
    assert "ends in the middle" in damaged["memory:///ranks/rank8.pickle"]
    assert str(tmp_path) not in text(found, "json")


def test_a_remote_recording_is_a_folder(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for name in ("manifest.json", "rank0.jsonl"):
        memory.pipe(f"/runs/a.vet/{name}", b"{}")
    (path,) = files_of(["memory://runs"])
    with local_copy(path) as place:
        assert place.name == "a.vet" and {p.name for p in place.iterdir()} == {"manifest.json", "rank0.jsonl"}
    assert not place.exists()


def test_a_remote_file_that_has_gone_is_damaged() -> None:
    pytest.importorskip("fsspec")
    digest = digest_of("memory://gone.pickle", Asked())
    assert digest.error is not None
    with pytest.raises(BadInput, match="means no file"):
        files_of(["memory://gone.pickle"])


def test_local_recordings_and_globs_are_found(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "a.vet"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    assert files_of([str(tmp_path / "deep")]) == files_of([str(tmp_path / "*" / "*.vet")]) == [str(run)]


def test_a_recording_has_a_row_with_what_its_report_says(tmp_path: Path) -> None:
    from handmade import evidence, program, steps

    from torchvet.recording import RecordingWriter
    from torchvet.recording.records.training import Outcome

    for rank in range(2):
        writer = RecordingWriter(tmp_path / f"rank{rank}.vet")
        records = [program(), *steps(40), *evidence(40), Outcome(how="finished", status=0, ticks=40, seconds=4.0)]
        for record in records[: None if rank == 0 else 3]:
            writer.write(record)
        writer.close()
    found = inspect_fleet(files_of([str(tmp_path)]), Here(), Asked())
    assert [(row["kind"], row["rank"], row["steps"]) for row in found.facts["rows"]] == [("run", 0, 40), ("run", 1, 2)]
    assert found.verdict == "undetermined"  # one of them is evidence of nothing
    alone = inspect_fleet([str(tmp_path / "rank0.vet")], Here(), Asked())
    assert alone.verdict == "clean" and text(alone).startswith("1 of 1 file read: No fault found")


def test_the_word_that_a_file_is_named_by_stays_in_texts(tmp_path: Path) -> None:
    data = Path(__file__).resolve().parents[1] / "data" / "traces" / "cpu_collector.json.gz"
    (tmp_path / "trace").write_bytes(data.read_bytes())
    (gap,) = digest_of(str(tmp_path / "trace"), Asked()).not_checked
    assert gap.reason == "the trace holds no work of a device"
