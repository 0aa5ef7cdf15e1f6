"""Which codes a check is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Scope(NamedTuple):
    """Codes: all there are, those that source can show, and those that are wanted."""

    known: frozenset[str]
    source: frozenset[str]
    wanted: frozenset[str]

    @classmethod
    def of(cls, codes: Sequence[str]) -> Scope:
        """The scope where these rules, and torchvet's own findings, are all there is."""
        return cls(frozenset(codes), frozenset(codes), frozenset(codes) | {"SUP001", "SYN001"})

    def judges(self, prefix: str) -> bool:
        """Whether a check can say that no code with a prefix is found: every rule meant is asked, or there is none.

        What only a run can show is not judged.
        """
        return all(c in self.source and c in self.wanted for c in self.known if c.startswith(prefix))
