"""What the skill and the rules are made of comes with the package."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from torchvet.rules.core import manifest
from torchvet.skill.documents import TEMPLATES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in the wheel."""
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_the_files_of_every_rule(packed: set[str]) -> None:
    assert f"torchvet/rules/{manifest.FILE}" in packed
    for entry in manifest.entries():
        folder = "torchvet/rules/" + entry.module.rpartition(".")[0].replace(".", "/")
        assert {f"{folder}/{name}" for name in ("rule.py", "bad.py", "details.md")} <= packed
        assert len({f"{folder}/good.patch", f"{folder}/good.py"} & packed) == 1


def test_the_wheel_has_the_templates(packed: set[str]) -> None:
    names = {name for name in packed if name.startswith("torchvet/skill/templates/")}
    assert names == {
        f"torchvet/skill/templates/{path.relative_to(TEMPLATES).as_posix()}" for path in TEMPLATES.rglob("*.md")
    }
    assert len(names) >= 5


def test_the_wheel_has_what_a_page_is_made_of(packed: set[str]) -> None:
    assert {f"torchvet/renderers/html/{name}" for name in ("page.css", "page.js")} <= packed
