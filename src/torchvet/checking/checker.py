"""Checks one file's bytes with the rules that its configuration selects; also in another process."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from torchvet.checking.codes import OWN_CODES, SYNTAX, Scope
from torchvet.checking.engine import SourceRule, check_text, mentions_torch, source_rules
from torchvet.checking.result import FileResult, not_checked, unreadable
from torchvet.configuration import Configuration, require_known
from torchvet.errors import BadInput
from torchvet.formatting import size

LARGEST = 5_000_000
"""Bytes of source. Its tree takes fifty times as much memory, and no such file was written by hand."""
LARGEST_NOTEBOOK = 100_000_000


class Checker:
    """A configuration with its rules, which are loaded when the first file asks for them.

    `rules` replaces all the rules there are, for tests. `reads` says that source is what they are asked of: rules that
    only a run can show are then not enough.
    """

    def __init__(
        self, configuration: Configuration, rules: tuple[Any, ...] | None = None, *, reads: bool = True
    ) -> None:
        self.configuration = configuration
        self._given = rules
        self._reads = reads
        self._by_ignored: dict[tuple[str, ...], tuple[list[SourceRule], Scope]] = {}

    @cached_property
    def rules(self) -> tuple[Any, ...]:
        """The rules that read source; most are loaded when a file has their words."""
        if self._given is not None:
            return self._given
        from torchvet.rules.core.lazy_loading import source_rules

        return tuple(source_rules())

    def load(self) -> None:
        """Load all rules at once: processes that are forked next share them."""
        for lazy in self.rules:
            _ = getattr(lazy, "rule", None)

    def _codes(self) -> list[str]:
        """The codes of all rules, those that source cannot show included."""
        if self._given is not None:
            return [rule.code for rule in self._given]
        from torchvet.rules import codes

        return codes()

    @cached_property
    def scope(self) -> Scope:
        """What there is, and what is wanted. Raises `BadInput` for a prefix that no code has."""
        known = [*self._codes(), *(own.code for own in OWN_CODES)]
        wanted = self.configuration.selected(known)
        for pattern, prefixes in self.configuration.per_file_ignores.items():
            require_known(prefixes, known, f"per-file-ignores: {pattern}")
        source = frozenset(rule.code for rule in source_rules(self.rules))
        asked = source if self._reads else self._codes()
        if asked and wanted.isdisjoint((*asked, *(own.code for own in OWN_CODES))):
            raise BadInput("no rule is left to check: what is selected is ignored as well, or only a run can show it")
        # That a file does not parse is reported whatever is selected: no rule has looked at it. `ignore` silences that.
        removed: list[str] = [p for layer in self.configuration.layers for p in (*layer.ignore, *layer.extend_ignore)]
        if not any(SYNTAX.code.startswith(p) for p in removed):
            wanted |= {SYNTAX.code}
        return Scope(frozenset(known), source, wanted)

    def check(self, path: str, shown: str) -> FileResult:
        """Read a file and check it."""
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            return unreadable(shown, error)
        return self.check_bytes(shown, data)

    def check_bytes(self, shown: str, data: bytes) -> FileResult:
        """Check what a file holds; its name says whether it is a notebook."""
        notebook, mentions = shown.lower().endswith(".ipynb"), mentions_torch(data)
        largest = LARGEST_NOTEBOOK if notebook else LARGEST
        if len(data) > largest and mentions:
            return not_checked(shown, f"it is larger than {size(largest)}")
        rules, scope = self.for_file(shown)
        if notebook:
            from torchvet.checking.notebooks import check_notebook

            return check_notebook(shown, data, rules, scope)
        from torchvet.checking.decoding import decode

        try:
            # Also of a file that seems to say nothing of torch: what cannot be read may say anything.
            text = decode(data).text
        except (SyntaxError, ValueError, LookupError) as error:
            return not_checked(shown, f"it cannot be decoded: {error}")
        return check_text(shown, text, rules, scope) if mentions else FileResult(shown)

    def for_file(self, shown: str) -> tuple[list[SourceRule], Scope]:
        """The rules wanted for a file, after its per-file ignores."""
        ignored = self.ignored_in(shown)
        if ignored not in self._by_ignored:
            wanted = frozenset(c for c in self.scope.wanted if not c.startswith(ignored))
            rules = [rule for rule in source_rules(self.rules) if rule.code in wanted]
            self._by_ignored[ignored] = rules, self.scope._replace(wanted=wanted)
        return self._by_ignored[ignored]

    @cached_property
    def _patterns(self) -> list[tuple[Any, tuple[str, ...]]]:
        from torchvet.checking.gitignore import parse

        return [(parse(glob), codes) for glob, codes in self.configuration.per_file_ignores.items()]

    def ignored_in(self, shown: str) -> tuple[str, ...]:
        """The prefixes of codes that the configuration skips in a file."""
        if not self._patterns:
            return ()
        from torchvet.checking.gitignore import matches

        relative = os.path.relpath(shown, self.configuration.root).replace(os.sep, "/")
        # A pattern for a folder means what is in it.
        parts = relative.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        found: list[str] = []
        for patterns, codes in self._patterns:
            if matches(patterns, relative, False) or any(matches(patterns, folder, True) for folder in above):
                found += codes
        return tuple(dict.fromkeys(found))
