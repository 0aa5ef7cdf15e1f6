"""`torchvet fix`: what it shows, writes and refuses; with --verify, what it concludes from runs made up for it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from observing import Bench as Folder
from word_rules import WordRule

import torchvet.rules
import torchvet.rules.core.lazy_loading
from torchvet.commands import main
from torchvet.docgen.documents import schema
from torchvet.errors import BadInput
from torchvet.finding import Finding, Report
from torchvet.renderers.text_fix import fix_page
from torchvet.source.model import SourceFile
from torchvet.verifying.trial import Trial
from torchvet.workflows.fix_options import write
from torchvet.workflows.repeat import Bench

APPLE = WordRule("AAA101", "apple", "pear")
ANISE = WordRule("AAA102", "anise", "basil", safe=False)
BEECH = WordRule("BBB101", "beech", severity="error")
RULES: tuple[Any, ...] = (APPLE, ANISE, BEECH)
TEXT = b"import torch\r\napple = 1\r\nanise = 2\r\n"
A_TIME = r"[\d.]+ (us|ms|s)"
Fix = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a program in the working directory, and rules that find names of plants."""
    for name in list(os.environ):
        if name.startswith(("TORCHVET_", "WORLD_SIZE")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.torchvet]\n")
    (tmp_path / "train.py").write_bytes(TEXT)
    monkeypatch.setattr(torchvet.rules, "all_rules", lambda: RULES)
    monkeypatch.setattr(torchvet.rules, "codes", lambda: [rule.code for rule in RULES])
    monkeypatch.setattr(torchvet.rules, "rule", {rule.code: rule for rule in RULES}.__getitem__)
    monkeypatch.setattr(torchvet.rules.core.lazy_loading, "source_rules", lambda: list(RULES))
    return tmp_path


@pytest.fixture
def fix(here: Path, capfd: pytest.CaptureFixture[str]) -> Fix:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["fix", *arguments])
        out, err = capfd.readouterr()
        return status, out, err

    return run


def facts(out: str) -> dict[str, Any]:
    report = json.loads(out)
    jsonschema.validate(report, json.loads(schema()))
    found: dict[str, Any] = report["facts"]["fix"]
    return found


# Source alone ---------------------------------------------------------------------------------------------------------


def test_fixes_are_shown_and_nothing_is_written(fix: Fix, here: Path) -> None:
    status, out, _ = fix("train.py")
    assert status == 1
    assert out.startswith("1 finding can be fixed: AAA101")
    assert "-apple = 1" in out and "+pear = 1" in out and "+basil" not in out
    assert "Only with --unsafe-fixes" in out and "AAA102" in out
    assert "torchvet fix train.py --verify" in out
    assert (here / "train.py").read_bytes() == TEXT


def test_apply_writes_to_the_byte_and_keeps_the_original(fix: Fix, here: Path) -> None:
    (here / "train.py").chmod(0o640)
    status, out, _ = fix("train.py", "--apply", "--keep-original", "--unsafe-fixes")
    assert status == 0 and out.startswith("2 findings fixed: AAA101, AAA102")
    assert (here / "train.py").read_bytes() == TEXT.replace(b"apple", b"pear").replace(b"anise", b"basil")
    assert (here / "train.py.orig").read_bytes() == TEXT
    assert {(here / n).stat().st_mode & 0o777 for n in ("train.py", "train.py.orig")} == {0o640}
    assert sorted(p.name for p in here.iterdir()) == ["pyproject.toml", "train.py", "train.py.orig"]


def test_an_original_that_is_there_is_not_written_over(fix: Fix, here: Path) -> None:
    (here / "train.py.orig").write_text("older")
    status, _, err = fix("train.py", "--apply", "--keep-original")
    assert status == 2 and "train.py.orig: already exists" in err
    assert (here / "train.py").read_bytes() == TEXT and (here / "train.py.orig").read_text() == "older"


def test_codes_pick_what_is_fixed(fix: Fix, here: Path) -> None:
    status, out, _ = fix("train.py", "aaa102", "--unsafe-fixes", "--diff")
    assert status == 1 and out.startswith("--- train.py") and "+basil" in out and "+pear" not in out
    assert fix("train.py", "BBB")[0] == 0
    status, _, err = fix("train.py", "ZZZ")
    assert status == 2 and "ZZZ: no rule's code starts so" in err
    status, _, err = fix("train.py", "out/")
    assert status == 2 and "'out/' is not the code" in err and "after `--`" in err


def test_nothing_to_fix(fix: Fix, here: Path) -> None:
    (here / "train.py").write_text("import torch\n")
    status, out, _ = fix("train.py")
    assert status == 0 and out.startswith("Nothing to fix that the source alone shows\n")
    assert "torchvet fix train.py --verify" in out, "a run may show more"
    status, out, err = fix("train.py", "--diff")
    assert (status, out) == (0, "") and "the source alone shows nothing to fix; --verify" in err
    (here / "train.py").write_text("import torch\nbeech = 1\n")
    status, out, _ = fix("train.py")
    assert (
        status == 1
        and out.startswith("Nothing to fix that the source alone shows; 1 finding below")
        and "No fix, only advice" in out
    )


def test_the_report_as_json(fix: Fix, here: Path) -> None:
    status, out, _ = fix("train.py", "--format", "json")
    found = facts(out)
    assert status == 1 and not found["verified"] and found["written"] == []
    assert [r["code"] for r in found["mended"]] == ["AAA101"] and [r["code"] for r in found["unsafe"]] == ["AAA102"]
    assert found["mended"][0]["line"] == 2 and "+pear = 1" in found["diff"]
    status, out, _ = fix("train.py", "--format", "json", "--apply")
    assert facts(out)["written"] == ["train.py"] and status == 1  # AAA102 remains


def test_a_module_is_fixed_where_it_lies_and_no_package_is_run(fix: Fix, here: Path) -> None:
    package = here / "package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('run')\n")
    (package / "__main__.py").write_bytes(TEXT)
    (package / "fit.py").write_bytes(TEXT)
    status, out, _ = fix("-m", "package", "AAA")
    assert status == 1 and "-apple = 1" in out and "torchvet fix -m package AAA --verify" in out
    status, out, _ = fix("-m", "package.fit", "--apply", "--format", "json")
    assert facts(out)["written"] == [os.path.join("package", "fit.py")]
    assert (package / "__main__.py").read_bytes() == TEXT and b"pear = 1" in (package / "fit.py").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.py",), "no such file"),
        ((), "no program given"),
        (("-m", "absent.module"), "no module named absent"),
        (("-m", "sys"), "has no source file"),
        ((".",), "is a folder"),
        (("train.py", "--apply", "--diff"), "--apply and --diff cannot be combined"),
        (("train.py", "--keep-original"), "needs --apply"),
        (("train.py", "--", "--lr", "1"), "only with --verify"),
        (("train.py", "-o", "train.py"), "picks no report format"),
        (("broken.py",), "invalid syntax"),
        (("note.ipynb", "--verify"), "does not run notebooks"),
    ],
)
def test_what_cannot_be_fixed_is_said(fix: Fix, here: Path, arguments: tuple[str, ...], message: str) -> None:
    (here / "broken.py").write_text("import torch\nx = = 1\n")
    (here / "note.ipynb").write_text("{}")
    status, _, err = fix(*arguments)
    assert status == 2 and message in err and "Traceback" not in err


def test_of_several_files_those_written_before_one_fails_are_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(beside: str, path: str) -> None:
        raise PermissionError(13, "no", path)

    (here / "two.py").write_bytes(TEXT)
    contents = {str(here / name): (TEXT, b"new") for name in ("train.py", "two.py")}
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: refuse(a, b) if str(b).endswith("two.py") else replace(a, b))
    with pytest.raises(BadInput, match=r"two.py: .* could not be written: no; written already: .*train.py$"):
        write(contents, keep=False)
    assert ((here / "train.py").read_bytes(), (here / "two.py").read_bytes()) == (b"new", TEXT)
    assert sorted(p.name for p in here.iterdir()) == ["pyproject.toml", "train.py", "two.py"]


# Verified -------------------------------------------------------------------------------------------------------------


class Runs:
    """Stands in for the runs: what a text shows is what the rules find in it, seen at work; `curve` says its losses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ran: list[bytes] = []
        self.changes: list[str] = []
        self.options: list[tuple[int, tuple[str, ...]]] = []
        self.curve: Callable[[str], list[float | None]] = lambda text: [1.0] * 40
        self.failure = ""
        self.steps = 40
        self.evidence: Any = "observed"
        self.acts: list[str] = []

    def run(self, bench: Bench, contents: Mapping[str, bytes], change: str) -> Trial:
        self.changes.append(change)
        data = contents.get(str(self.path), self.path.read_bytes())
        self.ran.append(data)
        self.options.append((bench.steps, bench.target.arguments))
        bench.outside.update(dict.fromkeys(self.acts))
        text = data.decode().replace("\r\n", "\n")
        found = [self._seen(f) for rule in RULES for f in rule.in_source(SourceFile(str(self.path), text))]
        return Trial(
            findings=found, steps=self.steps, curve=self.curve(text), failure=self.failure,
            sources={str(self.path): text}, seconds_per_step=0.01,
        )  # fmt: skip

    def _seen(self, finding: Finding) -> Finding:
        return msgspec.structs.replace(finding, evidence=self.evidence)


@pytest.fixture
def runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(here / "train.py")
    monkeypatch.setattr(Bench, "run", lambda bench, contents, change: made.run(bench, contents, change))
    return made


def test_what_the_runs_did_beyond_files_is_listed_once(fix: Fix, runs: Runs) -> None:
    runs.acts = ["started `git push`", "connected to 192.0.2.1:443"]
    assert facts(fix("train.py", "AAA101", "--verify", "--format", "json")[1])["not_undone"] == runs.acts
    text = fix("train.py", "AAA101", "--verify")[1]
    assert "that is not undone\n  started `git push`\n  connected to 192.0.2.1:443\n" in text
    runs.acts = []
    assert "not undone" not in fix("train.py", "AAA101", "--verify")[1]


def test_the_next_command_runs_on_the_same_simulated_gpu(fix: Fix, runs: Runs) -> None:
    words = ("train.py", "AAA101", "--verify", "--simulate-gpu", "l4", "--gpus", "2", "--", "--lr", "1")
    assert "fix train.py AAA101 --verify --apply --simulate-gpu l4 --gpus 2 -- --lr 1\n" in fix(*words)[1]


def test_a_fix_that_helps_is_proven_and_not_written_unasked(fix: Fix, here: Path, runs: Runs) -> None:
    status, out, err = fix("train.py", "AAA101", "--verify", "--steps", "7", "--", "--lr", "0.1")
    assert status == 0 and re.match(rf"1 of 1 fix proven in 2 runs of 40 steps, {A_TIME}\n", out)
    assert "40 losses compared, equal to the last bit" in out and "+pear = 1" in out
    assert "torchvet fix train.py AAA101 --verify --apply -- --lr 0.1\n" in out
    assert "train.py runs once as it is, and again with the fixes for what that shows, up to 7 steps each" in err
    assert re.search(rf"torchvet: that run took {A_TIME}; 1 fix to try, in 1 more run at least\n", err)
    assert runs.options == [(7, ("--lr", "0.1"))] * 2
    assert runs.ran == [TEXT, TEXT.replace(b"apple", b"pear")]
    assert runs.changes == ["as it is", "with 1 fix: AAA101"]
    assert (here / "train.py").read_bytes() == TEXT


def test_verify_and_apply_write_what_was_proven_alone(fix: Fix, here: Path, runs: Runs) -> None:
    runs.curve = lambda text: [0.5 if "basil" in text else 1.0] * 40
    status, out, _ = fix("train.py", "--verify", "--apply", "--format", "json")
    found = facts(out)
    assert status == 1 and found["written"] == [str(here / "train.py")]
    assert (here / "train.py").read_bytes() == TEXT.replace(b"apple", b"pear")
    assert [r["code"] for r in found["proven"]] == ["AAA101"]
    assert [(r["code"], "the losses differ" in r["reason"]) for r in found["refused"]] == [("AAA102", True)]
    evidence = {f["code"]: f["evidence"] for f in json.loads(out)["findings"]}
    assert evidence == {"AAA101": "proven", "AAA102": "observed"}


def test_what_changes_losses_on_purpose_is_proven_and_written_only_with_consent(
    fix: Fix, here: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ANISE, "fix_changes_results", True, raising=False)
    runs.curve = lambda text: [0.5 if "basil" in text else 1.0] * 40
    status, out, _ = fix("train.py", "--verify")
    assert status == 0 and "changed on purpose, from pass 1 on: the last was 1, is 0.5" in out
    assert "torchvet fix train.py AAA101 AAA102 --verify --apply --unsafe-fixes\n" in out
    assert fix("train.py", "--verify", "--apply")[0] == 1
    assert (here / "train.py").read_bytes() == TEXT.replace(b"apple", b"pear")
    assert fix("train.py", "--verify", "--apply", "--unsafe-fixes")[0] == 0
    assert b"basil" in (here / "train.py").read_bytes()


def test_what_the_run_has_not_shown_is_not_proven(fix: Fix, here: Path, runs: Runs) -> None:
    runs.evidence = "suspected"
    status, out, _ = fix("train.py", "--verify")
    assert status == 1 and len(runs.ran) == 1
    assert "The run did not show these" in out and "AAA101" in out


def test_a_run_that_says_nothing_cannot_be_judged(fix: Fix, here: Path, runs: Runs) -> None:
    (here / "train.py").write_text("import torch\n")
    runs.failure = "ValueError: no data"
    status, out, _ = fix("train.py", "--verify")
    assert status == 3 and out.startswith(
        "Could not judge: the program failed: ValueError: no data; 1 run of 40 steps, "
    )
    runs.failure, runs.steps = "", 4
    assert fix("train.py", "--verify")[0] == 3
    runs.steps = 40
    status, out, err = fix("train.py", "--verify")
    assert status == 0 and re.fullmatch(rf"Nothing to fix; 1 run of 40 steps, {A_TIME}\n", out)
    assert "to try" not in err


def test_all_runs_and_their_time_are_told(fix: Fix, runs: Runs) -> None:
    runs.curve = lambda text: [0.5 if "basil" in text else 1.0] * 40
    found = facts(fix("train.py", "--verify", "--format", "json")[1])
    assert found["runs"] == len(runs.ran) > 2 and found["run_seconds"] > 0
    runs.ran.clear()
    out = fix("train.py", "--verify")[1]
    assert re.match(rf"1 of 2 fixes proven in {len(runs.ran)} runs of 40 steps, {A_TIME}\n", out)
    assert fix("train.py", "--verify", "--quiet")[2] == ""


def test_a_file_that_changes_meanwhile_is_not_written(fix: Fix, here: Path, runs: Runs) -> None:
    def curve(text: str) -> list[float | None]:
        (here / "train.py").write_bytes(TEXT + b"# edited\r\n") if "pear" in text else None
        return [1.0] * 40

    runs.curve = curve
    status, _, err = fix("train.py", "AAA101", "--verify", "--apply")
    assert status == 2 and "has changed since it was read" in err
    assert (here / "train.py").read_bytes() == TEXT + b"# edited\r\n"


def test_a_rank_of_several_is_refused(fix: Fix, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    status, _, err = fix("train.py", "--verify")
    assert status == 2 and "WORLD_SIZE is 2" in err and not runs.ran


# In earnest -----------------------------------------------------------------------------------------------------------

TRAINER = """\
import torch

class Trainer:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.stats = {}

    def fit(self, count):
        errors = []
        for step in range(count):
            x = torch.randn(256, 64)
            loss = self.model(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            errors.append((self.model(x) - 1).square().mean())
        return errors
"""


def test_a_leak_in_an_imported_module_is_fixed_and_proven(bench: Folder) -> None:
    """The program does not seed: both runs start from the same numbers. Its module has DOS line ends and a tab. It goes
    on from a checkpoint that it wrote: each run finds the files as they were."""
    data = TRAINER.replace("\n", "\r\n").replace("        return errors", "\treturn errors").replace("\t", "        ")
    (bench.folder / "trainer.py").write_bytes(b"\xef\xbb\xbf" + data.encode())
    bench.write(
        "train.py",
        """
        import os, sys, torch
        from trainer import Trainer
        done = torch.load("last.pt") if os.path.exists("last.pt") else 0
        print(len(Trainer().fit(int(sys.argv[1]) - done)))
        torch.save(int(sys.argv[1]), "last.pt")
        with open("log.txt", "a") as log:
            log.write("trained")
        """,
    )
    (bench.folder / "log.txt").write_text("as it was")
    command = bench.command("fix", "train.py", "--verify", "--apply", "--format", "json", "--", "30")
    bench.environment["PYTHONPATH"] = str(Path(torchvet.__file__).parents[1])
    ran = bench.run(command)
    assert ran.status == 0, ran.out + ran.err
    found = facts(ran.out)
    assert [(r["code"], r["line"]) for r in found["proven"]] == [("MEM101", 17)]
    assert found["proven"][0]["losses"]["equal"] and found["proven"][0]["losses"]["compared"] == 30
    assert (bench.folder / "log.txt").read_text() == "as it was" and not (bench.folder / "last.pt").exists()
    fixed = data.replace("(self.model(x) - 1).square().mean()", "(self.model(x) - 1).square().mean().detach()")
    assert (bench.folder / "trainer.py").read_bytes() == b"\xef\xbb\xbf" + fixed.encode()


def test_an_option_of_the_program_is_told_where_it_belongs(fix: Fix) -> None:
    status, out, err = fix("train.py", "--epochs", "2")
    assert (status, out) == (2, "") and "torchvet fix train.py -- --epochs" in err


def test_the_same_advice_for_one_line_is_given_once() -> None:
    row = {"code": "OPS304", "name": "x", "path": "train.py", "line": 7, "remedy": "do it once"}
    told = {"verified": False, "written": [], "counts": {}, "refused": [], "unsafe": [], "diff": ""}
    told["advice"] = [row, row, {**row, "line": 8}]
    report = Report(
        subject={"kind": "fix", "path": "train.py", "module": False, "argv": []},
        verdict="findings",
        facts={"fix": told},
    )
    assert fix_page(report, color=False, width=100).count("do it once") == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "8 lines printed or written, 1 file, the same but for times and sizes"),
        ({"rounded": 2}, "the same but for times and sizes, and the last digit of 2 numbers"),
        ({"differ": ["stdout differs in 1 line: `a` became `b`"]}, "1 file: stdout differs in 1 line: `a` became `b`"),
        ({"unsteady": ["x", "y", "z", "w"]}, "not compared, as two unchanged runs differ: x, y, z and 1 more"),
        ({"skipped": ["best.pt"]}, "not compared, as losses differ in late digits or it was not read: best.pt"),
        ({"compared": [], "unsteady": ["x"]}, "not compared, as two unchanged runs differ: x"),
        ({"noise": {"stdout": 3}}, "not compared, as two unchanged runs differ: 3 lines of stdout"),
        ({"compared": []}, ""),
    ],
)
def test_what_a_proven_fix_changes_in_the_output_is_shown(changed: dict[str, Any], said: str) -> None:
    output: dict[str, Any] = {"compared": ["stdout", "best.pt"], "lines": 8, "rounded": 0, "noise": {}}
    output |= {"differ": [], "unsteady": [], "skipped": []}
    row = {
        "code": "MEM102", "name": "x", "path": "train.py", "line": 7, "before": "1 kB per step", "after": "gone",
        "changes_results": False, "output": {**output, **changed},
        "losses": {"compared": 9, "passes": [9, 9], "equal": True}, "steps": [9, 9], "seconds_per_step": [None, None],
    }  # fmt: skip
    told = {"verified": True, "written": [], "proven": [row], "refused": [], "advice": [], "diff": "", "runs": 2}
    told |= {"steps": 9, "run_seconds": 1.0}
    report = Report(subject={"kind": "fix", "path": "train.py"}, verdict="findings", facts={"fix": told})
    page = " ".join(fix_page(report, color=False, width=100).split())
    assert said in page and ("output" in page) is bool(said)
