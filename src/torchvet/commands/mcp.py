"""`torchvet mcp`: the MCP server for coding agents."""

from __future__ import annotations

from pathlib import Path

import click

from torchvet.commands.options import say_who_speaks, verb
from torchvet.errors import MissingExtra

EPILOG = """\b
Examples:
  torchvet mcp
  torchvet mcp --root ~/project --root /data/runs

\b
An agent's program starts it and speaks with it on stdin and stdout: see docs/mcp.md.
Exit status: 0 the agent ended it, 2 it could not be started.
"""


@verb("mcp", "Start the MCP server, for coding agents.", EPILOG)
@click.option(
    "--root",
    "roots",
    metavar="FOLDER",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Let the tools read below FOLDER. Repeatable.  [default: the working directory]",
)
def command(roots: tuple[Path, ...]) -> int:
    """Speak the Model Context Protocol on stdin and stdout: tools that read source, recordings, snapshots and traces.

    No tool changes a file or runs a program. Needs the official SDK: pip install 'torchvet[mcp]'
    """
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError as error:
        raise MissingExtra("the MCP server needs the package mcp, 2 or newer: pip install 'torchvet[mcp]'") from error
    from torchvet.agents.server import make_server

    say_who_speaks("an agent")
    make_server(roots or (Path.cwd(),)).run("stdio")
    return 0
