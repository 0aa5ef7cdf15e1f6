"""`# torchvet: ignore[MEM101]` on a statement's first or last line, `# torchvet: ignore-file[...]` on its own.

Without brackets all codes are meant. What suppresses nothing is a finding (SUP001) with the edit that removes it.
`# noqa: MEM101` counts as `ignore[MEM101]`. Other linters read it too, so it is never reported as not needed.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.checking.codes import UNUSED, unused_suppression
from torchvet.finding import Edit, Finding
from torchvet.source.statements import first_line, last_line
from torchvet.source.text import split_lines

if TYPE_CHECKING:
    from torchvet.checking.codes import Scope
    from torchvet.source.model import SourceFile

_MARK = re.compile(
    r"#\s*torchvet:\s*(?P<kind>ignore-file|ignore)\b(?!-)(?:\s*\[(?P<codes>[^\]#]*)\])?\s*(?=#|$|[^\[\s])"
)
_NOQA = re.compile(
    r"#\s*(?P<kind>noqa)\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:(?:\s*,\s*|\s+)[A-Z]+[0-9]+)*)\b", re.IGNORECASE | re.ASCII
)
"""A bare `# noqa` does not count: it was written for another linter's finding, and says nothing of this one."""


class Comment:
    """One suppression: `line` and the columns of its mark count from 1, the end is exclusive."""

    def __init__(self, line: int, column: int, match: re.Match[str], before: str) -> None:
        self.line = line
        self.start = column + match.start()
        self.end = self.start + len(match.group().rstrip())
        # A reason may follow, up to the next comment: it goes where the mark goes, or it would become code.
        following = match.string.find("#", match.end())
        self.reason_end = column + (following if following >= 0 else len(match.string))
        self.whole_file = match["kind"] == "ignore-file"
        self.shared = match["kind"].lower() == "noqa"
        self.alone = not before.strip() and following < 0
        self.codes = None if match["codes"] is None else [c for c in re.split(r"[,\s]+", match["codes"].upper()) if c]
        self.used: set[str] = set()

    def covers(self, code: str) -> bool:
        """Whether a finding with this code is suppressed; notes which of the comment's codes did it."""
        if self.codes is None:
            self.used.add("")
            return True
        hits = [c for c in self.codes if code.startswith(c)]
        self.used.update(hits)
        return bool(hits)


def comments(text: str) -> list[Comment]:
    """The suppressions in a text that parses; those within strings do not count."""
    found: list[Comment] = []
    stream = io.StringIO("\n".join(split_lines(text)))
    try:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT:
                found += _read(token)
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser took the text: what the tokenizer cannot read has no comment of ours
    return found


def _read(token: tokenize.TokenInfo) -> Iterator[Comment]:
    line, column = token.start
    for match in (*_MARK.finditer(token.string), *_NOQA.finditer(token.string)):
        before = token.line[:column] + token.string[: match.start()]
        comment = Comment(line, column + 1, match, before)
        # A whole file is skipped by a line of its own, at the margin: a word at the end of a line cannot do that.
        if not comment.whole_file or (comment.alone and column == 0):
            yield comment


def suppress(file: SourceFile, findings: list[Finding], scope: Scope) -> list[Finding]:
    """The findings that are not suppressed, and one for each suppression that is not needed, where that can be said."""
    found = comments(file.text)
    if not found:
        return findings
    spans = _spans(file.tree) if findings else []
    kept = [f for f in findings if not _suppressed(f, found, spans)]
    unused = _unused(file, found, scope) if UNUSED.code in scope.wanted else ()
    return kept + [u for u in unused if not _suppressed(u, found, ())]


def _suppressed(finding: Finding, found: list[Comment], spans: Sequence[tuple[int, int]]) -> bool:
    at = finding.location
    lines = _ends(at.line, spans) if at is not None else ()
    # SUP001 itself is silenced by name only: a bare `ignore` that is not needed would hide that.
    named = [c for c in found if finding.code != UNUSED.code or c.codes]
    # All of them are asked, also after a hit: each notes that it was needed.
    hits = [c for c in named if (c.whole_file or c.line in lines) and c.covers(finding.code)]
    return bool(hits)


def _ends(line: int, spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The line, and the first and last of the innermost statement around it."""
    around = [s for s in spans if s[0] <= line <= s[1]]
    return (line, *min(around, key=lambda s: s[1] - s[0])) if around else (line,)


def _spans(tree: ast.AST) -> list[tuple[int, int]]:
    """First and last lines of statements that take several; of one with a body, of its head."""
    spans = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.ExceptHandler)):
            first, last = node.lineno, node.end_lineno or node.lineno
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            if body:
                inner = body[0].pattern if isinstance(node, ast.Match) else body[0]
                # A comment at the end of a `for` line speaks for the head alone, not for the whole body.
                last = max(first, first_line(inner) - 1)
            spans.append((first, last))
            spans += [(d.lineno, last_line(d)) for d in getattr(node, "decorator_list", ())]
    return [s for s in spans if s[1] > s[0]]


def _unused(file: SourceFile, found: list[Comment], scope: Scope) -> Iterator[Finding]:
    complete = scope.source <= scope.wanted
    for comment in (c for c in found if not c.shared):
        if comment.codes is None:
            idle = [""] if complete and not comment.used else []
        else:
            judged = [c for c in comment.codes if scope.judges(c) and not UNUSED.code.startswith(c)]
            idle = [c for c in judged if c not in comment.used]
        if idle or comment.codes == []:
            message, edit = _message(comment, idle), _removal(file, comment, idle)
            yield unused_suppression(file.path, comment.line, comment.start, message, edit)


def _message(comment: Comment, idle: list[str]) -> str:
    where = "in this file" if comment.whole_file else "here"
    if comment.codes == []:
        return "the suppression names no code"
    if idle == [""]:
        return f"the suppression is not needed {where}: nothing is found"
    return f"the suppression of {', '.join(idle)} is not needed {where}"


def _removal(file: SourceFile, comment: Comment, idle: list[str]) -> Edit:
    """The edit that takes a comment out, or those of its codes that suppress nothing."""
    rest = [c for c in comment.codes or () if c not in idle]
    if rest:
        kind = "ignore-file" if comment.whole_file else "ignore"
        return _replaced(file, comment, comment.start, comment.end, f"# torchvet: {kind}[{', '.join(rest)}]")
    line, lines = comment.line, split_lines(file.text)
    own = lines[line - 1]
    end = len(own) + 1
    following = own[comment.reason_end - 1 :].strip()
    if comment.alone and not following and line > 1 and lines[line - 2].endswith("\\"):
        # The line before goes on here: without a comment the file may end in the middle of a line.
        return _replaced(file, comment, comment.start, end, "#")
    if comment.alone and line < len(lines):
        return Edit(path=file.path, start=(line, 1), end=(line + 1, 1), text="")
    return _cut(file, comment, own, following)


def _cut(file: SourceFile, comment: Comment, own: str, following: str) -> Edit:
    """The edit that takes a comment out of its line `own`; `following` is what stands there after it."""
    # The white space before goes too, unless another comment follows.
    before = len(own[: comment.start - 1].rstrip()) + 1
    # What follows on a line of its own may suppress the whole file once it stands at the margin.
    if following and not ("ignore-file" in following and before == 1):
        return _replaced(file, comment, comment.start, comment.reason_end)
    # What stands before may suppress the whole file once nothing follows it.
    if "ignore-file" in own[: comment.start - 1]:
        return _replaced(file, comment, comment.start, len(own) + 1, "#")
    return _replaced(file, comment, before, len(own) + 1)


def _replaced(file: SourceFile, comment: Comment, start: int, end: int, text: str = "") -> Edit:
    """Put a text in the place of columns of a comment's line."""
    return Edit(path=file.path, start=(comment.line, start), end=(comment.line, end), text=text)
