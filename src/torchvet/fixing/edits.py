"""Applies edits to texts: those of one finding together or not at all, and never two that overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchvet.finding import Edit, Finding
from torchvet.source.text import LINE_END, line_starts


@dataclass
class _Span:
    """An edit as offsets into a text."""

    start: int
    end: int
    text: str

    def touches(self, other: _Span) -> bool:
        """Whether both change the same characters, or insert at the same place."""
        return (self.start < other.end and other.start < self.end) or self.start == other.start


def apply(texts: Mapping[str, str], findings: Sequence[Finding]) -> tuple[dict[str, str], list[Finding]]:
    """The texts, by path, after the findings' edits, and the findings whose edits were made.

    Of two that overlap the first wins. A finding with an edit of a place that does not exist is skipped.
    """
    offsets = {path: line_starts(text) for path, text in texts.items()}
    spans: dict[str, list[_Span]] = {path: [] for path in texts}
    applied = []
    for finding in findings:
        made = _located(finding.remedy.edits, texts, offsets)
        if made and not any(a.touches(b) for path, a in made for b in spans[path]):
            for path, span in made:
                spans[path].append(span)
            applied.append(finding)
    return {path: _replaced(text, spans[path]) for path, text in texts.items()}, applied


def rebased(edits: Sequence[Edit], texts: Mapping[str, str], made: Sequence[Finding]) -> list[Edit] | None:
    """Edits of texts that some findings' edits have changed, as edits of the original texts.

    None if one of them changes text that those edits inserted.
    """
    found = []
    for edit in edits:
        places = [_place_before(edit.path, place, texts, made) for place in (edit.start, edit.end)]
        if any(place is None for place in places):
            return None
        start, end = (place for place in places if place is not None)
        found.append(Edit(path=edit.path, start=start, end=end, text=edit.text))
    return found


def line_before(path: str, line: int, texts: Mapping[str, str], made: Sequence[Finding]) -> int | None:
    """The line that a line was before some findings' edits; None if the edits inserted it."""
    place = _place_before(path, (line, 1), texts, made)
    return place[0] if place is not None else None


def _place_before(
    path: str, place: tuple[int, int], texts: Mapping[str, str], made: Sequence[Finding]
) -> tuple[int, int] | None:
    """The line and column that a place had before some findings' edits; None if they inserted it."""
    if path not in texts:
        return place
    starts = {one: line_starts(text) for one, text in texts.items()}
    spans = [s for f in made for where, s in _located(f.remedy.edits, texts, starts) if where == path]
    after = _replaced(texts[path], spans)
    at = _offset(after, line_starts(after), place)
    offset = _before(at, spans) if at is not None else None
    if offset is None:
        return None
    line = bisect_right(starts[path], offset)
    return line, offset - starts[path][line - 1] + 1


def _before(offset: int, spans: Sequence[_Span]) -> int | None:
    """The offset before some edits of an offset after them; None in inserted text."""
    shift = 0
    for span in sorted(spans, key=lambda s: s.start):
        start, end = span.start + shift, span.start + shift + len(span.text)
        if offset <= start:
            break
        if offset < end:
            return None
        shift += len(span.text) - (span.end - span.start)
    return offset - shift


def newline_of(text: str) -> str:
    """The line end that a text uses first."""
    found = LINE_END.search(text)
    return found.group() if found else "\n"


def _located(
    edits: Sequence[Edit], texts: Mapping[str, str], offsets: Mapping[str, list[int]]
) -> list[tuple[str, _Span]]:
    """The edits of one finding as offsets; empty if one is not possible or two overlap."""
    found: list[tuple[str, _Span]] = []
    for edit in edits:
        if edit.path not in texts:
            return []
        text = texts[edit.path]
        start, end = (_offset(text, offsets[edit.path], place) for place in (edit.start, edit.end))
        if start is None or end is None or start > end:
            return []
        # An edit may be written with "\n"; a file with other line ends would have two kinds after it.
        span = _Span(start, end, LINE_END.sub(newline_of(text), edit.text))
        same = next((s for path, s in found if path == edit.path and s.touches(span)), None)
        if same is None:
            found.append((edit.path, span))
        elif same.start == same.end == span.start == span.end:
            same.text += span.text  # two insertions at one place keep their order
        else:
            return []
    return found


def _offset(text: str, starts: list[int], place: tuple[int, int]) -> int | None:
    """The offset of a line and column, both from 1; None if the text has no such place."""
    line, column = place
    if not 0 < line <= len(starts) or column < 1:
        return None
    limit = starts[line] if line < len(starts) else len(text)
    # A column may stand behind the last character, not within the line end, where an edit would split a "\r\n".
    length = len(text[starts[line - 1] : limit].rstrip("\r\n"))
    return starts[line - 1] + column - 1 if column <= length + 1 else None


def _replaced(text: str, spans: list[_Span]) -> str:
    # From the end, so that the offsets of those before stay true.
    for span in sorted(spans, key=lambda s: s.start, reverse=True):
        text = text[: span.start] + span.text + text[span.end :]
    return text
