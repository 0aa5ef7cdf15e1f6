"""What a rule is: one class in one file that carries its code, its knowledge, its matchers and its examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from torchvet.finding import Finding, Severity

if TYPE_CHECKING:
    from torchvet.recording import Recording


class Rule:
    """One fault that torchvet knows. Subclasses fill in the knowledge and override the matchers that apply.

    `BAD` and `GOOD` are whole programs: they run as tests, stand in the documentation and feed `explain`.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    summary: ClassVar[str]
    """One line, present tense, no full stop."""
    severity: ClassVar[Severity]
    """The usual severity; a finding from a run is graded by what was measured."""

    what: ClassVar[str]
    """What happens, mechanically."""
    why: ClassVar[str]
    """Why it costs memory, time or correctness."""
    when_not: ClassVar[str]
    """When it does not matter: the look-alikes that stay silent."""
    proof: ClassVar[str]
    """The measurement behind the claim, with its figures and the torch version."""
    remedy: ClassVar[str]
    """What to change, in general terms; a finding says it in the user's own names."""

    BAD: ClassVar[str]
    GOOD: ClassVar[str]

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Yield what a recorded run shows."""
        return iter(())
