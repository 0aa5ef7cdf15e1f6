"""Notebooks: the code cells are read as one module, and a finding is reported at its cell, `notebook.ipynb:cell 3`.

Cells are numbered from 1 among all cells, as notebook tools do. Magics become `pass` in place; a cell that does not
parse is a finding of its own, the other cells are checked without it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

import msgspec

from torchvet.checking.cells import Cell, parsing_error, read_cells, without_magics
from torchvet.checking.codes import SYNTAX, Scope, syntax_error
from torchvet.checking.engine import SourceRule, check_text, mentions_torch
from torchvet.checking.result import FileResult, lines_of, not_checked
from torchvet.finding import Edit, Finding, Location, Related
from torchvet.source.text import split_lines


class Notebook:
    """The code cells of a notebook, and the module that they make."""

    def __init__(self, shown: str, cells: Sequence[Cell]) -> None:
        self.shown = shown
        self.cells = list(cells)
        self.masked = [without_magics(cell.source) for cell in cells]

    def text(self) -> str:
        """One module, each cell on lines of its own."""
        return "".join(text + "\n" for text in self.masked)

    @cached_property
    def _firsts(self) -> list[int]:
        """The line of the module that each cell begins on. Taking a cell out leaves its lines."""
        firsts, line = [], 1
        for text in self.masked:
            firsts.append(line)
            # Of the masked text, which has as many lines as the cell, so that places fit both.
            line += len(split_lines(text))
        return firsts

    def check(self, rules: Sequence[SourceRule], scope: Scope) -> FileResult:
        """What the cells show, each finding at its cell."""
        result = check_text(self.shown, self.text(), rules, scope)
        broken: list[Finding] = []
        if any(f.code == SYNTAX.code for f in result.findings) or parsing_error(self.text()) is not None:
            # One cell that does not parse would hide all the others.
            broken = self._blank_broken()
            result = check_text(self.shown, self.text(), rules, scope)
        found = [self._mapped(f) for f in result.findings]
        found += [f for f in broken if SYNTAX.code in scope.wanted]
        found.sort(key=lambda f: (self._number(f), f.location.line if f.location else 0))
        lines: dict[str, dict[str, str]] = {}
        for index, cell in enumerate(self.cells):
            lines |= lines_of(found, self.path(index), cell.source)
        return FileResult(self.shown, found, result.not_checked, lines)

    def path(self, index: int) -> str:
        """What a cell is called in a location."""
        return f"{self.shown}:cell {self.cells[index].number}"

    def _blank_broken(self) -> list[Finding]:
        """Take out the cells that do not parse, with a finding for each."""
        found = []
        for index, text in enumerate(self.masked):
            error = parsing_error(text)
            if error is not None:
                self.masked[index] = "\n" * (len(split_lines(text)) - 1)
            if isinstance(error, SyntaxError):
                found.append(syntax_error(self.path(index), error))
        return found

    def _mapped(self, finding: Finding) -> Finding:
        edits = [edit for edit in map(self._edit, finding.remedy.edits) if edit is not None]
        # Half of a fix may leave a program that does not run.
        whole = len(edits) == len(finding.remedy.edits)
        remedy = msgspec.structs.replace(finding.remedy, edits=edits if whole else [])
        related = [self._related(r) for r in finding.related]
        location = self._location(finding.location) if finding.location is not None else None
        return msgspec.structs.replace(finding, location=location, remedy=remedy, related=related)

    def _at(self, line: int) -> tuple[int, int]:
        """The cell's index and the line in it."""
        index = max(0, bisect_right(self._firsts, line) - 1)
        return index, line - self._firsts[index] + 1

    def _location(self, at: Location) -> Location:
        if at.path != self.shown or not self.cells:
            return at
        index, line = self._at(at.line)
        end = line + at.end_line - at.line if at.end_line is not None else None
        return msgspec.structs.replace(at, path=self.path(index), line=line, end_line=end)

    def _related(self, related: Related) -> Related:
        if related.path != self.shown or related.line is None or not self.cells:
            return related
        index, line = self._at(related.line)
        return msgspec.structs.replace(related, path=self.path(index), line=line)

    def _edit(self, edit: Edit) -> Edit | None:
        """The same edit to a cell; None where it reaches over several."""
        index, line = self._at(edit.start[0])
        last, end = self._at(edit.end[0])
        column = edit.end[1]
        if last == index + 1 and (end, column) == (1, 1):  # up to the end of the cell
            lines = split_lines(self.cells[index].source)
            last, end, column = index, len(lines), len(lines[-1]) + 1
        if last != index:
            return None
        return Edit(path=self.path(index), start=(line, edit.start[1]), end=(end, column), text=edit.text)

    def _number(self, finding: Finding) -> int:
        return int(finding.location.path.rpartition(" ")[2]) if finding.location is not None else 0


def check_notebook(shown: str, data: bytes, rules: Sequence[SourceRule], scope: Scope) -> FileResult:
    """What a notebook's code cells show; nothing where its language is another, or where no torch is in it."""
    try:
        cells = read_cells(data)
    except ValueError as error:
        return not_checked(shown, f"it is no valid notebook: {error}")
    return Notebook(shown, cells).check(rules, scope) if mentions_torch(data) else FileResult(shown)
