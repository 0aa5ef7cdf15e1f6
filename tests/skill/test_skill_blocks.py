"""Every code block of the skill runs and does what is said of it; every command in it is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from blocks import Block, blocks
from example_runs import forked, printed_by
from simulated_runs import findings_on, printed_on

from torchvet.checking.engine import check_text, source_rules
from torchvet.commands import VERBS, cli, main
from torchvet.rules import all_rules, rule
from torchvet.skill import documents
from torchvet.skill.families import FAMILIES, Family, fix
from torchvet.skill.measured import LAST_STEP, SHORTCUTS, Shortcut

TEXTS = documents()
BLOCKS = {name: blocks(text) for name, text in TEXTS.items()}
PAIRS = [block for block in BLOCKS["references/edge-cases.md"] if block.kind]
(HEALTHY,) = (block.text for block in BLOCKS["references/healthy-loop.md"])
(LEAK,) = (block.text for block in BLOCKS["references/shortcuts.md"])
SINGLE = [block for name in ("SKILL.md", "references/checklists.md") for block in BLOCKS[name]]


def does(block: Block) -> str | None:
    """What is wrong with what a block says that it does."""
    printed, error = printed_by(block.text, f"{block.heading}.py")
    way, what = block.claim
    if way == "prints":
        return None if error is None and printed.strip() == what else f"printed {printed!r}, {error}"
    return None if error is not None and what in error else f"raised {error}, printed {printed!r}"


def test_no_block_is_left_out() -> None:
    families = {f"references/{family.file}" for family in FAMILIES}
    for name, found in BLOCKS.items():
        assert TEXTS[name].count("\n```") == 2 * len(found)
        kinds = {(block.language, block.kind) for block in found}
        assert kinds <= ({("diff", "")} if name in families else {("python", kind) for kind in
                         ("wrong", "right", "train.py", "leak", "shown")})  # fmt: skip


def test_wrong_and_right_come_in_pairs_that_differ_in_little_and_in_what_they_do() -> None:
    wrong, right = PAIRS[::2], PAIRS[1::2]
    assert len(wrong) == len(right) >= 12
    for bad, good in zip(wrong, right, strict=True):
        assert (bad.kind, good.kind, bad.heading) == ("wrong", "right", good.heading)
        assert bad.claim != good.claim and good.claim[0] == "prints"
        changed = set(good.text.splitlines()) ^ set(bad.text.splitlines())
        assert 0 < len(changed) <= 12


@pytest.mark.parametrize("block", [*PAIRS, *SINGLE], ids=lambda b: f"{b.heading} {b.kind}")
def test_a_block_does_what_it_says(block: Block) -> None:
    assert does(block) is None


def test_a_block_that_does_something_else_is_seen() -> None:
    assert does(PAIRS[0]._replace(text='print("a")\n# prints: b\n')) is not None
    assert does(PAIRS[0]._replace(text='print("a")\n# raises: b\n')) is not None
    assert does(PAIRS[0]._replace(text='raise OSError("b")\n# prints: a\n')) is not None


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.file)
def test_the_fixes_are_what_makes_the_rules_own_examples_right(family: Family) -> None:
    """Whose programs tests/rules runs."""
    found = BLOCKS[f"references/{family.file}"]
    rules = family.rules()
    assert [block.heading for block in found] == [f"{r.code} {r.name}" for r in rules]
    for block, subject in zip(found, rules, strict=True):
        assert block.text == fix(subject)
        removed = [line[1:] for line in block.text.splitlines() if line.startswith("-")]
        added = [line[1:] for line in block.text.splitlines() if line.startswith("+")]
        assert removed + added and set(removed) <= set(subject.BAD.splitlines())
        assert set(added) <= set(subject.GOOD.splitlines())


def test_the_healthy_loop_runs_and_learns() -> None:
    printed, error = printed_by(HEALTHY, "train.py")
    assert error is None
    figures = [float(figure) for figure in re.findall(r"\d+\.\d+", printed)]
    assert len(figures) == 7 and figures[0] > figures[2] > figures[4] and figures[-1] == min(figures[1::2])


def test_check_finds_nothing_in_the_healthy_loop() -> None:
    assert check_text("train.py", HEALTHY, source_rules(all_rules())).findings == []


def test_run_finds_nothing_in_the_healthy_loop(tmp_path: Path) -> None:
    assert forked(HEALTHY, tmp_path) == []


def test_run_finds_nothing_to_fix_in_the_healthy_loop_on_a_simulated_gpu() -> None:
    assert findings_on("l4", HEALTHY) == [("info", "OPS101")]


def test_the_healthy_loop_with_a_fault_is_not_silent(tmp_path: Path) -> None:
    faulty = HEALTHY.replace("best, kept = float", "kept_losses = []\n    best, kept = float").replace(
        "validated = evaluate(model, validation, device)",
        "validated = evaluate(model, validation, device)\n"
        "        kept_losses += [model(x).square() for x, _ in loader]",
    )
    # On a busy machine the search for names may be cut short: growth without a name is not silence either.
    assert {found["code"] for found in forked(faulty, tmp_path) or []} & {"MEM101", "MEM104", "MEM118"}


@pytest.mark.parametrize("shortcut", SHORTCUTS, ids=lambda s: s.said)
def test_a_shortcut_ends_where_it_was_measured_to(shortcut: Shortcut) -> None:
    printed, error = printed_on(shortcut.card, LEAK, *filter(None, [shortcut.argument]))
    assert int(printed.split()[-1]) == shortcut.step
    assert (error is None) if shortcut.step == LAST_STEP else "OutOfMemoryError" in (error or "")
    assert f"| {shortcut.said} | {'never' if error is None else shortcut.step}" in TEXTS["references/shortcuts.md"]


COMMANDS = sorted({command for text in TEXTS.values() for command in re.findall(r"`torchvet ([^`]+)`", text)})


def parse(line: str) -> None:
    """Raise click's error where a command line is none. Nothing is run."""
    verb, *arguments = shlex.split(line)
    if verb.startswith("--"):
        assert main([verb, *arguments]) == 0
        return
    command = cli.get_command(click.Context(cli), verb)  # type: ignore[attr-defined]
    assert command is not None, f"{verb}: no such verb"
    context = command.make_context(verb, list(arguments))
    if isinstance(command, click.Group):
        name, inner, rest = command.resolve_command(context, arguments)
        assert inner is not None
        inner.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_one_that_the_command_line_takes(line: str) -> None:
    parse(line)
    for code in re.findall(r"\b[A-Z]{3}\d{3}\b", line):
        rule(code)


@pytest.mark.parametrize("line", ["run --stpes 3 train.py", "rnu train.py", "skill instal", "compare before.vet"])
def test_a_command_that_is_none_is_seen(line: str) -> None:
    with pytest.raises((click.ClickException, AssertionError)):
        parse(line)


def test_every_verb_is_taught() -> None:
    """But for `skill`, which an agent that reads this has seen at work, and `server`, which editors start."""
    assert {line.split()[0] for line in COMMANDS} >= set(VERBS) - {"skill", "server"}
