"""What `check` says of a buffer's text, by the configuration of the file's project. Knows no protocol."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from torchvet.checking.baseline import unknown
from torchvet.checking.cells import Cell
from torchvet.checking.checker import LARGEST, Checker
from torchvet.checking.decoding import Decoded
from torchvet.checking.engine import check_text
from torchvet.checking.gitignore import matches, parse
from torchvet.checking.notebooks import Notebook
from torchvet.checking.result import FileResult, not_checked
from torchvet.configuration import Configuration, read_configuration
from torchvet.finding import Edit, Finding, NotChecked
from torchvet.fixing.documents import Module, soundness
from torchvet.fixing.edits import apply
from torchvet.fixing.rounds import fix
from torchvet.formatting import size
from torchvet.source.text import split_lines


class Buffer(msgspec.Struct, frozen=True):
    """A text as an editor shows it, and what was found in it. Of a notebook it is a cell, by the path that findings
    give it: `notebook` is the notebook's own, `cells` are all that were checked together."""

    path: str
    text: str
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    notebook: str = ""
    cells: list[Cell] = []

    @property
    def lines(self) -> list[str]:
        """Its lines, as Python and the protocol count them, without line ends."""
        return split_lines(self.text)


class Checks:
    """Checks buffers. A checker is kept as long as the configuration is the same; the file is read at each check."""

    def __init__(self) -> None:
        self._checkers: dict[Path, Checker] = {}
        self._fixed: tuple[Buffer, str] | None = None

    def checker(self, path: str) -> Checker:
        """The checker of a file's project. Raises `BadInput` for a configuration that makes no sense."""
        configuration = read_configuration(Path(path))
        known = self._checkers.get(configuration.root)
        if known is None or known.configuration != configuration:
            known = self._checkers[configuration.root] = Checker(configuration)
            _ = known.scope
        return known

    def check(self, path: str, text: str) -> Buffer:
        """What is found in a text; nothing in a file that the project excludes. Raises `BadInput`."""
        checker = self.checker(path)
        if is_excluded(path, checker.configuration):
            return Buffer(path, text)
        result = self._result(checker, path, text)
        (kept,) = unknown([result], checker.configuration.baseline)
        return Buffer(path, text, kept.findings, kept.not_checked)

    def check_cells(self, path: str, cells: Sequence[Cell]) -> list[Buffer]:
        """What is found in the code cells of a notebook, which are read as one module: a buffer for each. What belongs
        to no cell stands in the first. Raises `BadInput`."""
        checker = self.checker(path)
        names = [cell_path(path, cell) for cell in cells]
        if is_excluded(path, checker.configuration):
            return [Buffer(name, cell.source) for name, cell in zip(names, cells, strict=True)]
        (kept,) = unknown([_cells_result(checker, path, cells)], checker.configuration.baseline)
        found: dict[str, list[Finding]] = {name: [] for name in names}
        for finding in kept.findings:
            place = finding.location.path if finding.location is not None else ""
            found.get(place, found[names[0]]).append(finding)
        return [
            Buffer(name, cell.source, found[name], [] if number else kept.not_checked, path, [*cells])
            for number, (name, cell) in enumerate(zip(names, cells, strict=True))
        ]

    @staticmethod
    def _result(checker: Checker, path: str, text: str) -> FileResult:
        if len(text) > LARGEST:
            return not_checked(path, f"it is larger than {size(LARGEST)}")
        return check_text(path, text, *checker.for_file(path))

    def _again(self, buffer: Buffer, text: str) -> list[Finding]:
        """What is found in a buffer once it has another text."""
        if not buffer.notebook:
            return self._result(self.checker(buffer.path), buffer.path, text).findings
        cells = [c._replace(source=text) if cell_path(buffer.notebook, c) == buffer.path else c for c in buffer.cells]
        found = _cells_result(self.checker(buffer.notebook), buffer.notebook, cells).findings
        return [f for f in found if f.location is not None and f.location.path == buffer.path]

    def fixed(self, buffer: Buffer) -> str:
        """The text after all edits that keep the program's results; as it is if the baseline knows all with one, and of
        a cell: an edit of another cell may belong to it."""
        if buffer.notebook or not any(f.remedy.edits and f.remedy.safe for f in buffer.findings):
            return buffer.text
        # Editors ask whenever the cursor moves.
        if self._fixed is None or self._fixed[0] is not buffer:
            rules = self.checker(buffer.path).for_file(buffer.path)
            document = Module(buffer.path, Decoded(buffer.text, "utf-8", False), *rules)
            self._fixed = buffer, fix(document).document.texts[buffer.path]
        return self._fixed[1]

    def suppressing(self, buffer: Buffer, finding: Finding) -> Edit | None:
        """The edit that adds a suppression comment for a finding; None where no line takes one.

        It is tried: a comment after a backslash or within a string would change the program.
        """
        for edit in _comments(buffer, finding):
            one = msgspec.structs.replace(finding, remedy=msgspec.structs.replace(finding.remedy, edits=[edit]))
            after = apply({buffer.path: buffer.text}, [one])[0][buffer.path]
            if soundness(after) < soundness(buffer.text):
                continue
            left = self._again(buffer, after)
            if _alike(left, finding) < _alike(buffer.findings, finding):
                return edit
        return None


def cell_path(notebook: str, cell: Cell) -> str:
    """What findings call a cell."""
    return f"{notebook}:cell {cell.number}"


def _cells_result(checker: Checker, path: str, cells: Sequence[Cell]) -> FileResult:
    if sum(len(cell.source) for cell in cells) > LARGEST:
        return not_checked(path, f"it is larger than {size(LARGEST)}")
    return Notebook(path, cells).check(*checker.for_file(path))


def _alike(findings: list[Finding], finding: Finding) -> int:
    return sum((f.code, f.message) == (finding.code, finding.message) for f in findings)


def _comments(buffer: Buffer, finding: Finding) -> Iterator[Edit]:
    """The comment at the end of the finding's line, then of those below it: a statement's last line counts as well."""
    at, lines = finding.location, buffer.lines
    for number in range(at.line, min(at.line + _FURTHER, len(lines) + 1)) if at is not None else ():
        line = lines[number - 1]
        opened = line.find("# torchvet: ignore[")
        if opened >= 0 and (close := line.find("]", opened)) >= 0:
            place, text = close, f", {finding.code}"
        else:
            place, text = len(line.rstrip()), f"  # torchvet: ignore[{finding.code}]"
        yield Edit(path=buffer.path, start=(number, place + 1), end=(number, place + 1), text=text)


_FURTHER = 20
"""Lines that are tried: longer statements are rare, and each trial is a check."""


def is_excluded(path: str, configuration: Configuration) -> bool:
    """Whether `exclude` of the project's configuration names a file, or a folder above it."""
    relative = os.path.relpath(path, configuration.root).replace(os.sep, "/")
    if not configuration.exclude or relative.startswith("../"):
        return False
    patterns = parse("\n".join(configuration.exclude))
    parts = relative.split("/")
    folders = ("/".join(parts[:n]) for n in range(1, len(parts)))
    return bool(matches(patterns, relative, False)) or any(bool(matches(patterns, f, True)) for f in folders)
