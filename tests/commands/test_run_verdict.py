"""Whose exit status wins, what is printed where, what is refused before anything runs."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from observing import Bench, Ran


def run(bench: Bench, *words: str, verdict: str = "clean", **more: Any) -> Ran:
    return bench.run(bench.command("run", *words), env={"TEST_VERDICT": verdict, **more.pop("env", {})}, **more)


@pytest.mark.parametrize(
    ("verdict", "options", "own", "status"),
    [
        ("clean", [], 0, 0),
        ("error", [], 0, 1),
        ("warning", [], 0, 1),
        ("info", [], 0, 0),
        ("undetermined", [], 0, 3),
        ("warning", ["--fail-on", "error"], 0, 0),
        ("info", ["--fail-on", "info"], 0, 1),
        ("error", ["--fail-on", "never"], 0, 0),
        ("undetermined", ["--fail-on", "never"], 0, 3),
        ("error", ["--exit-zero"], 0, 0),
        ("undetermined", ["--exit-zero"], 0, 0),
        ("error", [], 7, 7),
        ("clean", [], 7, 7),
        ("error", ["--exit-zero"], 7, 7),
        ("error", ["--exit-code=findings"], 7, 1),
        ("clean", ["--exit-code", "findings"], 7, 0),
        ("undetermined", ["--exit-code=findings"], 7, 3),
        ("error", ["--exit-code=findings", "--exit-zero"], 7, 0),
        ("crash", [], 0, 2),
        ("crash", [], 7, 7),
    ],
)
def test_exit_status(bench: Bench, verdict: str, options: list[str], own: int, status: int) -> None:
    bench.write("program.py", f"import sys; print('ran'); sys.exit({own})")
    ran = run(bench, *options, "program.py", verdict=verdict)
    assert ran.out.startswith("ran\n")
    assert ran.status == status
    assert ("bug in torchvet" in ran.err) == (verdict == "crash")


def test_steps_end_the_program_as_a_success(bench: Bench) -> None:
    loop = "import torch\nfor n in range(100):\n    print(n)\n    torch.step()\n"
    bench.write("program.py", loop)
    ran = bench.observed("--steps", "5", "program.py", "--steps", "9")
    assert ran == Ran("0\n1\n2\n3\n4\n", "", 0)
    assert (bench.facts["how"], bench.facts["ticks"]) == ("steps-reached", 5)
    assert bench.facts["argv"] == ["program.py", "--steps", "9"]
    body = loop.replace("\n", "\n    ")
    bench.write("program.py", f"try:\n    {body}\nexcept BaseException:\n    raise RuntimeError('cut short')\n")
    assert bench.observed("--steps=5", "program.py").status == 0
    assert bench.facts["how"] == "steps-reached"


def test_options_end_at_the_script_or_the_module(bench: Bench) -> None:
    bench.write("program.py", "import sys; print(sys.argv[1:])")
    words = ["--steps", "5", "-o", "x", "-m", "y", "--", "--help", "-q"]
    assert bench.observed("--steps", "7", "program.py", *words).out == f"{words}\n"
    for start in (["-m", "program"], ["-mprogram"], ["--steps", "7", "-m", "program"], ["-q", "-mprogram"]):
        assert bench.observed(*start, *words).out == f"{words}\n"
    assert bench.observed("-m", "program", "--", "a").out == "['--', 'a']\n"
    assert bench.observed("--", "program.py", "a").out == "['a']\n"


def test_where_the_report_goes(bench: Bench) -> None:
    bench.write("program.py", "import sys; print('ran'); print('talk', file=sys.stderr)")
    plain = run(bench, "program.py")
    assert plain.out.startswith("ran\n") and "No fault found" in plain.out
    assert plain.err == "talk\n"
    assert run(bench, "--quiet", "program.py").out == "ran\n"
    printed = json.loads(run(bench, "--quiet", "--format", "json", "program.py").out.removeprefix("ran\n"))
    assert printed["facts"]["test"]["how"] == "finished"
    both = run(bench, "-o", "a.json", "-o", "b.txt", "program.py")
    assert both.out == plain.out
    assert json.loads((bench.folder / "a.json").read_text()) == printed
    assert (bench.folder / "b.txt").read_text() == plain.out.removeprefix("ran\n")


def test_a_reader_that_has_gone_is_no_fault(bench: Bench) -> None:
    bench.write("program.py", "pass")
    read, write = os.pipe()
    os.close(read)
    ran = run(bench, "program.py", stdout=write, verdict="error")
    os.close(write)
    assert (ran.err, ran.status) == ("", 1)


def test_limits_and_selections_reach_the_diagnosis(bench: Bench) -> None:
    bench.write("program.py", "pass")
    bench.observed("--memory-limit", "24GiB", "--select", "mem,TRN101", "--ignore", "MEM2", "program.py")
    facts = bench.facts
    assert facts["limit"] == 24 * 1024**3
    left_out = set(facts["ignore"])
    assert {"MEM202", "TRN102", "AMP101"} <= left_out and not {"MEM101", "TRN101"} & left_out


REFUSED = {
    "no program": ([], "no program given"),
    "no such script": (["trian.py"], "trian.py: no such file; did you mean train.py?"),
    "no such folder": (["nowhere/x.py"], "nowhere/x.py: no such file"),
    "a folder without __main__": (["empty"], "empty: is a folder without a __main__.py"),
    "a syntax error": (["broken.py"], "broken.py, line 2: SyntaxError: '(' was never closed\n    print(1\n         ^"),
    "a bad encoding": (["bytes.py"], "bytes.py"),
    "no such module": (["-m", "nonexistent_one"], "-m nonexistent_one: no module named nonexistent_one"),
    "no such submodule": (["-m", "pkg.other"], "-m pkg.other: no module named pkg.other"),
    "no main in a package": (["-m", "pkg"], "pkg.__main__"),
    "a file as module": (["-m", "train.py"], "run the file instead: torchvet run train.py"),
    "no module given": (["-m"], "-m"),
    "an unknown option": (["--stepz", "3", "train.py"], "--stepz"),
    "steps that are none": (["--steps", "0", "train.py"], "0 is not in the range"),
    "a size that is none": (["--memory-limit", "24 pounds", "train.py"], "'24 pounds' is not a size"),
    "an unknown format": (["--format", "yaml", "train.py"], "yaml"),
    "an unknown extension": (["-o", "report.docx", "train.py"], "report.docx"),
    "a report nowhere": (["-o", "nowhere/r.json", "train.py"], "the folder nowhere does not exist"),
    "a report over a folder": (["-o", "empty.json", "train.py"], "is a folder"),
    "unknown codes": (["--select", "XYZ9", "train.py"], "XYZ9: no rule's code starts so"),
    "a dry run without a card": (["--dry", "train.py"], "add --simulate-gpu CARD"),
    "a dry forecast": (
        ["--simulate-gpu", "l4", "--dry", "--precision-forecast", "train.py"],
        "--dry cannot be combined",
    ),
    "a full folder": (["--record", "pkg", "train.py"], "--record pkg: is not empty and no recording"),
    "a file as recording": (["--record", "train.py", "train.py"], "is a file; a recording is a folder"),
    "below a file": (["--record", "train.py/x.vet", "train.py"], "cannot be written there"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_the_program_starts(bench: Bench, name: str) -> None:
    words, message = REFUSED[name]
    bench.write("train.py", "print('started')")
    bench.write("broken.py", "print('started')\nprint(1\n")
    (bench.folder / "bytes.py").write_bytes(b"x = '\xff'\n")
    bench.write("pkg/__init__.py", "")
    (bench.folder / "empty").mkdir()
    (bench.folder / "empty.json").mkdir()
    ran = run(bench, *words)
    assert ran.status == 2
    assert message in ran.err
    assert "started" not in ran.out and "Traceback" not in ran.err


def test_torch_is_needed(bench: Bench) -> None:
    bench.write("train.py", "print('started')")
    ran = run(bench, "train.py", env={"TEST_NO_TORCH": "1"})
    assert (ran.status, ran.out) == (2, "")
    if "torch is not installed" not in ran.err:
        pytest.fail(ran.err)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions(bench: Bench) -> None:
    bench.write("train.py", "print('started')").chmod(0)
    assert "cannot be read" in run(bench, "train.py").err
    bench.write("other.py", "print('started')")
    (bench.folder / "locked").mkdir(mode=0o555)
    for words in (["--record", "locked/x.vet"], ["-o", "locked/r.json"]):
        ran = run(bench, *words, "other.py")
        assert (ran.status, ran.out) == (2, "")


def test_a_recording_is_kept(bench: Bench) -> None:
    bench.write("program.py", "import os; os.chdir('/'); print('ran')")
    assert bench.observed("--record", "deep/run.vet", "program.py").status == 0
    assert (bench.facts["kept"], bench.facts["outcomes"]) == (True, 1)
    assert sorted(p.name for p in (bench.folder / "deep/run.vet").iterdir()) == ["manifest.json", "rank0.jsonl"]


def test_ranks_share_a_recording(bench: Bench) -> None:
    bench.write("program.py", "print('ran')")
    for rank in ("0", "1"):
        bench.observed("--record", "run.vet", "program.py", env={"RANK": rank})
    assert sorted(p.name for p in (bench.folder / "run.vet").glob("rank*")) == ["rank0.jsonl", "rank1.jsonl"]


def test_a_temporary_recording_is_removed(bench: Bench) -> None:
    (bench.folder / "tmp").mkdir()
    bench.write("program.py", "1 / 0")
    bench.observed("program.py", env={"TMPDIR": str(bench.folder / "tmp")})
    assert (bench.facts["kept"], list((bench.folder / "tmp").iterdir())) == (False, [])
