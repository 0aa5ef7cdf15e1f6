"""Which words a text has. Rules ask for hundreds of words that most files lack, so a quick *no* matters most."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache

from torchvet.source.lazily import lazy
from torchvet.source.text import line_starts

# `translate` turns all else into blanks, without a regular expression over the whole text.
_SEPARATORS = bytes(c if chr(c).isalnum() or c == ord("_") else ord(" ") for c in range(128)) + b" " * 128
_RUN = re.compile(r"[A-Za-z0-9_]+")


@lru_cache(maxsize=4096)
def _part(word: str) -> str:
    """The longest run of letters in a string, with a blank where it begins or ends within: `.to(` has all of ` to `."""
    # The longest part is the rarest, as a rule.
    longest = max(_RUN.finditer(word), key=lambda m: len(m[0]), default=None)
    if longest is None:
        return ""
    return " " * (longest.start() > 0) + longest[0] + " " * (longest.end() < len(word))


def signs_of(words: Iterable[str]) -> frozenset[str]:
    """Parts of which a text must have one if it has one of the words, for `Words.signs`."""
    return frozenset(map(_part, words))


class Words(dict[str, bool]):
    """A text's words. As a dictionary: whether the text holds a string, also within a longer word or in a comment."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.identifiers = set(text.encode("ascii", "replace").translate(_SEPARATORS).decode("ascii").split())
        """The runs of ASCII letters, digits and underscores."""
        # Blanks at both ends: ` to ` is then a whole identifier wherever it stands.
        self._once = f" {' '.join(self.identifiers)} "
        """Each once: searching this takes a quarter of the time that searching the text takes."""
        self._signs: dict[str, bool] = {}

    def __missing__(self, word: str) -> bool:
        part = _part(word)
        might = self._signs.get(part)
        if might is None:
            might = part in self._once
        # An identifier that is there needs no search of the text; anything else may still not be together.
        found = self[word] = might and (part.strip() == word or word in self.text)
        return found

    def signs(self, parts: Iterable[str]) -> set[str]:
        """Those of some parts that the text has."""
        once, names = self._once, self.identifiers
        # A whole identifier is looked up in the set, a tenth of the time of a search.
        held = {p: (p[1:-1] in names if p[:1] == " " == p[-1:] else p in once) for p in parts}
        self._signs.update(held)
        return {part for part, is_held in held.items() if is_held}

    def lacks(self, identifier: str) -> bool:
        """Whether an identifier stands nowhere, as the empty one; False may also mean that this is not known."""
        if not identifier:
            return True
        # Letters beyond ASCII were made separators above.
        return identifier not in self.identifiers and identifier.isascii() and identifier.isidentifier()

    @lazy
    def _line_starts(self) -> list[int]:
        return line_starts(self.text)

    def line_of(self, position: int) -> int:
        """The line, from 1, of a position in the text."""
        return bisect_right(self._line_starts, position)

    def positions(self, string: str) -> Iterator[int]:
        """Where a string stands in the text."""
        text, length = self.text, len(string)
        start = text.find(string)
        while start >= 0:
            yield start
            start = text.find(string, start + length)

    def lines_like(self, pattern: re.Pattern[str], sign: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Matches of a pattern at the beginnings of lines that hold a sign, in a tenth of the time of trying all."""
        text, done = self.text, -1
        for found in sign.finditer(text):
            # One match a line, however many signs it has.
            if found.start() > done:
                done = text.find("\n", found.end())
                done = len(text) if done < 0 else done
                match = pattern.match(text, text.rfind("\n", 0, found.start()) + 1)
                if match is not None:
                    yield match

    def lines_with(self, word: str) -> list[int]:
        """Lines, in order, that hold an identifier."""
        if self.lacks(word):
            return []
        text, found = self.text, []
        for start in self.positions(word):
            end = start + len(word)
            if not (_goes_on(text[start - 1 : start]) or _goes_on(text[end : end + 1])):
                found.append(self.line_of(start))
        return found

    def lines_calling(self, name: str) -> list[int]:
        """Lines on which an identifier is followed by a bracket and is not being defined: comments have many words."""
        if self.lacks(name):
            return []
        text, length = self.text, len(name)
        starts = [*self.positions(f"{name}("), *(e - length for e in self._gaps if text.endswith(name, 0, e))]
        # `to(` is in `auto(`, too.
        called = (s for s in starts if not _goes_on(text[s - 1 : s]) and text[s - 4 : s] != "def ")
        return sorted(map(self.line_of, called))

    @lazy
    def _gaps(self) -> list[int]:
        """Where words end that are followed by a bracket after blanks, up to seven: `print (x)`."""
        found = []
        # A call may be written with blanks, or go on in the next line, before its bracket.
        for sign in (" (", "\\(", "\n("):
            for start in self.positions(sign):
                before = self.text[max(0, start - 7) : start + 1]
                word = before.rstrip(" \\\n")
                if _goes_on(word[-1:]):
                    found.append(start + 1 - len(before) + len(word))
        return found


def _goes_on(character: str) -> bool:
    return character.isalnum() or character == "_"
