"""Puts new sources into a notebook's JSON and keeps every other byte.

Parsing and dumping the whole file would change its indents, escapes and numbers, and so the diff that a person reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from torchvet.patches import lines_of

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)
_Entry = tuple[str, int, int]


def rewritten(data: bytes, sources: Mapping[int, str]) -> bytes:
    """The notebook with other sources in some cells, by index. Raises `ValueError` if a cell has none."""
    text = data.decode("utf-8")
    found: list[tuple[int, int, str]] = []
    for index, (_, at, _) in enumerate(_cells(text)):
        if index in sources:
            members = {key: (start, end) for key, start, end in _entries(text, at)}
            start, end = members["source"] if "source" in members else members["input"]
            found.append((start, end, _value(text[start:end], sources[index])))
    # From the end, so that the offsets of the cells before stay true.
    for start, end, value in reversed(found):
        text = text[:start] + value + text[end:]
    return text.encode("utf-8")


def _cells(text: str) -> Iterator[_Entry]:
    top = {key: start for key, start, _ in _entries(text, _skip(text, 0))}
    if "cells" not in top:  # format 3 has them in worksheets
        _, sheet, _ = next(_entries(text, top["worksheets"]))
        top = {key: start for key, start, _ in _entries(text, sheet)}
    return _entries(text, top["cells"])


def _entries(text: str, at: int) -> Iterator[_Entry]:
    """The values in the object or array at an offset: key, empty in an array, start and end."""
    is_object, at = text[at] == "{", _skip(text, at + 1)
    while text[at] not in "}]":
        key = ""
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        yield key, at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match is not None else at


def _value(raw: str, source: str) -> str:
    """A source in the style of the value that it replaces: unchanged lines keep their escapes."""
    # Some editors escape all but ASCII; the new text follows the one that it replaces.
    ascii_only = raw.isascii()
    if not raw.startswith("["):
        return json.dumps(source, ensure_ascii=ascii_only)
    items = [(start, end) for _, start, end in _entries(raw, 0)]
    if not items:
        return json.dumps(lines_of(source), ensure_ascii=ascii_only)
    # JSON can spell a character in several ways: a line that was not fixed must not show in the diff.
    spelt = {json.loads(raw[start:end], strict=False): raw[start:end] for start, end in items}
    opening, closing = raw[1 : items[0][0]], raw[items[-1][1] : -1]
    between = raw[items[0][1] : items[1][0]] if len(items) > 1 else "," + opening
    lines = lines_of(source)
    written = between.join(spelt.get(x) or json.dumps(x, ensure_ascii=ascii_only) for x in lines)
    return f"[{opening}{written}{closing}]"
