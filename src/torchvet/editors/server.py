"""The language server: an editor's events in, diagnostics and code actions out. Speaks on stdin and stdout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import unquote

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from torchvet._version import __version__
from torchvet.checking.cells import Cell
from torchvet.editors.buffers import Buffer, Checks, cell_path
from torchvet.editors.translation import FIX_ALL, SOURCE, Translator
from torchvet.errors import TorchvetError

PAUSE = 0.25
"""Seconds without a key before a changed text is checked."""
KINDS = [types.CodeActionKind.QuickFix, FIX_ALL]


class Server(LanguageServer):
    """Whole texts are exchanged: lines that change in part would be counted by other line ends than Python's."""

    def __init__(self) -> None:
        # All cells, so that their numbers are those that `check` gives them.
        notebooks = types.NotebookDocumentSyncOptions([types.NotebookDocumentFilterWithNotebook("jupyter-notebook")])
        super().__init__(
            SOURCE,
            __version__,
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
            notebook_document_sync=notebooks,
        )
        self.checks = Checks()
        self.buffers: dict[str, Buffer] = {}
        self._said = ""

    def publish(self, uri: str) -> None:
        """Check a document's text and send what was found; of a cell, that of its notebook."""
        notebook = self.workspace.get_notebook_document(cell_uri=uri)
        if notebook is not None:
            self.publish_notebook(notebook)
            return
        path, text = uris.to_fs_path(uri) or uri, self.workspace.get_text_document(uri).source
        found = self.checked(lambda: [self.checks.check(path, text)])
        self._send(uri, found[0] if found else Buffer(path, text))

    def publish_notebook(self, notebook: types.NotebookDocument) -> None:
        """Check a notebook's code cells together and send what was found to each."""
        path = uris.to_fs_path(notebook.uri) or notebook.uri
        cells = list(self._cells(notebook))
        found = self.checked(lambda: self.checks.check_cells(path, [cell for _, cell in cells])) if cells else []
        known = found or [Buffer(cell_path(path, cell), cell.source) for _, cell in cells]
        places = {buffer.path: uri for (uri, _), buffer in zip(cells, known, strict=True)}
        for uri, buffer in zip(places.values(), known, strict=True):
            self._send(uri, buffer, places)

    def _cells(self, notebook: types.NotebookDocument) -> Iterator[tuple[str, Cell]]:
        """The cells with Python code, with their numbers among all cells."""
        for number, cell in enumerate(notebook.cells, 1):
            document = self.document(cell.document)
            if cell.kind == types.NotebookCellKind.Code and document is not None and document.language_id == "python":
                yield cell.document, Cell(number, document.source)

    def _send(self, uri: str, buffer: Buffer, places: Mapping[str, str] | None = None) -> None:
        self.buffers[uri] = buffer
        document = self.document(uri)
        found = Translator(uri, buffer, self.workspace.position_codec, places).diagnostics()
        version = document.version if document is not None else None
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def checked(self, check: Callable[[], list[Buffer]]) -> list[Buffer]:
        """What a check finds. A configuration that makes no sense is shown once, and nothing is checked."""
        try:
            found, said = check(), ""
        except TorchvetError as error:
            found, said = [], f"torchvet: {error}"
        if said and said != self._said:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, said))
        self._said = said
        return found

    def document(self, uri: str) -> TextDocument | None:
        """An open document or cell."""
        known: Mapping[str, TextDocument] = self.workspace.text_documents
        return known.get(unquote(uri)) or known.get(uri)

    def close(self, uri: str) -> None:
        """A document or a cell is open no more."""
        self.buffers.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def translator(self, uri: str) -> Translator | None:
        """The last check of a document; None for one that is not open."""
        buffer = self.buffers.get(uri)
        return Translator(uri, buffer, self.workspace.position_codec) if buffer is not None else None


def make_server() -> Server:
    """A server with all it answers to."""
    server = Server()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
        ls.publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(PAUSE)
        document = ls.document(uri)
        if document is not None and document.version == version:
            ls.publish(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(ls: Server, params: types.DidSaveTextDocumentParams) -> None:
        ls.publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        ls.close(params.text_document.uri)

    _hear_notebooks(server)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=KINDS))
    def actions(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        document = ls.workspace.get_text_document(uri)
        if uri not in ls.buffers or ls.buffers[uri].text != document.source:
            ls.publish(uri)  # edits for a text that is no more would land elsewhere
        found = ls.translator(uri)
        return list(found.actions(params.range, params.context.only, ls.checks)) if found is not None else []

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
        found = ls.translator(params.text_document.uri)
        return found.hover(params.position) if found is not None else None

    return server


def _hear_notebooks(server: Server) -> None:
    """What a server answers to of notebooks."""

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    def opened(ls: Server, params: types.DidOpenNotebookDocumentParams) -> None:
        ls.publish_notebook(params.notebook_document)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    async def changed(ls: Server, params: types.DidChangeNotebookDocumentParams) -> None:
        uri, version, cells = params.notebook_document.uri, params.notebook_document.version, params.change.cells
        for gone in (cells.structure.did_close if cells is not None and cells.structure is not None else None) or []:
            ls.close(gone.uri)
        await asyncio.sleep(PAUSE)
        notebook = ls.workspace.get_notebook_document(notebook_uri=uri)
        if notebook is not None and notebook.version == version:
            ls.publish_notebook(notebook)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
    def saved(ls: Server, params: types.DidSaveNotebookDocumentParams) -> None:
        notebook = ls.workspace.get_notebook_document(notebook_uri=params.notebook_document.uri)
        if notebook is not None:
            ls.publish_notebook(notebook)

    @server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def closed(ls: Server, params: types.DidCloseNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            ls.close(cell.uri)
