"""TRN129: a statement computes a new tensor and throws it away."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Findings, Rule, SourceFile
from torchvet.rules.training._unused_results import Unused, goes_on, unused_results
from torchvet.source.model import edits, terminal

_COPIES = ("contiguous", "clone")
"""What would not change any number if it were kept."""
_PARTS = ("masked_select", "gather", "sort", "where")
"""What gives other elements, or several tensors: its result is not what takes the old one's place."""


class ResultDiscarded(Rule):
    """A statement computes a new tensor and throws it away, so that it does nothing."""

    severity = "warning"
    words = ("torch",)
    fix_changes_results = True

    def in_file(self, file: SourceFile) -> Findings:
        """Calls that change nothing, as statements."""
        for found in unused_results(file):
            yield self._finding(file, found)

    def _finding(self, file: SourceFile, found: Unused) -> Finding:
        subject, call = file.segment(found.subject), file.segment(found.event.node)
        name = terminal(found.event.node)
        parameter = "parameter" in file.roles.of(found.subject, found.event.unit)
        better = f"`{subject}.{name}_(...)` under `torch.no_grad()`" if parameter else f"`{subject} = {call}`"
        harms = found.sure and name not in _COPIES and goes_on(found)
        kind = "is a tensor, and" if found.sure else "reads like a tensor, and"
        return self.suspect(
            file,
            found.event,
            f"the result of {call} is thrown away: {subject} stays as it is, and the line does nothing",
            cause=f"{subject} {kind} what torch calls without a `_` at the end gives a new tensor",
            advice=f"write {better}, or drop the line",
            severity="warning" if harms else "info",
            edits=() if parameter or name in _PARTS else _bound(file, found, subject, call),
        )


def _bound(file: SourceFile, found: Unused, subject: str, call: str) -> Edits:
    """The name bound to the result."""
    event = found.event
    own = isinstance(found.subject, ast.Name) and event.is_own(found.subject)
    known = isinstance(found.subject, ast.Attribute) and "tensor" in file.roles.of(found.subject, event.unit)
    # A leaf that is bound anew is no longer what the optimizer was given.
    leaf = file.mentions("requires_grad=True", "requires_grad_(", "Parameter(")
    return [edits.replace(file, event.call, f"{subject} = {call}")] if (own or known) and not leaf else []
