"""Bytes of a source file to text, by PEP 263's cookie or a byte order mark, and back."""

from __future__ import annotations

import codecs
import io
from typing import NamedTuple

_WIDE = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Longer marks first: that of UTF-32 begins with that of UTF-16."""


class Decoded(NamedTuple):
    """A file's text without its byte order mark; line ends are as they stand in the file."""

    text: str
    encoding: str
    bom: bool

    def encode(self, text: str) -> bytes:
        """Another text in the same encoding, with the mark if there was one. Raises UnicodeEncodeError."""
        return (codecs.BOM_UTF8 if self.bom else b"") + text.encode(self.encoding)


def decode(data: bytes) -> Decoded:
    """The text of a Python file. Raises SyntaxError for an unknown or contradicted encoding, ValueError for others."""
    if b"\0" in data:
        wide = next((name for mark, name in _WIDE.items() if data.startswith(mark)), "UTF-16, UTF-32 or no")
        raise ValueError(f"it has null bytes and is {wide} text; Python reads UTF-8")
    bom = data.startswith(codecs.BOM_UTF8)
    encoding = "utf-8"
    # PEP 263 allows a cookie in the first two lines. Importing tokenize for every file would cost more than reading it.
    if b"coding" in data[:400]:
        import tokenize

        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0].replace("utf-8-sig", "utf-8")
    return Decoded(data[3 * bom :].decode(encoding), encoding, bom)
