"""The verbs without a program: help, report, explain; and the small things that they are made of."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from observing import Bench

from torchvet.commands import VERBS, main
from torchvet.formatting import parse_size
from torchvet.rules import all_rules
from torchvet.supervisor.supervise import interpreter_options


@pytest.mark.parametrize("verb", [[], *([v] for v in VERBS)])
def test_help_has_examples(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb, "--help"]) == 0
    out = capsys.readouterr().out
    examples = out.partition("Examples:")[2].split()
    assert ("torchvet", verb[0] if verb else "run") in pairwise(examples)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from torchvet.commands import main; main(['--help']); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [m for m in ("torch", "rich", "msgspec", "numpy") if f"'{m}'" in out]


def test_an_unknown_verb_and_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu"]) == 2
    assert main(["--version"]) == 0
    assert "torchvet" in capsys.readouterr().out


def test_report_says_again_what_run_said(bench: Bench) -> None:
    bench.write("program.py", "raise SystemExit(4)")
    assert bench.observed("--record", "run.vet", "program.py").status == 4
    ran = bench.run(bench.command("report", "run.vet", "--format", "json"), env={"TEST_VERDICT": "error"})
    assert ran.status == 1
    assert json.loads(ran.out)["facts"]["test"]["status"] == 4
    ran = bench.run(bench.command("report", "run.vet", "-q", "-o", "again.json", "--exit-zero"))
    assert (ran.out, ran.err, ran.status) == ("", "", 0)
    assert json.loads((bench.folder / "again.json").read_text()) == json.loads(
        (bench.folder / "report.json").read_text()
    )


def test_a_fault_of_ours_is_said_to_be_ours(bench: Bench) -> None:
    bench.write("program.py", "pass")
    bench.observed("--record", "run.vet", "program.py")
    ran = bench.run(bench.command("report", "run.vet"), env={"TEST_VERDICT": "crash"})
    assert ran.status == 2
    assert "the diagnosis is broken" in ran.err and "bug in torchvet" in ran.err


@pytest.mark.parametrize("given", ["nowhere.vet", "file.txt", "folder"])
def test_report_refuses_what_is_no_recording(bench: Bench, given: str) -> None:
    bench.write("file.txt", "x")
    bench.write("folder/x", "x")
    ran = bench.run(bench.command("report", given))
    assert ran.status == 2
    assert given in ran.err and "Traceback" not in ran.err


def test_explain_lists_and_explains_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    rules = all_rules()
    assert rules
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in listed] == [[r.code, r.name] for r in rules]
    for rule in rules:
        assert main(["explain", rule.code.lower()]) == 0
        page = capsys.readouterr().out
        assert main(["explain", rule.name]) == 0
        assert capsys.readouterr().out == page
        for line in (rule.BAD + rule.GOOD).splitlines():
            assert line.strip() in page
        for text in (rule.summary, rule.what, rule.why, rule.when_not, rule.proof, rule.remedy):
            assert "".join(text.split()) in "".join(page.split())


def test_explain_of_an_unknown_code_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    rule = all_rules()[0]
    assert main(["explain", rule.code[:-1]]) == 2
    assert rule.code in capsys.readouterr().err
    assert main(["explain", "qqqqqq"]) == 2
    assert "torchvet explain" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1048576),
        ("7B", 7),
        ("2KB", 2000),
        ("2KiB", 2048),
        ("1.5MB", 1_500_000),
        ("24GiB", 24 * 1024**3),
        (" 24 gib ", 24 * 1024**3),
        ("80GB", 80 * 1000**3),
        ("1TiB", 1024**4),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.text(max_size=12))
def test_a_size_is_positive_or_refused(text: str) -> None:
    try:
        assert parse_size(text) >= 1
    except ValueError as error:
        assert "is not a size" in str(error)


@pytest.mark.parametrize("text", ["", "0", "0.2B", "-1GB", "GB", "24G", "24 GiBs", "1e9", "nan", "1,5GB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("python /bin/torchvet run -O x.py", []),
        ("python -m torchvet run", []),
        ("python -O -X dev -Wd -W error -u -m torchvet run", ["-O", "-X", "dev", "-Wd", "-W", "error", "-u"]),
        ("python -Xdev -BOm torchvet", ["-Xdev", "-BO"]),
        ("python -uX utf8 -mtorchvet", ["-uX", "utf8"]),
        ("python -c pass -O", []),
        ("python --check-hash-based-pycs never -I torchvet", ["--check-hash-based-pycs", "never", "-I"]),
        ("python", []),
    ],
)
def test_the_interpreters_own_options(line: str, options: list[str]) -> None:
    assert interpreter_options(line.split()) == options


def test_dying_by_a_signal_needs_no_core(bench: Bench) -> None:
    code = "import sys; from torchvet.commands import die_by; print('out', end=''); sys.exit(die_by(int(sys.argv[1])))"
    for number in (signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGINT):
        ran = bench.plain("-c", code, str(int(number)))
        assert (ran.out, ran.status) == ("out", -number)
    assert not list(bench.folder.glob("core*"))


def test_a_run_goes_by_the_projects_configuration(bench: Bench) -> None:
    bench.write("program.py", "raise SystemExit(0)")
    bench.write("pyproject.toml", '[tool.torchvet]\nignore = ["NOPE1"]\n')
    refused = bench.observed("program.py")
    assert refused.status == 2 and "NOPE1: no rule's code starts so" in refused.err
    bench.write("pyproject.toml", '[tool.torchvet]\nignore = ["MEM2"]\n')
    bench.observed("program.py")
    assert "MEM202" in bench.facts["ignore"] and "MEM101" not in bench.facts["ignore"]
