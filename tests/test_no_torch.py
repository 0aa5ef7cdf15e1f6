"""What works on files never imports torch: that costs seconds, and torch may not be there. And this can be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Program
from torchvet.recording.records.training import Outcome

SPY = """
import sys
from torchvet.commands import main
sys.argv = ["torchvet", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code in (None, 0, 3), end.code
assert "torchvet.commands" in sys.modules
print("LOADED", "torch" in sys.modules)
"""
SNAPSHOT = Path(__file__).parent / "data" / "silmont.pickle"
LIBRARY = "torchvet torchvet.finding torchvet.docgen.documents torchvet.recording torchvet.renderers torchvet.rules "
LIBRARY += "torchvet.source "
LIBRARY += "torchvet.readers.isolated torchvet.snapshots.memory torchvet.inspecting torchvet.allocator "
LIBRARY += "torchvet.traces torchvet.traces.digest torchvet.readers.kineto "
LIBRARY += "torchvet.fleet.merge torchvet.fleet.local_engine torchvet.fleet.ray_engine "
LIBRARY += "torchvet.doctor.report torchvet.editors.server torchvet.agents.server torchvet.agents.tools "
LIBRARY += "torchvet.surfaces.pytest_plugin torchvet.surfaces.expectations torchvet.surfaces.callback "
LIBRARY += "torchvet.skill torchvet.configuration torchvet.checking.project torchvet.fixing.files"


def loads_torch(code: str, *arguments: str, path: Path | None = None) -> bool:
    """Whether a fresh interpreter has imported torch once `code`, which prints LOADED, has run."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), environment.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert "LOADED " in ran.stdout, ran.stdout + ran.stderr
    return ran.stdout.rstrip().endswith("LOADED True")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A run that ended at once."""
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(Program(argv=["a.py"], path="a.py", cwd="/", python="3", torch="2", device="cpu", started=0.0, pid=1))
    writer.write(Outcome(how="finished", status=0, ticks=0, seconds=0.1))
    writer.close()
    return tmp_path / "run.vet"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["report", "--help"],
        ["explain", "MEM101"],
        ["check", "--help"],
        ["inspect", "--help"],
        ["skill", "show"],
        ["doctor"],
    ],
)
def test_commands_that_read_do_not_import_torch(arguments: list[str]) -> None:
    assert not loads_torch(SPY, *arguments)


def test_report_does_not_import_torch(recording: Path) -> None:
    assert not loads_torch(SPY, "report", str(recording))


@pytest.mark.parametrize("options", [[], ["--format", "json"], ["--memory-limit", "8GiB"]])
def test_inspect_does_not_import_torch(options: list[str]) -> None:
    """Nor does the process that reads the file: it would take longer than its limits allow."""
    assert not loads_torch(SPY, "inspect", "--exit-zero", *options, str(SNAPSHOT))


@pytest.mark.parametrize("given", [SNAPSHOT, SNAPSHOT.parent / "traces" / "cpu_input_bound.json.gz"])
def test_exports_are_made_without_torch(given: Path, tmp_path: Path) -> None:
    names = ["a.speedscope.json", "a.perfetto.json", "a.csv", "a.jsonl"]
    asked = [f"--export={tmp_path / name}" for name in names]
    assert not loads_torch(SPY, "inspect", "--exit-zero", str(given), *asked)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(names)


def test_a_snapshot_is_read_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    assert not loads_torch(SPY, "inspect", "--exit-zero", str(SNAPSHOT), path=tmp_path)


@pytest.mark.parametrize("options", [[], ["--format", "sarif"], ["--fix"], ["--diff"], ["--jobs", "2"], ["--no-cache"]])
def test_check_does_not_import_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    """A program that uses torch in every way is read, not run, also by the processes that share the work."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text("import torch\nx = 1  # torchvet: ignore[MEM101]\n")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    assert not loads_torch(SPY, "check", "--exit-zero", *options, ".", path=tmp_path)


TRACE = Path(__file__).parent / "data" / "traces"
INSPECT = """
import sys
from pathlib import Path
from importlib.util import find_spec
from torchvet.charts import Drawing
from torchvet.drawing.trace import charts_of_traces
from torchvet.renderers import renderer_for
from torchvet.traces import report_on
from torchvet.traces.ranks import digests
paths = [Path(p) for p in sys.argv[1:]]
report = report_on(paths)
assert report.findings and renderer_for("text").render(report)
if find_spec("plotly"):
    assert renderer_for("html").render(report, drawing=Drawing(charts=charts_of_traces(digests(paths), report, [])))
print("LOADED", "torch" in sys.modules)
"""


@pytest.mark.parametrize("names", [["cpu_input_bound"], ["gloo_rank0", "gloo_rank1"]], ids=["one", "two"])
def test_traces_are_read_without_torch(names: list[str], tmp_path: Path) -> None:
    """Also by the processes that share the files: this torch would end them."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    assert not loads_torch(INSPECT, *(str(TRACE / f"{n}.json.gz") for n in names), path=tmp_path)


def test_the_library_does_not_import_torch() -> None:
    code = f"import importlib, sys\nfor name in {LIBRARY.split()!r}: importlib.import_module(name)\n"
    assert not loads_torch(code + "print('LOADED', 'torch' in sys.modules)")


def test_these_tests_can_fail(tmp_path: Path) -> None:
    """One import of torch, planted where a command would reach it, is seen; an empty torch keeps this quick."""
    (tmp_path / "torch.py").write_text("")
    planted = SPY.replace("    main()", "    import torch\n    main()")
    assert planted != SPY
    assert loads_torch(planted, "--help", path=tmp_path)
    planted = INSPECT.replace("report = ", "import torch\nreport = ")
    assert loads_torch(planted, str(TRACE / "cpu_input_bound.json.gz"), path=tmp_path)
