"""What rules import from one room: types that only signatures name, and record types that load when asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchvet.rules
from torchvet.recording import records
from torchvet.rules import kit

FILES = sorted(Path(torchvet.rules.__file__).parent.rglob("*.py"))
NO_VALUES = {name for name in kit.__all__ if getattr(kit, name) is Any}
"""At run time these are `Any`, so that `check` need not read what recordings are made of."""


def used_as_values(tree: ast.Module) -> Iterator[str]:
    """The types of the kit that are called, given to a call, or inherited from."""
    imported = (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "torchvet.rules.kit")
    mine = {alias.name for node in imported for alias in node.names} & NO_VALUES
    for node in ast.walk(tree):
        asked = [node.func, *node.args] if isinstance(node, ast.Call) else getattr(node, "bases", [])
        for one in asked:
            by_kit = isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "kit"
            if (by_kit and one.attr in NO_VALUES) or (isinstance(one, ast.Name) and one.id in mine):
                yield ast.unparse(one)


def test_types_that_only_signatures_name_are_never_used_as_values() -> None:
    wrong = {str(path): found for path in FILES if (found := [*used_as_values(ast.parse(path.read_text("utf-8")))])}
    assert wrong == {}


@pytest.mark.parametrize("use", ["Step(a)", "isinstance(a, Step)", "class X(Step): pass", "map(kit.Step, a)"])
def test_a_use_as_a_value_is_seen(use: str) -> None:
    tree = ast.parse(f"from torchvet.rules.kit import Step\n{use}")
    assert [name.removeprefix("kit.") for name in used_as_values(tree)] == ["Step"]


def test_a_subject_of_records_loads_when_it_is_first_asked_for() -> None:
    code = (
        "import sys; from torchvet.rules.kit import records; name = 'torchvet.recording.records.training'; "
        "assert name not in sys.modules; records.training.Outcome; assert name in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_subject_of_records_is_listed() -> None:
    folder = Path(records.__file__).parent
    assert sorted(records.__all__) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    with pytest.raises(AttributeError, match="no_such_subject"):
        records.no_such_subject  # type: ignore[attr-defined]  # noqa: B018
