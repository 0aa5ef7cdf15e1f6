"""`torchvet skill`: install what torchvet knows as a skill for coding agents, or show it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchvet.commands.options import HELP
from torchvet.errors import BadInput

if TYPE_CHECKING:
    from torchvet.skill import Installed

EPILOG = """\b
Examples:
  torchvet skill install
  torchvet skill install --agent claude --project
  torchvet skill show
"""
INSTALL_EPILOG = """\b
Examples:
  torchvet skill install
  torchvet skill install --agent claude --agent cursor
  torchvet skill install --agent claude --project
  torchvet skill install --to ~/my-agent/skills
  torchvet skill install --plugin ~/torchvet-plugin

\b
Agents: agents (~/.agents/skills, shared by many), claude, codex, copilot,
cursor, gemini, opencode, windsurf. Default: agents, and claude if Claude Code
is set up.

\b
A newer version replaces the files that torchvet wrote. Files that were changed
since are kept unless --force is given. Exit status: 0 the skill is installed,
2 usage error, or it could not be written.
"""


@click.group("skill", epilog=EPILOG, short_help="Install a skill for coding agents.", context_settings=HELP)
def command() -> None:
    """Install or show torchvet's skill for coding agents: a SKILL.md and its references, written from the rules."""


@command.command(
    "install", epilog=INSTALL_EPILOG, short_help="Write the skill where agents look.", context_settings=HELP
)
@click.option("--agent", "agents", metavar="NAME", multiple=True, help="Install for this agent. Repeatable.")
@click.option("--project", is_flag=True, help="Install into the working directory instead of the user's folders.")
@click.option(
    "--to",
    "to",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write to FOLDER/torchvet, for any other agent.",
)
@click.option(
    "--plugin",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a whole plugin for Claude Code: manifest, skill and MCP server.",
)
@click.option("--force", is_flag=True, help="Also replace files that were changed.")
def install_command(agents: tuple[str, ...], project: bool, to: Path | None, plugin: Path | None, force: bool) -> int:
    """Write the skill into the folders where coding agents look for skills."""
    from torchvet.skill import folders_asked, install

    if plugin is not None and (agents or project or to is not None):
        raise click.UsageError("--plugin cannot be combined with --agent, --project or --to")
    if to is not None and (agents or project):
        raise click.UsageError("--to cannot be combined with --agent or --project")
    if plugin is not None:
        from torchvet.skill.plugin import install_plugin

        _say(install_plugin(plugin.expanduser(), force), "Claude Code, as a plugin")
        return 0
    if to is not None:
        readers = {to.expanduser(): "any agent"}
    else:
        readers = folders_asked(agents, Path.cwd() if project else None)
    for done, reader in zip(install(list(readers), force), readers.values(), strict=True):
        _say(done, reader)
    return 0


def _say(done: Installed, reader: str) -> None:
    what = [f"wrote {len(done.written)} files"] if done.written else ["up to date"]
    what += [f"removed {len(done.removed)} of an older version"] if done.removed else []
    click.echo(f"{done.folder}: {', '.join(what)} (for {reader})")


@command.command("show", short_help="Print the skill.", context_settings=HELP)
@click.argument("file", required=False)
def show_command(file: str | None) -> int:
    """Print FILE of the skill, or its SKILL.md."""
    from torchvet.skill import documents

    texts = documents()
    named = {
        path: text for path, text in texts.items() if (file or "SKILL.md") in (path, Path(path).name, Path(path).stem)
    }
    if not named:
        raise BadInput(f"{file}: the skill has no such file; it has {', '.join(texts)}")
    click.echo(next(iter(named.values())), nl=False)
    return 0
