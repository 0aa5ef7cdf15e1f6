"""Rules that are loaded when they are first asked: most files have the words of a third of them.

To import all rules takes as long as to check a hundred files; what the engine goes by is read from their text.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from torchvet.rules import Rule, module_texts, rules_in

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.source.model import SourceFile

_CODE = re.compile(r'^    code = "(\w+)"$', re.MULTILINE)
_STRING = r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' """
_WORDS = re.compile(
    rf"^[ ]{{4}}words[ ]=[ ](\( (?:\s*(?:{_STRING})\s*,?)* \s*\))(?:[ ]{{2}}\#.*)?$", re.MULTILINE | re.VERBOSE
)


class WaitingRule:
    """A rule's code and words; the rule itself is imported with the first file that has one of them."""

    def __init__(self, module: str, code: str, words: tuple[str, ...]) -> None:
        self.module, self.code, self.words = module, code, words

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """See `Rule`."""
        return self.rule.in_source(file)

    @cached_property
    def rule(self) -> Rule:
        """The rule that it stands for."""
        return next(r for r in rules_in(importlib.import_module(self.module)) if r.code == self.code)


def source_rules() -> list[Rule | WaitingRule]:
    """The rules that look at source, in the order of their codes; those whose text tells enough are not loaded."""
    found: list[Rule | WaitingRule] = []
    for name, text in module_texts():
        if text is not None and "def in_source" not in text:
            continue
        codes, words = (_CODE.findall(text), _WORDS.findall(text)) if text is not None else ([], [])
        if len(codes) == 1 and (words or text is None or "    words = " not in text):
            found.append(WaitingRule(name, codes[0], ast.literal_eval(words[0]) if words else ()))
        else:
            rules = rules_in(importlib.import_module(name))
            found += [r for r in rules if type(r).in_source is not Rule.in_source]
    return sorted(found, key=lambda r: r.code)
