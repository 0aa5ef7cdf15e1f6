"""The MCP server: `tools.py` on stdin and stdout. Every tool is marked as one that only reads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from torchvet._version import __version__
from torchvet.agents.reach import Reach
from torchvet.agents.tools import Tools
from torchvet.errors import TorchvetError

INSTRUCTIONS = (
    "torchvet finds faults of PyTorch programs: memory that grows, out of memory, NaN, mixed precision, slow steps. "
    "These tools read source, recordings, snapshots and traces; none runs a program. To measure one, run "
    "`torchvet run --record run.vet train.py` in a shell, then call read_report. A report's `not_checked` and "
    "`facts.truncated` say what was not looked at and what is not shown; `clean` means only that the rest was."
)
READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def make_server(folders: Sequence[Path]) -> MCPServer:
    """A server whose tools read below these folders. One call runs at a time: what it calls is not made for threads."""
    server = MCPServer("torchvet", version=__version__, instructions=INSTRUCTIONS)
    tools, turn = Tools(Reach(folders)), threading.Lock()
    for tool in (
        tools.check_source,
        tools.inspect_file,
        tools.read_report,
        tools.compare_runs,
        tools.explain_rule,
        tools.search_rules,
    ):
        server.tool(annotations=READS)(_told(tool, turn))
    return server


def _told(tool: Callable[..., dict[str, Any]], turn: threading.Lock) -> Callable[..., dict[str, Any]]:
    """A tool whose errors are messages for the agent."""

    @functools.wraps(tool)
    def call(*args: Any, **given: Any) -> dict[str, Any]:
        try:
            with turn:
                return tool(*args, **given)
        except TorchvetError as error:
            raise ToolError(str(error)) from error

    return call
