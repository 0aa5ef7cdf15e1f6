"""The language server: an editor's events in, diagnostics and code actions out. Speaks on stdin and stdout."""

from __future__ import annotations

import asyncio

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from torchvet._version import __version__
from torchvet.editors.buffers import Buffer, Checks
from torchvet.editors.translation import FIX_ALL, SOURCE, Translator
from torchvet.errors import TorchvetError

PAUSE = 0.25
"""Seconds without a key before a changed text is checked."""
KINDS = [types.CodeActionKind.QuickFix, FIX_ALL]


class Server(LanguageServer):
    """Whole texts are exchanged: lines that change in part would be counted by other line ends than Python's."""

    def __init__(self) -> None:
        super().__init__(SOURCE, __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.checks = Checks()
        self.buffers: dict[str, Buffer] = {}
        self._said = ""

    def publish(self, uri: str) -> None:
        """Check a document's text and send what was found."""
        document = self.workspace.get_text_document(uri)
        self.buffers[uri] = self.checked(uri, document.source)
        found = self.translator(uri)
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=uri, version=document.version, diagnostics=found.diagnostics() if found else []
            )
        )

    def checked(self, uri: str, text: str) -> Buffer:
        """What is found in a text. A configuration that makes no sense is shown once, and nothing is checked."""
        path = uris.to_fs_path(uri) or uri
        try:
            buffer, said = self.checks.check(path, text), ""
        except TorchvetError as error:
            buffer, said = Buffer(path, text), f"torchvet: {error}"
        if said and said != self._said:
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, said))
        self._said = said
        return buffer

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
        document = ls.workspace.text_documents.get(uri)
        if document is not None and document.version == version:
            ls.publish(uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(ls: Server, params: types.DidSaveTextDocumentParams) -> None:
        ls.publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        ls.buffers.pop(uri, None)
        ls.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

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
