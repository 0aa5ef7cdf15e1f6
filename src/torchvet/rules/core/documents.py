"""The files beside a rule: its long texts and its example programs, read when they are first asked for.

A rule's folder holds `rule.py` with the class, `details.md` with the texts under the headings of `SECTIONS`, `bad.py`
with the faulty program, and the good program as `good.patch`, a unified diff of `bad.py`, or as `good.py`.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from functools import lru_cache

PACKAGE = "torchvet.rules"
SECTIONS = {
    "what": "What happens",
    "why": "Why it matters",
    "when_not": "When it does not",
    "proof": "Proof",
    "remedy": "What to do",
}
"""The headings in details.md, by the attribute of `Rule` that holds the text below."""
_HEADING = re.compile(r"^## (.+)\n", re.MULTILINE)


class Document:
    """A class attribute of a rule whose value is read from the rule's folder.

    `read` is given the folder, relative to the package `torchvet.rules`, and the attribute's name. Where a class has
    no folder, or the folder no such file or section, the attribute does not exist (AttributeError).
    """

    def __init__(self, read: Callable[[str, str], str]) -> None:
        self._read = read

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> str:
        try:
            return self._read(_folder_of(owner), self._name)
        except (OSError, LookupError) as error:
            # So that `hasattr` works, and a base class without a folder has no such attribute.
            raise AttributeError(f"{owner.__name__}.{self._name}: {error}") from error


def section(folder: str, name: str) -> str:
    """One text of details.md as one line. Raises KeyError if the file has no such heading."""
    return _sections(folder)[SECTIONS[name]]


def faulty_program(folder: str, name: str = "BAD") -> str:
    """The text of bad.py."""
    return _file(folder, "bad.py")


@lru_cache(maxsize=256)
def good_program(folder: str, name: str = "GOOD") -> str:
    """The text of the good program. Where both files exist good.py is newer: `make docs` makes good.patch from it.

    Raises PatchError if good.patch does not fit bad.py.
    """
    try:
        return _file(folder, "good.py")
    except OSError:
        from torchvet.patches import applied  # imports difflib, which costs a check of one file more than it needs

        return applied(faulty_program(folder), _file(folder, "good.patch"))


@lru_cache(maxsize=256)
def _sections(folder: str) -> dict[str, str]:
    # With a group in the pattern headings and texts alternate.
    _, *parts = _HEADING.split(_file(folder, "details.md"))
    return {title: " ".join(text.split()) for title, text in zip(parts[::2], parts[1::2], strict=True)}


@lru_cache(maxsize=256)
def _file(folder: str, name: str) -> str:
    # Not a path beside this file: an installed package may lie in a zip archive.
    data = pkgutil.get_data(PACKAGE, f"{folder}/{name}")
    if data is None:
        raise FileNotFoundError(f"{folder}/{name}")
    return data.decode("utf-8")


def _folder_of(owner: type) -> str:
    """The folder of the rule that a class is or inherits from, relative to the package of the rules."""
    # A test's subclass of a rule has the rule's texts.
    for kind in owner.__mro__:
        package, _, module = kind.__module__.rpartition(".")
        if module == "rule" and package.startswith(f"{PACKAGE}."):
            return package.removeprefix(f"{PACKAGE}.").replace(".", "/")
    raise LookupError("no rule's folder")
