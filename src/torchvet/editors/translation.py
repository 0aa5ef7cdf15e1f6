"""From findings to the protocol's diagnostics, code actions and hovers. Positions are in the client's units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lsprotocol import types
from pygls.workspace import PositionCodec

from torchvet.editors.buffers import Buffer, Checks
from torchvet.finding import Edit, Finding

SOURCE = "torchvet"
FIX_ALL = "source.fixAll.torchvet"
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}


class Translator:
    """Speaks of one buffer to one client: `codec` counts columns as the client does. `uris` are those of the other
    cells of a notebook, by their paths."""

    def __init__(self, uri: str, buffer: Buffer, codec: PositionCodec, uris: Mapping[str, str] | None = None) -> None:
        self.uri, self.buffer, self.lines, self.codec = uri, buffer, buffer.lines, codec
        self.uris = {**(uris or {}), buffer.path: uri}

    def position(self, line: int, column: int) -> types.Position:
        """A line and column in characters, both counted from 1, as the protocol's position."""
        if line > len(self.lines):  # the end of a text: an edit may take its last line whole
            return types.Position(line - 1, 0)
        return types.Position(line - 1, self.codec.client_num_units(self.lines[line - 1][: max(0, column - 1)]))

    def range(self, finding: Finding) -> types.Range:
        """From a finding's column to the end of its line."""
        at = finding.location
        line = min(at.line, len(self.lines)) if at is not None else 1
        text = self.lines[line - 1]
        column = at.column if at is not None and at.column is not None else len(text) - len(text.lstrip()) + 1
        end = max(column + 1, len(text.rstrip()) + 1)
        return types.Range(self.position(line, column), self.position(line, end))

    def diagnostics(self) -> list[types.Diagnostic]:
        """All findings, and what could not be checked: an editor that shows nothing looks like health."""
        missed = [
            types.Diagnostic(
                range=types.Range(types.Position(0, 0), types.Position(0, 0)),
                message=f"not checked: {item.check}: {item.reason}",
                severity=types.DiagnosticSeverity.Information,
                source=SOURCE,
            )
            for item in self.buffer.not_checked
        ]
        return [self.diagnostic(finding) for finding in self.buffer.findings] + missed

    def diagnostic(self, finding: Finding) -> types.Diagnostic:
        """A finding. The advice is a second line of its message, as editors show no field for it."""
        advice = f"\n{finding.remedy.summary}" if finding.remedy.summary else ""
        return types.Diagnostic(
            range=self.range(finding),
            message=f"{finding.message}{advice}",
            severity=_SEVERITIES[finding.severity],
            code=finding.code,
            source=SOURCE,
            related_information=[
                types.DiagnosticRelatedInformation(
                    types.Location(self.uris[related.path], _begin_of(related.line)), related.message
                )
                for related in finding.related
                if related.line is not None and related.path in self.uris
            ]
            or None,
        )

    def actions(
        self, wanted: types.Range, only: Sequence[types.CodeActionKind | str] | None, checks: Checks
    ) -> Iterator[types.CodeAction]:
        """The fixes of the findings in a range, a suppression for each, and all safe fixes at once."""
        if _asked(types.CodeActionKind.QuickFix, only):
            for finding in self.buffer.findings:
                if _overlap(self.range(finding), wanted):
                    yield from self._fixes(finding)
                    if (edit := checks.suppressing(self.buffer, finding)) is not None:
                        yield self._action(f"Ignore {finding.code} on this line", finding, [edit])
        if _asked(FIX_ALL, only) and (after := checks.fixed(self.buffer)) != self.buffer.text:
            end = self.position(len(self.lines), len(self.lines[-1]) + 1)
            whole = types.TextEdit(types.Range(types.Position(0, 0), end), after)
            yield types.CodeAction(
                title="torchvet: fix all that keeps the program's results",
                kind=FIX_ALL,
                edit=types.WorkspaceEdit(changes={self.uri: [whole]}),
            )

    def _fixes(self, finding: Finding) -> Iterator[types.CodeAction]:
        if finding.remedy.edits and all(edit.path == self.buffer.path for edit in finding.remedy.edits):
            unsafe = "" if finding.remedy.safe else " (may change results)"
            title = f"{finding.code}{unsafe}: {finding.remedy.summary}"
            yield self._action(title, finding, finding.remedy.edits, preferred=finding.remedy.safe)

    def _action(self, title: str, finding: Finding, edits: Sequence[Edit], preferred: bool = False) -> types.CodeAction:
        changes = [
            types.TextEdit(types.Range(self.position(*edit.start), self.position(*edit.end)), edit.text)
            for edit in edits
        ]
        return types.CodeAction(
            title=title,
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[self.diagnostic(finding)],
            is_preferred=preferred or None,
            edit=types.WorkspaceEdit(changes={self.uri: changes}),
        )

    def hover(self, at: types.Position) -> types.Hover | None:
        """The pages of the rules whose findings stand at a position."""
        here = types.Range(at, at)
        codes = dict.fromkeys(f.code for f in self.buffer.findings if _overlap(self.range(f), here))
        pages = [text for text in map(page, codes) if text]
        if not pages:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(pages)))


def page(code: str) -> str:
    """What a rule knows, as Markdown; without its examples, which no hover has room for."""
    from torchvet.checking.codes import OWN_CODES
    from torchvet.rules import rule

    own = next((one for one in OWN_CODES if one.code == code), None)
    if own is not None:
        return f"### {own.code} {own.name}\n\n{own.summary}. {own.what}\n\n**What to do.** {own.remedy}"
    one = rule(code)
    parts = [f"### {one.code} {one.name}", f"*{one.summary}*", one.what, one.why]
    parts += [f"**When it does not matter.** {one.when_not}", f"**What to do.** {one.remedy}"]
    return "\n\n".join([*parts, f"`torchvet explain {one.code}` has the proof and an example."])


def _begin_of(line: int) -> types.Range:
    """The begin of a line, counted from 1."""
    return types.Range(types.Position(line - 1, 0), types.Position(line - 1, 0))


def _overlap(one: types.Range, other: types.Range) -> bool:
    first, second = (one.start.line, one.start.character), (one.end.line, one.end.character)
    begin, end = (other.start.line, other.start.character), (other.end.line, other.end.character)
    # A cursor anywhere on the finding's line counts: that is where editors ask.
    return (first <= end and begin <= second) or one.start.line <= other.start.line <= one.end.line


def _asked(kind: str, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Whether a client wants actions of a kind: it names kinds by their beginnings."""
    kinds = [str(getattr(k, "value", k)) for k in only or ()]
    name = str(getattr(kind, "value", kind))
    return not kinds or any(not k or name == k or name.startswith(f"{k}.") for k in kinds)
