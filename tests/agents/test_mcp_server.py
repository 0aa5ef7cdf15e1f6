"""A session with `torchvet mcp` as an agent has it: the SDK's client, over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from torchvet.commands import main


async def session(folder: Path, root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    words = ["-m", "torchvet", "mcp", "--root", str(root)]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=folder)
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        assert 4 <= len(tools) <= 6
        for tool in tools:
            assert tool.description and tool.annotations and tool.annotations.read_only_hint
            assert tool.annotations.destructive_hint is False
        found = await client.call_tool("check_source", {"path": "train.py"})
        assert [f["code"] for f in (found.structured_content or {})["findings"]] == ["AMP210"]
        refused = await client.call_tool("check_source", {"path": str(folder / "here.py")})
        assert refused.is_error and "lies outside of" in str(refused.content)


def test_a_session(tmp_path: Path) -> None:
    for name in ("folder/here.py", "root/train.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("import torch\nscaler = torch.cuda.amp.GradScaler()\n")
    asyncio.run(session(tmp_path / "folder", tmp_path / "root"))


def test_without_the_sdk_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp"]) == 2
    assert "pip install 'torchvet[mcp]'" in capsys.readouterr().err
    assert main(["mcp", "--root", "/nowhere"]) == 2
