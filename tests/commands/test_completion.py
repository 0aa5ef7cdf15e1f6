"""What a shell is offered for words that are being typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from torchvet.commands import cli
from torchvet.rules import codes, rule


def offered(*words: str) -> list[str]:
    completer = ShellComplete(cli, {}, "torchvet", "_TORCHVET_COMPLETE")
    return [item.value for item in completer.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["exp"], ["explain"]),
        (["check", "--select", "MEM101"], ["MEM101"]),
        (["check", "--select", "mem101"], ["MEM101"]),
        (["check", "--extend-ignore", "AMP101,MEM101"], ["AMP101,MEM101"]),
        (["run", "--ignore", "MEM101"], ["MEM101"]),
        (["explain", "MEM101"], ["MEM101"]),
        (["explain", "graph-retai"], ["graph-retained"]),
        (["fix", "train.py", "MEM101"], ["MEM101"]),
        (["fix", "-m", "project.train", "MEM101"], ["MEM101"]),
        (["check", "--select", "ZZZ"], []),
    ],
)
def test_words_are_completed(words: list[str], expected: list[str]) -> None:
    assert offered(*words) == expected


def test_all_codes_are_offered_with_what_they_mean() -> None:
    assert offered("explain", "") == codes()
    completer = ShellComplete(cli, {}, "torchvet", "_TORCHVET_COMPLETE")
    assert completer.get_completions(["explain"], "MEM101")[0].help == rule("MEM101").summary


def test_recordings_are_offered_and_without_one_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.vet", "b.vet", "c.txt", "runs/d.vet", "runs/e[1].vet"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert offered("report", "") == ["a.vet", "b.vet"]
    assert offered("report", "b") == ["b.vet"]
    assert offered("compare", "a.vet", "runs/") == ["runs/d.vet", "runs/e[1].vet"]
    assert offered("report", "runs/e[") == ["runs/e[1].vet"]
    completer = ShellComplete(cli, {}, "torchvet", "_TORCHVET_COMPLETE")
    for words, begun in ((["report"], "nowhere/x"), (["report"], "c"), (["fix"], "c"), (["run"], "c")):
        assert [(i.value, i.type) for i in completer.get_completions(words, begun)] == [(begun, "file")]


def test_a_shell_gets_codes_and_no_rule_is_imported() -> None:
    """The whole way that bash goes; the last line names rules that were imported."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(sorted(m for m in sys.modules if m.endswith('.rule') or m == 'torch')))\n"
        "from torchvet.commands import main\nmain([])"
    )
    environment = {"_TORCHVET_COMPLETE": "bash_complete", "COMP_WORDS": "torchvet explain MEM10", "COMP_CWORD": "2"}
    environment["PYTHONPATH"] = ":".join(p for p in sys.path if p)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert ran.stderr == ""
    *lines, loaded = ran.stdout.splitlines()
    assert lines == [f"plain,{c}" for c in codes() if c.startswith("MEM10")]
    assert loaded == "[]"
