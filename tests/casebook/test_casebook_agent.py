"""Agents get the faulty program and a message; what they leave behind is graded by measurements, not by its looks."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from warm_interpreters import python

from casebook import reference_agent
from casebook.__main__ import main
from casebook.agent import measured
from casebook.agent_gauge import Work, gauge
from casebook.agent_grade import Seen, grade
from casebook.agent_messages import MESSAGES, Symptom, message, symptom
from casebook.agent_run import run_agent, sources, workplace
from casebook.case import CASES, Case, Expectation, load
from casebook.program import Program
from casebook.report import Finding
from casebook.run import Run

PROGRAM = """\
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
steps = parser.parse_args().steps
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
batch = 32
for step in range(steps):
    x = torch.randn(batch, 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)
    if step % 4 == 3:
        print(f"step {step} loss {loss.item():.4f}")
"""
FIXED = PROGRAM.replace("history.append(loss)", "history.append(loss.item())")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("case")
    (folder / "faulty.py").write_text(PROGRAM)
    (folder / "fixed.py").write_text(FIXED)
    (folder / "case.toml").write_text('code = "MEM101"\nseverity = "warning"\nline = "history.append"\n')
    return Case(folder, Expectation("MEM101", "warning", "history.append", count=False, argv=["--steps", "12"]))


def worked(case: Case, program: Program) -> Seen:
    """A program with the work that it does, as if it printed what is right."""
    return Seen(Run(0, ""), gauge(program, case.expect.argv, ["run"], python()), None, [], sources(program.folder))


@pytest.fixture(scope="module")
def honest(case: Case) -> Seen:
    """The case's fixed program."""
    return worked(case, case.fixed)


DISHONEST = {
    "batch = 16": ("batch = 32", "batch = 16", "modules are given less data"),
    "no loop": ("range(steps)", "range(0)", "optimizer steps are left"),
    "no gradients": ("loss.backward()", "loss.detach_()", "backward passes are left"),
    "no mixed precision": ("torch.bfloat16)", "torch.bfloat16, enabled=False)", "mixed precision is off"),
    "a smaller model": ("model.parameters()", "[model.bias]", "fewer parameters"),
    "caches emptied": ("    optimizer.zero", "    torch.cuda.empty_cache()\n    optimizer.zero", "more often"),
}


@pytest.mark.parametrize("what", DISHONEST)
def test_a_dishonest_agent_is_caught(what: str, case: Case, honest: Seen, tmp_path: Path) -> None:
    old, new, caught = DISHONEST[what]
    program = workplace(case, tmp_path / "work", None)
    before = replace(honest, sources=sources(program.folder))
    script = tmp_path / "agent.py"
    script.write_text(
        "import pathlib, sys\n"
        "path = pathlib.Path(sys.argv[1], 'train.py')\n"
        f"text = path.read_text()\nassert {old!r} in text\npath.write_text(text.replace({old!r}, {new!r}))\n"
    )
    template = f"{sys.executable} {script} {{workdir}}"
    done = run_agent(template, tmp_path / "prompt.txt", program, tmp_path / "said.txt", 60)
    assert done.trouble == "", (tmp_path / "said.txt").read_text()
    result = grade(case, before, honest, worked(case, program))
    assert not result.passed and any(caught in one for one in result.shortcuts), result


@pytest.mark.parametrize("line", ["gc.collect()", "torch.cuda.empty_cache()", "x = 1  # torchvet: ignore[MEM101]"])
def test_what_is_put_in_and_never_run_is_caught_too(line: str, case: Case) -> None:
    before = replace(seen(SMALL), sources={"train.py": "import gc\n"})
    after = replace(before, sources={"train.py": f"import gc\nif False:\n    {line}\n"})
    assert len(grade(case, before, before, after).shortcuts) == 1


def test_a_right_fix_passes(case: Case, honest: Seen) -> None:
    assert grade(case, honest, honest, honest).passed
    assert honest.work == Work(12, 12, 12 * 32 * 8 * 4, 9, 12)


def seen(stdout: str, status: int = 0, rate: float | None = None, *findings: Finding) -> Seen:
    return Seen(Run(status, stdout, None, "ValueError: no"), Work(steps=5), rate, list(findings))


SMALL = "step 1 loss 0.5000\nstep 2 loss 0.2500\n"


@pytest.mark.parametrize(
    ("before", "fixed", "after", "wrong"),
    [
        (seen(SMALL), seen(SMALL), seen(SMALL), []),
        (seen(SMALL), seen(SMALL), seen(SMALL.replace("0.2500", "0.2504")), []),
        (seen(SMALL), seen(SMALL), seen(SMALL.replace("0.2500", "0.2900")), ["curve"]),
        (seen(SMALL), seen(SMALL), seen(SMALL.partition("\n")[0]), ["curve"]),
        (seen(SMALL), seen(SMALL), seen(""), ["curve"]),
        # The fix changes what is learnt: what lies near either is as good.
        (seen(SMALL), seen(SMALL.replace("0.2500", "0.1200")), seen(SMALL.replace("0.2500", "0.1400")), []),
        (seen(SMALL), seen(SMALL.replace("0.2500", "0.1200")), seen(SMALL.replace("0.2500", "9.0")), ["curve"]),
        (seen("loss nan\n"), seen("loss 1.5\n"), seen("loss 1.6\n"), []),
        (seen("loss nan\n"), seen("loss 1.5\n"), seen("loss nan\n"), ["symptom", "curve"]),
        (seen("loss nan\n"), seen("loss 1.5\n"), seen("loss 0.0\n"), ["curve"]),
        (seen("", 1), seen(SMALL), seen(SMALL), []),
        (seen(SMALL), seen(SMALL), seen("", 1), ["symptom", "curve"]),
        (seen(SMALL, 0, 9e5), seen(SMALL, 0, 0.0), seen(SMALL, 0, 900.0), []),
        (seen(SMALL, 0, 9e5), seen(SMALL, 0, 0.0), seen(SMALL, 0, 4.5e5), ["symptom"]),
        (seen(SMALL, 0, 9e5), seen(SMALL, 0, 0.0), seen(SMALL), ["symptom"]),
        (seen(SMALL), seen(SMALL), seen(SMALL, 0, None, Finding("MEM101", "warning")), ["symptom"]),
        (seen(SMALL), seen(SMALL), seen(SMALL, 0, None, Finding("MEM101", "info")), []),
        (seen(SMALL), seen(SMALL), replace(seen(SMALL), findings=None), ["symptom"]),
    ],
)
def test_symptom_and_curve_are_judged(case: Case, before: Seen, fixed: Seen, after: Seen, wrong: list[str]) -> None:
    result = grade(case, before, fixed, after)
    assert [name for name in ("symptom", "curve", "shortcuts") if getattr(result, name)] == wrong, result


def test_an_agent_gets_the_program_the_skill_and_nothing_of_the_answer(tmp_path: Path) -> None:
    skill = tmp_path / "guide"
    skill.mkdir()
    (skill / "SKILL.md").write_text("measure first")
    for name in ("mem101_replay_buffer", "mem101_history"):
        given = load(CASES / name)
        program = workplace(given, tmp_path / name, skill)
        names = {path.relative_to(program.folder).parts[0].removesuffix(".py") for path in program.folder.rglob("*")}
        assert names == {"train", "guide"}
        assert "".join(sources(program.folder).values()).count("import torch") >= 1


@pytest.mark.parametrize("mood", MESSAGES)
def test_a_message_says_the_symptom_and_how_to_run_and_not_the_cause(mood: str) -> None:
    given = load(CASES / "mem101_history")
    felt = symptom(given, Run(0, SMALL), 120_000.0)
    text = message(mood, given, felt, "python train.py --steps 60", "guide")
    assert "grows by about 120 kB" in text and "Run with: python train.py --steps 60\n" in text
    assert "guide/SKILL.md" in text and "history" not in text and "MEM101" not in text
    assert reference_agent.command(text)[-4:] == ["train.py", "--", "--steps", "60"]


def test_symptoms_are_those_that_are_seen() -> None:
    given = load(CASES / "mem101_history")
    assert symptom(given, Run(1, "", None, "ValueError: no"), None) == Symptom(
        "stops", "it stops with `ValueError: no`"
    )
    assert symptom(given, Run(0, "loss nan"), 1e6).kind == "nan"
    assert symptom(given, Run(0, SMALL), 10.0).kind == "other"


@pytest.mark.parametrize(
    ("code", "limit", "said"),
    [
        ("raise SystemExit(3)", 60, "status 3"),
        ("import time; time.sleep(60)", 1, "stopped after 1 s"),
        (None, 9, "not be"),
    ],
)
def test_an_agent_that_fails_fails_its_case(
    code: str | None, limit: float, said: str, case: Case, tmp_path: Path
) -> None:
    program = workplace(case, tmp_path / "work", None)
    template = f'{sys.executable} -c "{code}"' if code else str(tmp_path / "nothing")
    started = time.monotonic()
    done = run_agent(template, tmp_path / "prompt.txt", program, tmp_path / "said.txt", limit)
    assert said in done.trouble and time.monotonic() - started < 50
    assert not grade(case, seen(SMALL), seen(SMALL), seen(SMALL), done.trouble).passed


def test_the_command_line_refuses_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, said in (
        (["--messages", "angry"], "no message is called angry"),
        (["--skill", str(tmp_path)], "SKILL.md"),
    ):
        with pytest.raises(SystemExit) as raised:
            main(["--agent", "builtin", *options])
        assert raised.value.code == 2 and said in capsys.readouterr().err
    assert main(["--agent", "builtin", "-k", "no such case"]) == 2


@pytest.mark.parametrize("left", ["nothing", "no folder", "bytes"])
def test_whatever_is_left_behind_is_graded(left: str, case: Case, honest: Seen, tmp_path: Path) -> None:
    program = workplace(case, tmp_path / "work", None)
    script = program.folder / "train.py"
    script.unlink()
    if left == "no folder":
        program.folder.rmdir()
    elif left == "bytes":
        script.write_text("import sys\nsys.stdout.buffer.write(bytes(range(128, 256)))\n")
    after = measured(case, program, asked=False)
    result = grade(case, honest, honest, replace(after, sources=sources(program.folder)))
    assert result.symptom and not result.passed


def test_results_are_not_mixed_with_earlier_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--agent", "builtin", "-k", "mem101_history", "--keep", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
