"""The base of rules about training loops, which are mild in a test suite."""

from __future__ import annotations

import msgspec

from torchvet.rules.kit import Finding, Iterator, Rule, SourceFile
from torchvet.rules.shared.training_loops import is_test


class LoopRule(Rule):
    """A rule about training loops."""

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """See `Rule`. In a test suite each finding is `info`: faults often stand there on purpose."""
        for finding in super().in_source(file):
            yield msgspec.structs.replace(finding, severity="info") if is_test(file) else finding
