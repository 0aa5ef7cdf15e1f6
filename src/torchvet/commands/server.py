"""`torchvet server`: the language server for editors."""

from __future__ import annotations

from torchvet.commands.options import say_who_speaks, verb
from torchvet.errors import MissingExtra

EPILOG = """\b
Examples:
  torchvet server

\b
An editor starts it and speaks with it on stdin and stdout: see docs/editors.md.
Exit status: 0 the editor ended it, 2 it could not be started.
"""


@verb("server", "Start the language server, for editors.", EPILOG)
def command() -> int:
    """Speak the Language Server Protocol on stdin and stdout: the findings and fixes of `check` for open files.

    Nothing is run, and only the files that the editor opens are read. Needs pygls: pip install 'torchvet[lsp]'
    """
    try:
        import lsprotocol  # noqa: F401
        import pygls.lsp.server  # noqa: F401
    except ImportError as error:
        raise MissingExtra("the language server needs pygls 2 or newer: pip install 'torchvet[lsp]'") from error
    from torchvet.editors.server import make_server

    say_who_speaks("an editor")
    make_server().start_io()
    return 0
