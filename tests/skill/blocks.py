"""The code blocks of Markdown texts."""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CLAIM = re.compile(r"^# (prints|raises): (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """`kind` is the second word after the fence, `heading` the last one before the block."""

    language: str
    kind: str
    text: str
    heading: str

    @property
    def claim(self) -> tuple[str, str]:
        """What its last comment says that it does: `prints` or `raises`, and what."""
        found = _CLAIM.search(self.text)
        assert found is not None, f"{self.heading}: says not what it does"
        return found[1], found[2]


def blocks(text: str) -> list[Block]:
    """All code blocks of a text, in order."""
    found = []
    for match in _BLOCK.finditer(text):
        headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", text[: match.start()]), re.MULTILINE)
        found.append(Block(match[1], match[2] or "", match[3], headings[-1] if headings else ""))
    return found
