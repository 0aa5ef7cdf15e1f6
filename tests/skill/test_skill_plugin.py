"""The plugin's folder: its version is the package's, its skill is the one that is installed, and it is kept fresh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torchvet
from torchvet.commands import main
from torchvet.skill import documents
from torchvet.skill.installing import marked

ROOT = Path(__file__).parents[2]
SKILL = {f"skills/torchvet/{name}": marked(text) for name, text in documents().items()}


def files(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}


def test_it_has_the_manifest_the_server_and_the_skill(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install", "--plugin", str(tmp_path / "p")]) == 0
    assert f"wrote {len(SKILL) + 2} files" in capsys.readouterr().out
    found = files(tmp_path / "p")
    manifest = json.loads(found.pop(".claude-plugin/plugin.json"))
    assert (manifest["name"], manifest["version"]) == ("torchvet", torchvet.__version__)
    servers = json.loads(found.pop(".mcp.json"))["mcpServers"]
    assert servers["torchvet"] == {"command": "torchvet", "args": ["mcp"]}
    assert found == SKILL
    assert main(["skill", "install", "--plugin", str(tmp_path / "p")]) == 0
    assert "up to date" in capsys.readouterr().out


def test_the_repositorys_plugin_is_fresh(tmp_path: Path) -> None:
    """`make docs` writes it."""
    assert main(["skill", "install", "--plugin", str(tmp_path)]) == 0
    assert files(ROOT / "plugin") == files(tmp_path)


def test_the_marketplace_names_the_plugin() -> None:
    listed = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text("utf-8"))["plugins"]
    assert [(p["name"], (ROOT / p["source"]).resolve()) for p in listed] == [("torchvet", ROOT / "plugin")]


def test_an_older_version_is_replaced_and_what_the_user_changed_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["skill", "install", "--plugin", str(tmp_path)]
    assert main(arguments) == 0
    manifest = tmp_path / ".claude-plugin/plugin.json"
    manifest.write_text(manifest.read_text("utf-8").replace(torchvet.__version__, "0.0.1"), "utf-8")
    assert main(arguments) == 0
    assert json.loads(manifest.read_text("utf-8"))["version"] == torchvet.__version__
    own = '{"name": "mine", "hooks": {}}'
    manifest.write_text(own, "utf-8")
    (tmp_path / "skills/torchvet/SKILL.md").unlink()
    assert main(arguments) == 2
    assert "plugin.json" in capsys.readouterr().err
    assert manifest.read_text("utf-8") == own and not (tmp_path / "skills/torchvet/SKILL.md").exists()
    assert main([*arguments, "--force"]) == 0
    assert main([*arguments, "--project"]) == 2
