"""The other tools: how each is run on a program, and how what it says is read as remarks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rivals import TOOLS, Remark
from casebook.case import Case
from casebook.field import other_tools as in_field
from casebook.program import Program, environment
from casebook.run import PATIENCE

WATCHED = Path(__file__).with_name("watched.py")

INSIGHTS = {
    "on the loader|Dataloader|Prefetch": "loader",
    "Host memory": "host-memory",
    "Peak memory": "gpu-memory",
    "PCIe": "transfers",
    "unfused": "attention",
}
"""gpuprof's insights by words of their titles; others are of a kind of their own."""


class NotRun(RuntimeError):
    """A tool cannot be run on a program here, and why."""


@dataclass(frozen=True)
class Bin:
    """Where the tools are: the folder of the interpreter that has them, and an interpreter of it that starts warm."""

    folder: Path
    python: str


@dataclass(frozen=True)
class OtherTool:
    """One tool. `ask` gives its remarks on a program that is run with these arguments; raises `NotRun`."""

    name: str
    distribution: str
    """What it is installed as."""
    ask: Callable[[Bin, Program, list[str]], list[Remark]]
    reads: bool = False
    """Whether it reads source and runs nothing."""


def _completed(command: list[str], folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, env=environment(), input=text, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise NotRun(f"given up after {PATIENCE} s") from None


def reader(name: str) -> OtherTool:
    """A tool that reads source, as `benchmarks/rivals.py` runs it."""
    tool = next(t for t in TOOLS if t.name == name)

    def ask(tools: Bin, program: Program, _: list[str]) -> list[Remark]:
        files = "\n".join(map(str, program.files))
        done = _completed(tool.command(tools.folder, program.path), program.folder, files)
        try:
            return tool.read(done.stdout)
        except (ValueError, KeyError):
            raise NotRun(_last_line(done.stderr)) from None

    return OtherTool(name, name, ask, reads=True)


def anomalies(tools: Bin, program: Program, argv: list[str]) -> list[Remark]:
    """Autograd's anomaly mode."""
    done = _completed([tools.python, str(in_field.WRAPPER), "anomaly", *program.target, *argv], program.folder)
    printed = done.stdout + done.stderr
    if re.search(in_field.OTHER_TOOLS["anomaly"], printed) is None:
        return []
    found = in_field.innermost(printed, program.folder)
    return [Remark(str(path), line, "nan-gradient", "error", "returned nan values") for path, line in found]


def watched(tool: str) -> Callable[[Bin, Program, list[str]], list[Remark]]:
    """A tool that `watched.py` attaches."""

    def ask(tools: Bin, program: Program, argv: list[str]) -> list[Remark]:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "remarks.json")
            done = _completed([tools.python, str(WATCHED), tool, str(out), *program.target, *argv], program.folder)
            if not out.exists():
                raise NotRun(_last_line(done.stderr))
            return [Remark(*each) for each in json.loads(out.read_text())]

    return ask


def insights(tools: Bin, program: Program, argv: list[str]) -> list[Remark]:
    """gpuprof's insights, by their kinds."""
    return [
        Remark("", 0, next((kind for words, kind in INSIGHTS.items() if re.search(words, r.message)), "other"),
               r.severity, r.message)
        for r in watched("gpuprof")(tools, program, argv)
    ]  # fmt: skip


def scalene(tools: Bin, program: Program, argv: list[str]) -> list[Remark]:
    """scalene's leaks, and the lines of most memory and time."""
    if program.target[0] == "-m":
        raise NotRun("it profiles scripts")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "profile.json")
        command = [str(tools.folder / "scalene"), "run", "--no-stacks", "-o", str(out), *program.target, "---", *argv]
        said = _until_written(command, program.folder, out)
        files = json.loads(out.read_text()).get("files") if out.exists() else None
        if files is None:
            raise NotRun(said)
    return [remark for path, told in files.items() for remark in _of_file(path, told)]


def _until_written(command: list[str], folder: Path, out: Path) -> str:
    """Run a tool until it has written its profile, or ended without: scalene 2.4.0 at times never ends after that.

    Gives the last line that it printed. Raises `NotRun` where it takes too long.
    """
    with tempfile.TemporaryFile() as printed:
        running = subprocess.Popen(
            command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            until = time.monotonic() + PATIENCE
            while running.poll() is None and not _is_whole(out):
                if time.monotonic() > until:
                    raise NotRun(f"given up after {PATIENCE} s")
                time.sleep(0.2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        printed.seek(0)
        return _last_line(printed.read().decode(errors="replace"))


def _is_whole(out: Path) -> bool:
    """Whether a file is there and is whole JSON."""
    try:
        json.loads(out.read_text())
    except (OSError, ValueError):
        return False
    return True


def _of_file(path: str, told: dict[str, Any]) -> list[Remark]:
    leaks = [Remark(path, int(line), "leak", "warning", "possible leak") for line in told["leaks"]]

    def top(kind: str, amount: Callable[[dict[str, Any]], float]) -> list[Remark]:
        lines = sorted((line for line in told["lines"] if amount(line) > 0), key=amount, reverse=True)[:3]
        return [Remark(path, line["lineno"], kind, "note", f"{amount(line):.1f}") for line in lines]

    busy = top("time", lambda line: float(line["n_cpu_percent_c"] + line["n_cpu_percent_python"]))
    return leaks + top("memory", lambda line: float(line["n_peak_mb"])) + busy


def traceml(tools: Bin, program: Program, argv: list[str]) -> list[Remark]:
    """The diagnosis and the issues of TraceML's summary."""
    with tempfile.TemporaryDirectory() as folder:
        logs, unused = Path(folder, "logs"), Path(folder, "unused.json")
        command = [str(tools.folder / "traceml"), "run", str(WATCHED), "--logs-dir", str(logs), "--args"]
        done = _completed([*command, "traceml", str(unused), *program.target, *argv], program.folder)
        summary = next(logs.rglob("final_summary.json"), None)
        if summary is None:
            raise NotRun(_last_line(done.stdout + done.stderr))
        told = json.loads(summary.read_text())
    parts = [told.get("primary_diagnosis"), *(i for part in told.values() if isinstance(part, dict)
                                              for i in part.get("issues") or [])]  # fmt: skip
    graver = {"critical": "error", "warning": "warning", "warn": "warning"}
    return [
        Remark("", 0, str(p["kind"]).lower(), graver.get(p["severity"], "note"), str(p["summary"])) for p in parts if p
    ]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it said nothing"])[-1][:120]


OTHER_TOOLS = (
    reader("TorchFix"),
    reader("torch-preflight"),
    reader("mldoct"),
    OtherTool("detect_anomaly", "torch", anomalies),
    OtherTool("memray", "memray", watched("memray")),
    OtherTool("scalene", "scalene", scalene),
    OtherTool("traceml-ai", "traceml-ai", traceml),
    OtherTool("gpuprof", "gpuprof", insights),
)


def reason_not_to(other: OtherTool, case: Case) -> str:
    """Why a tool cannot be run on a case's program here; empty where it can."""
    return "" if other.reads or "--simulate-gpu" not in case.expect.command else "the program needs a GPU"
