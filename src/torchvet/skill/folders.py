"""Where coding agents look for skills: their own folders, and the one that many share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchvet.errors import BadInput


@dataclass(frozen=True)
class Agent:
    """`user` is below the home folder, or below what the environment variable `moved_by` names, without its first part;
    `project` is below the project's folder."""

    name: str
    title: str
    user: str
    project: str
    moved_by: str = ""

    def home(self, environment: Mapping[str, str], home: Path) -> Path:
        """The agent's own folder, whether or not it is there."""
        first, *_ = Path(self.user).parts
        moved = environment.get(self.moved_by, "").strip()
        return Path(moved).expanduser() if moved else home / first

    def skills(self, project: Path | None, environment: Mapping[str, str], home: Path) -> Path:
        """Where its skills are: in a project's folder, or the user's."""
        if project is not None:
            return project / self.project
        return self.home(environment, home).joinpath(*Path(self.user).parts[1:])


AGENTS = {
    agent.name: agent for agent in (
        Agent("agents", "Codex, Cursor, Copilot, Gemini CLI and others",
              ".agents/skills", ".agents/skills"),
        Agent("claude", "Claude Code", ".claude/skills", ".claude/skills", "CLAUDE_CONFIG_DIR"),
        Agent("codex", "Codex", ".agents/skills", ".agents/skills"),
        Agent("copilot", "GitHub Copilot", ".copilot/skills", ".github/skills"),
        Agent("cursor", "Cursor", ".cursor/skills", ".cursor/skills"),
        Agent("gemini", "Gemini CLI", ".gemini/skills", ".gemini/skills"),
        Agent("opencode", "OpenCode", ".config/opencode/skills", ".opencode/skills", "XDG_CONFIG_HOME"),
        Agent("windsurf", "Windsurf", ".codeium/windsurf/skills", ".windsurf/skills"),
    )
}  # fmt: skip
"""Codex takes the shared folder for its own; it still reads ~/.codex/skills, which it calls deprecated."""


def agents_asked(names: Sequence[str], environment: Mapping[str, str], home: Path) -> list[Agent]:
    """The agents of these names; without one the shared folder, and Claude Code, which does not read it, where it is
    set up. Raises `BadInput`."""
    if not names:
        claude = AGENTS["claude"]
        return [AGENTS["agents"], *([claude] if claude.home(environment, home).is_dir() else [])]
    unknown = [name for name in names if name.lower() not in AGENTS]
    if unknown:
        raise BadInput(f"{unknown[0]}: no agent that torchvet knows; give one of {', '.join(AGENTS)}, or --to FOLDER")
    return [AGENTS[name] for name in dict.fromkeys(name.lower() for name in names)]


def folders_asked(
    names: Sequence[str], project: Path | None, environment: Mapping[str, str] = os.environ
) -> dict[Path, str]:
    """The skills' folders of these agents, each once, with who reads it. Raises `BadInput`."""
    try:
        home = Path.home()
    except RuntimeError as error:
        raise BadInput("there is no home folder; give a folder with --to") from error
    found: dict[Path, str] = {}
    for agent in agents_asked(names, environment, home):
        folder = agent.skills(project, environment, home)
        found[folder] = f"{found[folder]}, {agent.title}" if folder in found else agent.title
    return found
