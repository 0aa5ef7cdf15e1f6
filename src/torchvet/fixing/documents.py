"""What can be fixed: a module or a notebook, as texts by the paths that findings give them."""

from __future__ import annotations

import ast
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from torchvet.checking.cells import Cell, read_cells
from torchvet.checking.decoding import Decoded, decode
from torchvet.checking.engine import FileResult, Scope, SourceRule, check_text
from torchvet.checking.notebooks import Notebook
from torchvet.fixing.rewriting import rewritten
from torchvet.gc_pause import collector_off


class Document(ABC):
    """A file's texts and what can be asked of them. Immutable: a fix makes a new document."""

    texts: dict[str, str]

    def __init__(self, shown: str, rules: Sequence[SourceRule], scope: Scope) -> None:
        self.shown, self.rules, self.scope = shown, rules, scope

    @abstractmethod
    def with_texts(self, texts: Mapping[str, str]) -> Document:
        """The document with other texts."""

    @abstractmethod
    def module(self) -> str:
        """The source that Python would compile."""

    @abstractmethod
    def encode(self) -> bytes:
        """The file's new content. Raises `UnicodeEncodeError` if its encoding lacks a character."""

    def check(self) -> FileResult:
        """What the rules find."""
        return check_text(self.shown, self.module(), self.rules, self.scope)


class Module(Document):
    """A Python file."""

    def __init__(self, shown: str, decoded: Decoded, rules: Sequence[SourceRule], scope: Scope) -> None:
        super().__init__(shown, rules, scope)
        self.decoded = decoded
        self.texts = {shown: decoded.text}

    def with_texts(self, texts: Mapping[str, str]) -> Module:
        return Module(self.shown, self.decoded._replace(text=texts[self.shown]), self.rules, self.scope)

    def module(self) -> str:
        return self.decoded.text

    def encode(self) -> bytes:
        return self.decoded.encode(self.decoded.text)


class NotebookFile(Document):
    """A notebook: each code cell is a text."""

    def __init__(
        self, shown: str, data: bytes, cells: Sequence[Cell], rules: Sequence[SourceRule], scope: Scope
    ) -> None:
        super().__init__(shown, rules, scope)
        self.data, self.notebook = data, Notebook(shown, cells)
        self.texts = {self.notebook.path(i): cell.source for i, cell in enumerate(cells)}

    def with_texts(self, texts: Mapping[str, str]) -> NotebookFile:
        cells = [Cell(cell.number, texts[self.notebook.path(i)]) for i, cell in enumerate(self.notebook.cells)]
        return NotebookFile(self.shown, self.data, cells, self.rules, self.scope)

    def module(self) -> str:
        return self.notebook.text()

    def encode(self) -> bytes:
        """The notebook, changed in the sources that changed and nowhere else."""
        before = {cell.number: cell.source for cell in read_cells(self.data)}
        changed = {c.number - 1: c.source for c in self.notebook.cells if before[c.number] != c.source}
        return rewritten(self.data, changed)

    def check(self) -> FileResult:
        # On a notebook of its own: a check blanks the cells that do not parse.
        return Notebook(self.shown, self.notebook.cells).check(self.rules, self.scope)


def open_document(shown: str, data: bytes, rules: Sequence[SourceRule], scope: Scope) -> Document:
    """The document that a file's content is. Raises `SyntaxError`, `ValueError` or `LookupError` if it is none."""
    if shown.lower().endswith(".ipynb"):
        return NotebookFile(shown, data, read_cells(data), rules, scope)
    return Module(shown, decode(data), rules, scope)


def soundness(text: str) -> int:
    """2 for source that compiles, 1 if it only parses (a notebook may await at its top level), else 0."""
    with collector_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 0
        try:
            compile(tree, "<fixed>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return 1
        return 2
