"""Makes the edits of chosen findings in several files at once, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchvet.finding import Finding
from torchvet.fixing.documents import Document, soundness
from torchvet.fixing.edits import apply
from torchvet.patches import made


class Chosen:
    """Documents by path after the edits of some findings.

    `made` has the findings whose edits were made; `refused` the reason for each of the others, by its position.
    """

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self.documents = dict(documents)
        self.made: list[Finding] = []
        self.refused: dict[int, str] = {}

    def changed(self, before: Mapping[str, Document]) -> dict[str, Document]:
        """The documents whose text differs."""
        return {p: d for p, d in self.documents.items() if d.texts != before[p].texts}


def chosen(documents: Mapping[str, Document], findings: Sequence[Finding]) -> Chosen:
    """Make the edits of findings, each one's together or not at all; skip those after which a file does not compile."""
    done = Chosen(documents)
    kept: list[Finding] = []
    for number, finding in enumerate(findings):
        after, applied = _with(documents, [*kept, finding])
        if finding not in applied:
            done.refused[number] = _why_not(documents, finding)
        elif any(_sound(after[p]) < _sound(documents[p]) for p in after):
            done.refused[number] = "its edit would break the file"
        else:
            kept.append(finding)
            done.documents = after
    done.made = kept
    return done


def _with(documents: Mapping[str, Document], findings: Sequence[Finding]) -> tuple[dict[str, Document], list[Finding]]:
    texts = {path: text for d in documents.values() for path, text in d.texts.items()}
    new, applied = apply(texts, findings)
    after = {p: d.with_texts({path: new[path] for path in d.texts}) for p, d in documents.items()}
    return after, applied


def _why_not(documents: Mapping[str, Document], finding: Finding) -> str:
    missing = next((e.path for e in finding.remedy.edits if e.path not in documents), None)
    if missing is not None:
        return f"it changes {missing}, which is not one of the program's own files"
    return "its edit overlaps that of another fix, or the text is not there"


def _sound(document: Document) -> int:
    return soundness(document.module())


def difference(before: Mapping[str, Document], after: Mapping[str, Document], shown: Mapping[str, str]) -> str:
    """A unified diff of modules, each under the name that it is shown by."""
    return "".join(made(before[p].texts[p], after[p].texts[p], shown.get(p, p)) for p in before)
