"""What the skill is made of comes with the package."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from torchvet.skill.documents import TEMPLATES

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_the_templates(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if name.startswith("torchvet/skill/templates/")}
    assert names == {
        f"torchvet/skill/templates/{path.relative_to(TEMPLATES).as_posix()}" for path in TEMPLATES.rglob("*.md")
    }
    assert len(names) >= 5
