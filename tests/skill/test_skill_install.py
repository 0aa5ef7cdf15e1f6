"""`torchvet skill`: where it writes, what it leaves alone, what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchvet.commands import main
from torchvet.skill import AGENTS, documents
from torchvet.skill.folders import Agent
from torchvet.skill.installing import is_as_written, marked


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own; the working directory is a project in it."""
    for agent in AGENTS.values():
        monkeypatch.delenv(agent.moved_by or "NONE", raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def files(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text("utf-8") for p in folder.rglob("*") if p.is_file()}


AS_WRITTEN = {name: marked(text) for name, text in documents().items()}


def test_without_an_agent_the_shared_folder_is_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install"]) == 0
    assert files(home) == {f".agents/skills/torchvet/{name}": text for name, text in AS_WRITTEN.items()}
    out = capsys.readouterr().out
    assert out == f"{home / '.agents/skills/torchvet'}: wrote {len(AS_WRITTEN)} files " \
                  "(for Codex, Cursor, Copilot, Gemini CLI and others)\n"  # fmt: skip


def test_claude_code_is_served_too_where_it_is_set_up(home: Path) -> None:
    (home / ".claude").mkdir()
    assert main(["skill", "install"]) == 0
    assert files(home / ".claude/skills/torchvet") == files(home / ".agents/skills/torchvet") == AS_WRITTEN


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda a: a.name)
def test_an_agents_own_folder(home: Path, agent: Agent) -> None:
    assert main(["skill", "install", "--agent", agent.name.upper()]) == 0
    assert files(home) == {f"{agent.user}/torchvet/{name}": text for name, text in AS_WRITTEN.items()}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda a: a.name)
def test_a_projects_folder(home: Path, agent: Agent) -> None:
    assert main(["skill", "install", "--project", "--agent", agent.name]) == 0
    folder = f"project/{agent.project}/torchvet"
    assert files(home) == {f"{folder}/{name}": text for name, text in AS_WRITTEN.items()}


def test_agents_with_one_folder_share_what_is_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install", "--agent", "codex", "--agent", "agents", "--agent", "codex"]) == 0
    assert capsys.readouterr().out.count("wrote") == 1


def test_folders_that_were_moved_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "moved"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert main(["skill", "install", "--agent", "claude", "--agent", "opencode"]) == 0
    assert {p.name for p in home.iterdir()} == {"project", "moved", "xdg"}
    assert files(home / "moved/skills/torchvet") == files(home / "xdg/opencode/skills/torchvet") == AS_WRITTEN


def test_any_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install", "--to", "~/own"]) == 0
    assert files(home / "own/torchvet") == AS_WRITTEN
    assert main(["skill", "install", "--to", "own", "--project"]) == 2
    assert "--to" in capsys.readouterr().err


def test_again_it_writes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install"]) == 0
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    capsys.readouterr()
    assert main(["skill", "install"]) == 0
    assert "up to date" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def test_what_the_user_changed_is_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".claude").mkdir()
    assert main(["skill", "install", "--agent", "claude"]) == 0
    changed = home / ".claude/skills/torchvet/references/speed.md"
    changed.write_text(changed.read_text("utf-8").replace("Speed", "Our speed"), "utf-8")
    before = files(home)
    assert main(["skill", "install"]) == 2
    err = capsys.readouterr().err
    assert str(changed) in err and "--force" in err and "nothing was written" in err
    assert files(home) == before, "neither it nor the other folder"
    assert main(["skill", "install", "--force"]) == 0
    assert files(home / ".claude/skills/torchvet") == files(home / ".agents/skills/torchvet") == AS_WRITTEN


def test_a_skill_of_somebody_else_by_this_name_is_kept(home: Path) -> None:
    other = home / ".agents/skills/torchvet/SKILL.md"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"---\nname: torchvet\n---\n\xff")
    assert main(["skill", "install"]) == 2
    assert files(other.parent.parent.parent / "none") == {} and len(list(other.parent.iterdir())) == 1


def test_what_an_older_version_wrote_is_replaced_and_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / ".agents/skills/torchvet"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(marked("old\n"), "utf-8", newline="\r\n")  # a checkout on Windows
    (folder / "references/gone.md").write_text(marked("old\n"), "utf-8")
    (folder / "references/mine.md").write_text("my own notes\n", "utf-8")
    assert main(["skill", "install"]) == 0
    assert files(folder) == AS_WRITTEN | {"references/mine.md": "my own notes\n"}
    assert f"wrote {len(AS_WRITTEN)} files, removed 1 of an older version" in capsys.readouterr().out


def test_other_line_ends_are_no_change(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install"]) == 0
    path = home / ".agents/skills/torchvet/SKILL.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert main(["skill", "install"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_a_mark_tells_a_change() -> None:
    text = marked("a\nb\n")
    assert is_as_written(text.encode()) and is_as_written(text.replace("\n", "\r\n").encode())
    assert not is_as_written(text.replace("b", "c").encode())
    assert not is_as_written((text + "more\n").encode()) and not is_as_written(b"a\nb\n") and not is_as_written(b"\xff")


def test_a_link_stays_a_link(home: Path) -> None:
    (home / "kept").mkdir()
    (home / ".agents/skills").mkdir(parents=True)
    (home / ".agents/skills/torchvet").symlink_to(home / "kept", target_is_directory=True)
    assert main(["skill", "install"]) == 0
    assert (home / ".agents/skills/torchvet").is_symlink() and files(home / "kept") == AS_WRITTEN


def test_an_agent_that_is_none_is_said_with_all_that_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "install", "--agent", "claude", "--agent", "clod"]) == 2
    err = capsys.readouterr().err
    assert "clod" in err and all(name in err for name in AGENTS)
    assert files(home) == {}


@pytest.mark.parametrize("refused", ["mkdir", "read_bytes"])
def test_a_folder_that_cannot_be_used_is_said(
    home: Path, refused: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it is for anyone but root, whom no permissions hold."""

    def denied(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, refused, denied)
    assert main(["skill", "install"]) == 2
    err = capsys.readouterr().err
    assert str(home / ".agents/skills/torchvet") in err and "Permission denied" in err and "Traceback" not in err


@pytest.mark.parametrize("where", [".agents", ".agents/skills", ".agents/skills/torchvet"])
def test_a_file_in_a_folders_place_is_said(home: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    (home / where).parent.mkdir(parents=True, exist_ok=True)
    (home / where).write_text("")
    assert main(["skill", "install"]) == 2
    err = capsys.readouterr().err
    assert str(home / where) in err and "Traceback" not in err


def test_a_folder_in_a_files_place_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".agents/skills/torchvet/SKILL.md").mkdir(parents=True)
    assert main(["skill", "install", "--force"]) == 2
    assert "SKILL.md" in capsys.readouterr().err


def test_nothing_is_left_beside_a_file_that_could_not_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main(["skill", "install"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert files(home) == {}


@pytest.mark.parametrize("name", ["", "speed.md", "speed", "references/speed.md"])
def test_show_prints_a_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "show", *filter(None, [name])]) == 0
    assert capsys.readouterr().out == documents()["references/speed.md" if name else "SKILL.md"]


def test_show_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill", "show", "nothing"]) == 2
    assert "references/speed.md" in capsys.readouterr().err


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda a: a.name)
def test_the_documents_name_each_agents_folders(agent: Agent) -> None:
    page = Path(__file__).parents[2] / "docs" / "skill.md"
    (row,) = (
        line for line in page.read_text("utf-8").splitlines() if line.startswith("| `") and f"`{agent.name}`" in line
    )
    assert f"| `~/{agent.user}`" in row and f"| `{agent.project}` |" in row and agent.moved_by in row
