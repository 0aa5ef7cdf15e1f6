"""The plugin for Claude Code: the skill, the MCP server, and a manifest with the package's version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torchvet._version import __version__
from torchvet.errors import BadInput
from torchvet.skill.documents import NAME
from torchvet.skill.installing import Installed, install, put, read, told

DESCRIPTION = (
    "A doctor for PyTorch programs: a skill with the method and all rules, and tools that read source and files."
)


def settings() -> dict[str, str]:
    """The plugin's own files beside the skill, by their path: JSON."""
    manifest = {
        "name": NAME,
        "version": __version__,
        "description": DESCRIPTION,
        "license": "Apache-2.0",
        "keywords": ["pytorch", "memory-leak", "out-of-memory", "mixed-precision", "profiling"],
    }
    servers = {"mcpServers": {NAME: {"command": "torchvet", "args": ["mcp"]}}}
    return {".claude-plugin/plugin.json": _text(manifest), ".mcp.json": _text(servers)}


def install_plugin(folder: Path, force: bool = False) -> Installed:
    """Write the plugin into a folder. Raises `BadInput`, with nothing written, where a file was changed by the user."""
    stale = []
    for name, text in settings().items():
        data = read(folder / name)
        if data is not None and not force and not _alike(data, text):
            raise BadInput(
                f"{folder / name}: was not written by torchvet, or was changed since; nothing was written. "
                "Move it away, or give --force to replace it"
            )
        stale += [name] if data is None or data.replace(b"\r\n", b"\n") != text.encode() else []
    (skill,) = install([folder / "skills"], force)
    for name in stale:
        with told(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            put(folder / name, settings()[name])
    return Installed(folder, [*stale, *skill.written], skill.removed)


def _alike(data: bytes, text: str) -> bool:
    """Whether a file is one that some version of torchvet wrote: JSON has no place for a mark, so its keys tell."""
    try:
        there = json.loads(data)
    except ValueError:
        return False
    wanted = json.loads(text)
    return isinstance(there, dict) and there.keys() == wanted.keys() and there.get("name") == wanted.get("name")


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
