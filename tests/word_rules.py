"""Rules that are easily foreseen, for tests of what stands around rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.finding import Edit, Finding, Location, Remedy, Severity
from torchvet.rules import Rule
from torchvet.source.model import SourceFile


class WordRule(Rule):
    """Finds a name, and may replace it."""

    summary = "A word stands in the source"
    what = why = when_not = proof = remedy = "Words are found."

    def __init__(self, code: str, word: str, instead: str | None = None, safe: bool = True,
                 severity: Severity = "warning") -> None:  # fmt: skip
        self.code = code  # type: ignore[misc]
        self.name = f"word-{word}"  # type: ignore[misc]
        self.severity = severity  # type: ignore[misc]
        self.word, self.instead, self.safe = word, instead, safe

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        for node in ast.walk(file.tree):
            if getattr(node, "id", getattr(node, "arg", None)) == self.word and isinstance(node, (ast.Name, ast.arg)):
                yield self.found(file, node)

    def found(self, file: SourceFile, node: ast.Name | ast.arg) -> Finding:
        line = node.lineno
        start = file.column(line, node.col_offset)
        edits = []
        if self.instead is not None:
            end = start + len(self.word)
            edits = [Edit(path=file.path, start=(line, start), end=(line, end), text=self.instead)]
        return Finding(
            code=self.code, name=self.name, severity=self.severity, evidence="suspected",
            message=f"`{self.word}` stands here", cause="it was written",
            location=Location(path=file.path, line=line, column=start),
            remedy=Remedy(summary=f"write `{self.instead}`", safe=self.safe, edits=edits),
        )  # fmt: skip


class FaultyRule(WordRule):
    """Finds a word, and then breaks."""

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        yield from super().in_source(file)
        raise KeyError("oops")
