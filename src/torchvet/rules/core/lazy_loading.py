"""Rules that read source, imported with the first file that has one of their words: most files need a third of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from torchvet.rules.core.manifest import Entry, entries, loaded

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.rules.core.base import Rule
    from torchvet.source.model import SourceFile


class LazyRule:
    """What the engine needs of a rule before it asks the rule itself."""

    def __init__(self, entry: Entry) -> None:
        self.code, self.name, self.severity, self.words = entry.code, entry.name, entry.severity, entry.words
        self._entry = entry

    def inputs(self) -> tuple[str, ...]:
        """See `Rule`."""
        return self._entry.inputs

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """See `Rule`."""
        return self.rule.in_source(file)

    @cached_property
    def rule(self) -> Rule:
        """The rule itself; the first access imports it."""
        return loaded(self._entry)


def source_rules() -> list[LazyRule]:
    """The rules that read source, in the order of their codes. None is imported."""
    return [LazyRule(entry) for entry in entries() if "in_source" in entry.inputs]
