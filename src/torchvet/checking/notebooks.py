"""Notebooks: the code cells read as one module, and what it shows said of `notebook.ipynb:cell 3`, line in the cell.

Cells are numbered from 1 among all cells, as notebook tools do. Magics become `pass` in place; a cell that does not
parse is a finding of its own, the other cells are checked without it.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from torchvet.checking.cells import Cell, parses, read_cells, without_magics
from torchvet.checking.engine import FileResult, Scope, SourceRule, check_text, not_checked
from torchvet.checking.own import SYNTAX, syntax_error
from torchvet.collector import collector_off
from torchvet.finding import Edit, Finding, Location, Related

_LINE_END = re.compile(r"\r\n|\r|\n")


class Notebook:
    """The code cells of a notebook, and the module that they make."""

    def __init__(self, shown: str, cells: Sequence[Cell]) -> None:
        self.shown = shown
        self.cells = list(cells)
        self.masked = [without_magics(cell.source) for cell in cells]

    def text(self) -> str:
        """One module, each cell on lines of its own."""
        return "".join(text + "\n" for text in self.masked)

    def _firsts(self) -> list[int]:
        firsts, line = [], 1
        for text in self.masked:
            firsts.append(line)
            line += len(_LINE_END.split(text))
        return firsts

    def check(self, rules: Sequence[SourceRule], scope: Scope) -> FileResult:
        """What the cells show, each finding at its cell."""
        result = check_text(self.shown, self.text(), rules, scope)
        broken: list[Finding] = []
        if any(f.code == SYNTAX.code for f in result.findings) or not parses(self.text()):
            broken = self._blank_broken()
            result = check_text(self.shown, self.text(), rules, scope)
        firsts = self._firsts()
        found = [self._mapped(f, firsts) for f in result.findings]
        found += [f for f in broken if SYNTAX.code in scope.wanted]
        found.sort(key=lambda f: (self._number(f), f.location.line if f.location else 0))
        return FileResult(self.shown, found, result.not_checked, self._lines(found))

    def path(self, index: int) -> str:
        """What a cell is called in a location."""
        return f"{self.shown}:cell {self.cells[index].number}"

    def _blank_broken(self) -> list[Finding]:
        """Take out the cells that do not parse, with a finding for each."""
        found = []
        for index, text in enumerate(self.masked):
            try:
                with collector_off():
                    ast.parse(text)
            except SyntaxError as error:
                found.append(syntax_error(self.path(index), error))
            except (ValueError, RecursionError, MemoryError):
                pass
            else:
                continue
            self.masked[index] = "\n" * (len(_LINE_END.split(text)) - 1)
        return found

    def _mapped(self, finding: Finding, firsts: list[int]) -> Finding:
        edits = [self._edit(edit, firsts) for edit in finding.remedy.edits]
        kept = [edit for edit in edits if edit is not None]
        remedy = msgspec.structs.replace(finding.remedy, edits=kept if len(kept) == len(edits) else [])
        related = [self._related(r, firsts) for r in finding.related]
        location = self._location(finding.location, firsts) if finding.location is not None else None
        return msgspec.structs.replace(finding, location=location, remedy=remedy, related=related)

    def _at(self, line: int, firsts: list[int]) -> tuple[int, int]:
        """The cell's index and the line in it."""
        index = max(0, bisect_right(firsts, line) - 1)
        return index, line - firsts[index] + 1

    def _location(self, at: Location, firsts: list[int]) -> Location:
        if at.path != self.shown or not self.cells:
            return at
        index, line = self._at(at.line, firsts)
        end = line + at.end_line - at.line if at.end_line is not None else None
        return msgspec.structs.replace(at, path=self.path(index), line=line, end_line=end)

    def _related(self, related: Related, firsts: list[int]) -> Related:
        if related.path != self.shown or related.line is None or not self.cells:
            return related
        index, line = self._at(related.line, firsts)
        return msgspec.structs.replace(related, path=self.path(index), line=line)

    def _edit(self, edit: Edit, firsts: list[int]) -> Edit | None:
        """The same edit to a cell; None where it reaches over several."""
        index, line = self._at(edit.start[0], firsts)
        last, end = self._at(edit.end[0], firsts)
        column = edit.end[1]
        if last == index + 1 and (end, column) == (1, 1):  # up to the end of the cell
            lines = _LINE_END.split(self.cells[index].source)
            last, end, column = index, len(lines), len(lines[-1]) + 1
        if last != index:
            return None
        return Edit(path=self.path(index), start=(line, edit.start[1]), end=(end, column), text=edit.text)

    def _number(self, finding: Finding) -> int:
        return int(finding.location.path.rpartition(" ")[2]) if finding.location is not None else 0

    def _lines(self, found: list[Finding]) -> dict[str, dict[str, str]]:
        texts = {self.path(i): _LINE_END.split(cell.source) for i, cell in enumerate(self.cells)}
        lines: dict[str, dict[str, str]] = {}
        for finding in found:
            at = finding.location
            if at is not None and 0 < at.line <= len(texts.get(at.path, ())):
                lines.setdefault(at.path, {})[str(at.line)] = texts[at.path][at.line - 1]
        return lines


def check_notebook(shown: str, data: bytes, rules: Sequence[SourceRule], scope: Scope) -> FileResult:
    """What a notebook's code cells show; nothing where its language is another."""
    try:
        cells = read_cells(data)
    except ValueError as error:
        return not_checked(shown, f"it is no valid notebook: {error}")
    return Notebook(shown, cells).check(rules, scope)
