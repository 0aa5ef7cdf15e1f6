"""Joins what source suggests with what a run measured: one finding for one fault, graded by the measurement.

Suspicions count in files of which a line was seen running. One that the run saw at work is the run's finding, with the
mend that source knows; one whose line ran and that the run could have shown, and did not, is lowered and says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from torchvet.checking.engine import Scope, check_text, source_rules
from torchvet.finding import Finding, Measured, Related, Remedy
from torchvet.recording import Recording
from torchvet.recording.training_records import Ran
from torchvet.rules import Rule
from torchvet.source.reach import reached


def joined(recording: Recording, observed: Sequence[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """The observed findings with what source adds to them, and the suspicions at `warning` and above that remain.

    `rules` are the ones that are wanted; each is asked about the text as it was when the program ran.
    """
    found = list(observed)
    by_code = {rule.code: rule for rule in rules}
    lines = lines_seen(recording)
    for path in sorted(lines.keys() & recording.sources.keys()):
        text = recording.sources[path]
        tree: ast.Module | None = None
        for suspicion in _suspicions(path, text, rules):
            twins = [i for i, f in enumerate(found) if f.evidence == "observed" and same_fault(f, suspicion)]
            for index in twins:
                found[index] = _with_source(found[index], suspicion)
            if twins or suspicion.severity == "info" or suspicion.location is None:
                continue
            tree = tree or ast.parse(text)
            rule = by_code[suspicion.code]
            if rule.could_be_measured(recording) and reached(tree, lines[path], suspicion.location.line):
                suspicion = _harmless(suspicion, recording)
            found.append(suspicion)
    return found


def lines_seen(recording: Recording) -> dict[str, set[int]]:
    """The lines of each file that any rank saw running."""
    found: dict[str, set[int]] = {}
    for rank in recording.ranks:
        for record in rank.all(Ran):
            found.setdefault(record.path, set()).update(record.lines)
    return found


def _suspicions(path: str, text: str, rules: Sequence[Rule]) -> Iterator[Finding]:
    asked = source_rules(rules)
    codes = frozenset(rule.code for rule in asked)
    return iter(check_text(path, text, asked, Scope(codes, codes, codes)).findings)


def same_fault(observed: Finding, suspicion: Finding) -> bool:
    """Whether a run's finding and a suspicion are about one fault: one code and a line or a function in common, or two
    ways to keep memory and one line that stores."""
    at, suspected = observed.location, suspicion.location
    if at is None or suspected is None or at.path != suspected.path:
        return False
    last = suspected.end_line or suspected.line
    if suspected.line <= at.line <= last:
        return observed.code == suspicion.code or observed.code[:4] == suspicion.code[:4] == "MEM1"
    return observed.code == suspicion.code and at.function is not None and at.function == suspected.function


def _with_source(observed: Finding, suspicion: Finding) -> Finding:
    """A run's finding with the edits that source has for it, and its line where that is another."""
    remedy, related = observed.remedy, list(observed.related)
    if observed.code == suspicion.code and suspicion.remedy.edits and not remedy.edits:
        remedy = Remedy(summary=remedy.summary, safe=suspicion.remedy.safe, edits=suspicion.remedy.edits)
    at, suspected = observed.location, suspicion.location
    if at is not None and suspected is not None and at.line != suspected.line:
        related.append(Related(role="in-source", message=suspicion.message, path=suspected.path, line=suspected.line))
    return msgspec.structs.replace(observed, remedy=remedy, related=related)


def _harmless(suspicion: Finding, recording: Recording) -> Finding:
    """A suspicion that the run has not confirmed, for what it is: worth knowing."""
    steps = max((rank.ticks for rank in recording.ranks), default=0)
    return msgspec.structs.replace(
        suspicion, severity="info", measured=Measured(steps=steps),
        message=f"measured harmless over {steps:,} steps: {suspicion.message}",
    )  # fmt: skip
