"""A session with `torchvet server` as an editor has it: a real client, over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from torchvet import __version__
from torchvet.commands import cli

SCALER = "import torch\nx = '😀'; y = torch.cuda.amp.GradScaler()\n"


class Editor:
    """A client that keeps what it is sent."""

    def __init__(self) -> None:
        self.client = LanguageClient("test", "1")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        self.messages: asyncio.Queue[types.ShowMessageParams] = asyncio.Queue()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def shown(params: types.ShowMessageParams) -> None:
            self.messages.put_nowait(params)

    async def start(self, folder: Path) -> types.InitializeResult:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        await self.client.start_io(sys.executable, "-m", "torchvet", "server", cwd=folder, env=environment)
        notebooks = types.NotebookDocumentClientCapabilities(types.NotebookDocumentSyncClientCapabilities())
        return await self.client.initialize_async(
            types.InitializeParams(types.ClientCapabilities(notebook_document=notebooks), root_uri=folder.as_uri())
        )

    async def codes(self) -> tuple[int | None, list[Any]]:
        """The version and codes of the next diagnostics."""
        found = await asyncio.wait_for(self.published.get(), 60)
        return found.version, [d.code for d in found.diagnostics]

    def change(self, uri: str, version: int, text: str) -> None:
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version, uri),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )


async def session(folder: Path) -> None:
    editor, file = Editor(), folder / "train.py"
    uri, client = file.as_uri(), editor.client
    started = await editor.start(folder)
    assert started.server_info and (started.server_info.name, started.server_info.version) == ("torchvet", __version__)
    client.text_document_did_open(
        types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "python", 1, "import torch\n"))
    )
    assert await editor.codes() == (1, [])
    # Keys follow one another faster than checks are due: only the last text is checked.
    for version, text in enumerate(("import torch\ndef (", "import torch\n\x00", SCALER), start=2):
        editor.change(uri, version, text)
    assert await editor.codes() == (4, ["AMP210"])
    assert editor.published.empty()
    identifier, line = types.TextDocumentIdentifier(uri), types.Range(types.Position(1, 14), types.Position(1, 14))
    asked = types.CodeActionParams(identifier, line, types.CodeActionContext([]))
    offered = await client.text_document_code_action_async(asked)
    titles = [a.title for a in offered or [] if isinstance(a, types.CodeAction)]
    assert [t.partition(":")[0] for t in titles] == ["AMP210", "Ignore AMP210 on this line", "torchvet"]
    fix = (offered or [])[0]
    assert isinstance(fix, types.CodeAction) and fix.edit and fix.edit.changes
    assert {e.range.start.line for e in fix.edit.changes[uri]} == {1}
    hover = await client.text_document_hover_async(types.HoverParams(identifier, line.start))
    assert hover and "AMP210" in str(hover.contents)
    (folder / "pyproject.toml").write_text("[tool.torchvet]\nselect = ['ZZZ']\n")
    client.text_document_did_save(types.DidSaveTextDocumentParams(identifier))
    assert await editor.codes() == (4, [])
    assert "ZZZ" in (await asyncio.wait_for(editor.messages.get(), 60)).message
    (folder / "pyproject.toml").unlink()
    client.text_document_did_save(types.DidSaveTextDocumentParams(identifier))
    assert await editor.codes() == (4, ["AMP210"])
    client.text_document_did_close(types.DidCloseTextDocumentParams(identifier))
    assert await editor.codes() == (None, [])
    await client.shutdown_async(None)
    client.exit(None)
    assert client._server is not None and await asyncio.wait_for(client._server.wait(), 60) == 0
    await client.stop()
    assert not file.exists()


def test_a_session(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"  # its address has %20
    folder.mkdir()
    asyncio.run(session(folder))


CELLS = [
    (types.NotebookCellKind.Markup, "markdown", "# Training"),
    (types.NotebookCellKind.Code, "python", "import torch\nmodel = torch.nn.Linear(4, 1)\nlosses = []\n"),
    (types.NotebookCellKind.Code, "shellscript", "%%bash\nls"),
    (
        types.NotebookCellKind.Code,
        "python",
        "%matplotlib inline\noptimizer = torch.optim.SGD(model.parameters())\nfor x in data:\n"
        "    loss = model(x).sum()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
        "    losses.append(loss)\n",
    ),
]
"""The name is bound in one cell and grows in another: neither alone says that losses are kept."""


async def notebook_session(folder: Path) -> None:
    editor, uri = Editor(), (folder / "train.ipynb").as_uri()
    client = editor.client
    capabilities = (await editor.start(folder)).capabilities
    assert capabilities.notebook_document_sync is not None
    names = [f"{uri.replace('file', 'vscode-notebook-cell')}#{n}" for n in range(len(CELLS) + 1)]
    cells = [types.NotebookCell(kind, name) for name, (kind, _, _) in zip(names, CELLS, strict=False)]
    texts = [types.TextDocumentItem(n, language, 1, text) for n, (_, language, text) in zip(names, CELLS, strict=False)]
    client.notebook_document_did_open(
        types.DidOpenNotebookDocumentParams(types.NotebookDocument(uri, "jupyter-notebook", 1, cells), texts)
    )

    async def told(number: int) -> dict[str, list[tuple[Any, int]]]:
        """Codes and lines of the next diagnostics, by the last part of their cells' addresses."""
        found = [await asyncio.wait_for(editor.published.get(), 60) for _ in range(number)]
        return {p.uri.rpartition("#")[2]: [(d.code, d.range.start.line) for d in p.diagnostics] for p in found}

    assert await told(2) == {"1": [], "3": [("MEM112", 7)]}
    line = types.Range(types.Position(7, 4), types.Position(7, 4))
    identifier = types.TextDocumentIdentifier(names[3])
    asked = types.CodeActionParams(identifier, line, types.CodeActionContext([]))
    offered = [a for a in await client.text_document_code_action_async(asked) or [] if isinstance(a, types.CodeAction)]
    assert [a.title.partition(":")[0] for a in offered] == ["MEM112", "Ignore MEM112 on this line"]
    assert all(a.edit is not None and list(a.edit.changes or {}) == [names[3]] for a in offered)
    hover = await client.text_document_hover_async(types.HoverParams(identifier, line.start))
    assert hover and "MEM112" in str(hover.contents)

    def change(version: int, **cells: Any) -> None:
        event = types.NotebookDocumentChangeEvent(cells=types.NotebookDocumentCellChanges(**cells))
        document = types.VersionedNotebookDocumentIdentifier(version, uri)
        client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(document, event))

    # A cell comes in before the others, and a text changes: findings move with their cells.
    new = types.TextDocumentItem(names[4], "python", 1, "def (\n")
    array = types.NotebookCellArrayChange(0, 0, [types.NotebookCell(types.NotebookCellKind.Code, names[4])])
    change(2, structure=types.NotebookDocumentCellChangeStructure(array, [new]))
    text = types.TextDocumentContentChangeWholeDocument("\n" + CELLS[3][2])
    whole = types.NotebookDocumentCellContentChanges(types.VersionedTextDocumentIdentifier(2, names[3]), [text])
    change(3, text_content=[whole])
    assert await told(3) == {"4": [("SYN001", 0)], "1": [], "3": [("MEM112", 8)]}
    gone = types.NotebookDocumentCellChangeStructure(
        types.NotebookCellArrayChange(0, 1), did_close=[types.TextDocumentIdentifier(names[4])]
    )
    change(4, structure=gone)
    assert await told(3) == {"4": [], "1": [], "3": [("MEM112", 8)]}
    closing = [types.TextDocumentIdentifier(name) for name in names[:4]]
    client.notebook_document_did_close(
        types.DidCloseNotebookDocumentParams(types.NotebookDocumentIdentifier(uri), closing)
    )
    assert await told(4) == {"0": [], "1": [], "2": [], "3": []}
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()


def test_a_notebook_has_its_findings_in_its_cells(tmp_path: Path) -> None:
    asyncio.run(notebook_session(tmp_path))


def test_without_pygls_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from torchvet.commands import main

    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    assert main(["server"]) == 2
    assert "pip install 'torchvet[lsp]'" in capsys.readouterr().err
    assert CliRunner().invoke(cli, ["server", "--help"]).exit_code == 0
