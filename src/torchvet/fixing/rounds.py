"""Fixes a document in rounds: edits are made and the result is checked again, until nothing changes."""

from __future__ import annotations

from collections import Counter

from torchvet.checking.engine import FileResult
from torchvet.finding import Finding
from torchvet.fixing.documents import Document, soundness
from torchvet.fixing.edits import apply

ROUNDS = 10


class FixResult:
    """A document after its edits: its findings now, how many of each code were fixed, and what was refused."""

    def __init__(self, document: Document, result: FileResult, refused: list[str] | None = None) -> None:
        self.document = document
        self.result = result
        self.counts: Counter[str] = Counter()
        self.refused = refused or []


def fix(document: Document, unsafe: bool = False) -> FixResult:
    """Make the safe edits, and the unsafe ones if asked. Skips an edit after which the text does not parse."""
    fixed = FixResult(document, document.check())
    broken: set[str] = set()
    seen = {tuple(document.texts.values())}
    for _ in range(ROUNDS):
        wanted = [f for f in fixed.result.findings if _is_wanted(f, unsafe) and _key(f) not in broken]
        texts, applied = apply(fixed.document.texts, wanted)
        following = fixed.document.with_texts(texts)
        if not applied or tuple(texts.values()) == tuple(fixed.document.texts.values()):
            return fixed
        # A fix must not make a sound file worse; a file that was not sound before may stay so.
        if soundness(following.module()) < soundness(fixed.document.module()):
            _single_out(fixed, applied, broken)
            continue
        if tuple(texts.values()) in seen:
            fixed.refused.append(f"{fixed.result.path}: edits undo one another; stopped")
            return fixed
        seen.add(tuple(texts.values()))
        fixed.document, fixed.result = following, following.check()
        fixed.counts.update(f.code for f in applied)
    if any(_is_wanted(f, unsafe) and _key(f) not in broken for f in fixed.result.findings):
        fixed.refused.append(f"{fixed.result.path}: not stable after {ROUNDS} rounds of edits; stopped")
    return fixed


def _is_wanted(finding: Finding, unsafe: bool) -> bool:
    return bool(finding.remedy.edits) and (finding.remedy.safe or unsafe)


def _key(finding: Finding) -> str:
    return f"{finding.code} {finding.location} {finding.message}"


def _single_out(fixed: FixResult, applied: list[Finding], broken: set[str]) -> None:
    """Refuse the edits that break the text by themselves; if none does, refuse the last one made."""
    before = soundness(fixed.document.module())
    document, alone = fixed.document, []
    for finding in applied:
        texts, _ = apply(document.texts, [finding])
        if soundness(document.with_texts(texts).module()) < before:
            alone.append(finding)
    # Edits that break the text only together leave no culprit: dropping one a round ends the search.
    for finding in alone or applied[-1:]:
        broken.add(_key(finding))
        at = finding.location
        place = f"{at.path}:{at.line}: " if at is not None else ""
        fixed.refused.append(f"{place}{finding.code}: its edit would break the file: not made")
