"""`torchvet doctor`: the report, its exit status, a torch that is missing or broken, and the checklist of a script."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from test_doctor_checks import HEALTHY, SAID

from torchvet.commands import main
from torchvet.doctor import asking, report
from torchvet.doctor.asking import Answer, ask
from torchvet.doctor.machine import Machine
from torchvet.doctor.script import checklist, project_files, shadowed, worker_guard

SCHEMA = Path(__file__).parents[2] / "docs/report.schema.json"
TRAIN = """
import torch
import helpers.data
from models import net


def main():
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.cuda.amp.GradScaler()
    for x in helpers.data.batches():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    model.eval()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/__init__.py").write_text("from . import checkpoints\n")
    (tmp_path / "helpers/checkpoints.py").write_text("import torch\n\ndef keep(m):\n    torch.save(m, 'a.pt')\n")
    (tmp_path / "helpers/data.py").write_text("def batches():\n    return []\n")
    (tmp_path / "models.py").write_text("import torch\nimport train\nfrom torch.nn import Linear as net\n")
    (tmp_path / "other.py").write_text("import torch\nx = torch.no_grad()\n")
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the machine is and what torch says; tests change it."""
    given: dict[str, Any] = {"machine": HEALTHY, "answer": Answer(SAID)}
    monkeypatch.setattr(report, "this_machine", lambda: given["machine"])
    monkeypatch.setattr(report, "ask", lambda: given["answer"])
    monkeypatch.setattr(report, "machine_checks", lambda m: report_checks(m, []))
    return given


report_checks = report.machine_checks


def test_a_healthy_environment(environment: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No known trap in this environment\n") and "2.13.0, built for CUDA 12.8" in out
    assert main(["doctor", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads(SCHEMA.read_text("utf-8")))
    assert found["verdict"] == "clean" and found["subject"] == {"kind": "doctor", "path": None}
    assert {c["level"] for c in found["facts"]["doctor"]["checks"]} == {"ok"}


def test_a_trap_is_told_with_what_to_do(environment: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    environment["machine"] = msgspec.structs.replace(HEALTHY, shared_memory=(64 << 20, 64 << 20))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("1 warning in this environment\n")
    assert "warning shared-memory" in out and "67.1 MB of 67.1 MB are free in /dev/shm" in out and "--shm-size" in out
    assert main(["doctor", "--fail-on", "error"]) == 0
    assert main(["doctor", "--exit-zero"]) == 0
    assert main(["doctor", "--format", "markdown"]) == 1
    assert "| warning | shared-memory |" in capsys.readouterr().out


def test_without_torch_it_could_not_judge(environment: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    environment["answer"] = Answer({}, "torch is not installed for python", installed=False)
    assert main(["doctor"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("Could not judge all of it") and "torch is not installed for python" in " ".join(out.split())
    environment["machine"] = msgspec.structs.replace(HEALTHY, open_files=16)
    assert main(["doctor"]) == 1


@pytest.mark.parametrize(("format", "status"), [("sarif", 2), ("github", 2), ("JSON", 0), ("nothing", 2)])
def test_formats_for_source_files_are_refused(environment: dict[str, Any], format: str, status: int) -> None:
    assert main(["doctor", "--format", format]) == status


def test_a_script_that_is_none(environment: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "nothing.py"]) == 2
    assert main(["doctor", "helpers"]) == 2
    err = capsys.readouterr().err
    assert "nothing.py: no such file" in err and "helpers: is a folder" in err and "Traceback" not in err


def test_a_scripts_source_and_checklist(
    environment: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "train.py", "--format", "json", "--fail-on", "info"]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads(SCHEMA.read_text("utf-8")))
    assert "AMP210" in [f["code"] for f in found["findings"]]
    items = {item["name"]: item["seen"] for item in found["facts"]["doctor"]["checklist"]}
    assert items == {
        "seed": "train.py:8",
        "zero_grad": "train.py:13",
        "no_grad": "",  # other.py is not imported
        "checkpoint": "helpers/checkpoints.py:4",
    }
    main(["doctor", "train.py"])
    out = capsys.readouterr().out
    assert "Before training" in out and "in the source of train.py" in out and "not seen in the script" in out
    (folder / "pyproject.toml").write_text("[tool.torchvet]\nignore = ['AMP210']\n")
    main(["doctor", "train.py", "--format", "json"])
    assert "AMP210" not in capsys.readouterr().out


def test_files_are_followed_below_the_scripts_folder_only(folder: Path) -> None:
    names = [str(f.relative_to(folder.resolve())) for f in project_files(folder / "train.py")]
    assert sorted(names) == [
        "helpers/__init__.py",
        "helpers/checkpoints.py",
        "helpers/data.py",
        "models.py",
        "train.py",
    ]
    (folder / "broken.py").write_text("import models\ndef (")
    assert project_files(folder / "broken.py") == [(folder / "broken.py").resolve()]


def test_a_script_that_trains_nothing_has_no_checklist(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nprint(torch.ones(1))\n")
    assert checklist([tmp_path / "a.py"], tmp_path) == []


def test_a_file_that_stands_in_the_way_of_torch(folder: Path) -> None:
    script = folder / "train.py"
    assert list(shadowed(script, ["random", "types"])) == []
    (folder / "random.py").write_text("")
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text("")
    assert [c.found for c in shadowed(script, ["random", "types"])] == [
        "random.py lies beside train.py",
        "torch/__init__.py lies beside train.py",
    ]


@pytest.mark.parametrize(
    ("method", "source", "found"),
    [
        ("spawn", "loader = DataLoader(data, num_workers=2)", 1),
        ("spawn", "for x in torch.utils.data.DataLoader(data, num_workers=2):\n    pass", 1),
        ("spawn", "loader = DataLoader(data)", 0),
        ("spawn", "loader = DataLoader(data, num_workers=0)", 0),
        ("fork", "loader = DataLoader(data, num_workers=2)", 0),
        ("forkserver", "if __name__ == '__main__':\n    loader = DataLoader(data, num_workers=2)", 0),
        ("spawn", "def main():\n    loader = DataLoader(data, num_workers=2)", 0),
    ],
)
def test_workers_that_would_start_workers(tmp_path: Path, method: str, source: str, found: int) -> None:
    (tmp_path / "a.py").write_text(source)
    machine: Machine = msgspec.structs.replace(HEALTHY, start_method=method)
    assert len(list(worker_guard(tmp_path / "a.py", machine))) == found


def installed(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch of this text, before any other."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12: cannot open"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise SystemExit(3)", "status 3"),
    ],
)
def test_a_broken_torch_breaks_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, failure: str
) -> None:
    installed(tmp_path, text, monkeypatch)
    answer = ask()
    assert answer.said == {} and answer.installed and failure in answer.failure


def test_a_torch_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "import time; time.sleep(60)", monkeypatch)
    assert "did not end within 1 s" in ask(seconds=1).failure


def test_a_missing_torch_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking.importlib.util, "find_spec", lambda name: None)
    assert not ask().installed


def test_the_torch_that_is_installed_answers_every_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of that name in the working directory is not asked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segment:True")
    said = ask().said
    assert said["version"] and said["threads"] >= 1
    assert {"random", "json", "pathlib"} <= set(said["imported"]) and not {"sys", "os"} & set(said["imported"])
    assert "Unrecognized key 'expandable_segment'" in said["allocator"]["error"]
    failed = {name for name, value in said.items() if isinstance(value, dict) and set(value) == {"error"}}
    assert failed == {"allocator"}
