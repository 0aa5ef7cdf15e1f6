"""Ranks under torchrun, and torchrun under torchvet: one report, no rank held up, each end as it would have been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchvet.commands import main
from torchvet.probes import following
from torchvet.supervisor.local_ranks import LocalRanks
from torchvet.workflows.report_output import Delivery

SOURCE = str(Path(following.__file__).parents[3])
PROGRAM = """
    import os, sys, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, mode = dist.get_rank(), sys.argv[1]
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for step in range(24):
        x = torch.randn(32, 64)
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if mode == "leak" and rank == 1:
            kept.append(model.module(x))
        if mode == "killed" and rank == 1 and step == 16:
            os.kill(os.getpid(), 9)
    print(f"rank {rank} {loss.item()!r}", flush=True)
    dist.destroy_process_group()
"""
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


class Ended:
    """How a run ended: its status, what the program printed, the reports on stdout, and the one in the file."""

    def __init__(self, folder: Path, words: list[str], temporary: Path | None = None, program: str = PROGRAM) -> None:
        (folder / "main.py").write_text(textwrap.dedent(program))
        mine = {n: v for n, v in os.environ.items() if not n.startswith(("TORCHVET", "RANK", "WORLD", "LOCAL"))}
        known = {**mine, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary or folder)}
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=folder, env=known, capture_output=True, text=True, timeout=240
        )
        self.status, self.talk = done.returncode, done.stderr
        # Ranks share one pipe: what they print at the same moment may stand in one line.
        self.printed = sorted(re.findall(r"rank \d [\d.e-]+", done.stdout))
        self.reports = done.stdout.count("What was seen")
        file = folder / "report.json"
        self.report: dict[str, Any] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}

    @property
    def leak(self) -> dict[str, Any]:
        (found,) = (f for f in self.report["findings"] if f["code"] == "MEM101")
        return dict(found)


FORMS = {
    "torchrun of torchvet": [*TORCHRUN, "-m", "torchvet", "run", "-o", "report.json", "main.py"],
    "torchvet of torchrun": ["torchvet", "run", "-o", "report.json", "-m", *TORCHRUN, "main.py"],
    "nproc": ["torchvet", "run", "-o", "report.json", "--nproc", "2", "main.py"],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_leak_of_one_rank_is_in_one_report(tmp_path: Path, form: str) -> None:
    ended = Ended(tmp_path, [*FORMS[form], "leak"])
    assert (ended.reports, len(ended.printed)) == (1, 2), ended.talk
    assert (ended.leak["rank"], ended.leak["holder"]["name"]) == (1, "kept")
    assert [row["steps"] for row in ended.report["facts"]["ranks"]] == [24, 24]
    # A launcher takes any other status of a rank for a failure, and would start all of them anew.
    assert ended.status == (0 if form == "torchrun of torchvet" else 1)
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith("torchvet-")], "nothing is left behind"


def test_losses_are_those_of_the_program_alone(tmp_path: Path) -> None:
    alone = Ended(tmp_path, [*TORCHRUN, "main.py", "plain"])
    seen = Ended(tmp_path, [*FORMS["nproc"], "plain"])
    assert alone.printed == seen.printed and len(seen.printed) == 2


@pytest.mark.parametrize("form", ["torchrun of torchvet", "nproc"])
def test_a_rank_that_is_killed_is_named_and_the_others_are_whole(tmp_path: Path, form: str) -> None:
    ended = Ended(tmp_path, [*FORMS[form], "killed"])
    assert ended.status != 0 and ended.reports == 1, ended.talk
    rows = ended.report["facts"]["ranks"]
    assert [(row["rank"], row["how"]) for row in rows][1] == (1, "killed") and rows[1]["status"] == -9
    assert rows[1]["steps"] == 17 and rows[0]["steps"] in (17, 18)
    outcome = ended.report["facts"]["outcome"]
    assert outcome["rank"] == 1
    assert (outcome["last"]["step"], outcome["last"]["phase"]) == (18, "before its backward pass")


def ranks(monkeypatch: pytest.MonkeyPatch, **variables: str) -> LocalRanks | None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return LocalRanks.of_environment()


def test_only_a_launcher_that_says_where_ranks_are_shares_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks(monkeypatch) is None
    assert ranks(monkeypatch, RANK="1", WORLD_SIZE="2") is None, "the other may be on another host"
    assert ranks(monkeypatch, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1") is None
    one = ranks(monkeypatch, RANK="5", WORLD_SIZE="8", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
    assert one is not None and (one.rank, one.count, one.reports) == (5, 4, False)


def test_the_one_that_reports_waits_for_those_that_run(tmp_path: Path) -> None:
    first, second = LocalRanks(0, 2, 0, 2), LocalRanks(1, 2, 1, 2)
    first.enter(tmp_path)
    second.enter(tmp_path)
    assert first._state(tmp_path, 1) == "runs"
    second.leave()
    assert first._state(tmp_path, 1) == "left"
    first.wait(tmp_path, failed=False)


def test_one_whose_program_failed_waits_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchvet.supervisor.local_ranks._MOMENT", 0.1)
    first, second = LocalRanks(0, 2, 0, 2), LocalRanks(1, 2, 1, 2)
    second.enter(tmp_path)
    first.wait(tmp_path, failed=True)
    assert first._state(tmp_path, 1) == "runs"
    second.leave()


def test_one_that_is_asked_to_end_waits_no_longer_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = LocalRanks(0, 2, 0, 2)

    def runs(*_: Any) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    monkeypatch.setattr(LocalRanks, "_runs", runs)
    assert first.wait(tmp_path, failed=False)
    monkeypatch.setattr(LocalRanks, "_runs", lambda *_: False)
    assert not first.wait(tmp_path, failed=False)


def test_a_launcher_that_ends_all_ranks_does_not_end_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As torchrun does when another rank has exited with an error, and the first is about to report."""
    monkeypatch.setattr("torchvet.supervisor.local_ranks._MOMENT", 0.1)
    assert ranks(monkeypatch, RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="2")
    diagnose = Delivery.diagnose

    def interrupted(self: Delivery, *given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return diagnose(self, *given)

    monkeypatch.setattr(Delivery, "diagnose", interrupted)
    (tmp_path / "main.py").write_text("print('done')")

    def ended(*_: Any) -> None:
        pytest.fail("SIGTERM would have ended the report")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        assert main(["run", str(tmp_path / "main.py")]) == 0
        assert "What was seen" in capsys.readouterr().out
        assert signal.getsignal(signal.SIGTERM) is ended, "the handler from before is back"
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ranks_of_one_launcher_agree_on_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    here = LocalRanks(0, 2, 0, 2).folder()
    assert here == LocalRanks(1, 2, 1, 2).folder()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert LocalRanks(0, 2, 0, 2).folder() != here, "another start has records of its own"


def test_ranks_that_scripts_start_are_those_of_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun starts each rank by a script of its own, and starts them again on another port when one has failed."""
    (tmp_path / "rank.sh").write_text(f"{sys.executable} -m torchvet run --record kept main.py\nexit $?\n")
    program = """
        import os, sys, torch
        start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        print(f"rank {os.environ['RANK']} {start}", flush=True)
        sys.exit(0 if start else 3)
    """
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    words = [*TORCHRUN, "--max-restarts", "1", "--no-python", "bash", "rank.sh"]
    ended = Ended(tmp_path, words, program=program)
    assert ended.status == 0, ended.talk
    assert {"rank 0 1", "rank 1 1"} <= set(ended.printed)
    assert ended.reports == 2, "one for each start"
    assert {file.name for file in (tmp_path / "kept").glob("rank*.jsonl")} == {"rank0.jsonl", "rank1.jsonl"}
