"""Show scores to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from casebook.count import Count
from casebook.score import Judgement, Score

MARKS = {True: "yes", False: "NO", None: "-"}

ASPECTS: dict[str, Callable[[Judgement], bool | None]] = {
    "severity": lambda judgement: judgement.severity,
    "line": lambda judgement: judgement.line,
    "holder": lambda judgement: judgement.holder,
    "bytes": lambda judgement: judgement.bytes,
}


def lay_out(rows: Iterable[Sequence[str]]) -> str:
    """Align columns; the first row is the heading."""
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table)


def scoreboard(scores: Sequence[Score]) -> str:
    """One line per case, what went wrong below it, and the totals."""
    heading = ("case", "found", *ASPECTS, "fixed silent", "look-alikes silent", "stdout same", "fix", "variants")
    table = lay_out([heading, *map(_row, scores)])
    off = [score for score in scores if not score.perfect]
    notes = [f"{score.case}: {note}" for score in off for note in [*score.notes, *(f"said {s}" for s in score.said)]]
    notes += [note for score in scores for note in _in_part(score)]
    return "\n\n".join(filter(None, [table, "\n".join(notes), totals(scores)]))


def _row(score: Score) -> list[str]:
    quiet = score.lookalikes_silent
    return [
        score.case,
        MARKS[score.found is not None],
        *(MARKS[aspect(score.found) if score.found else None] for aspect in ASPECTS.values()),
        MARKS[score.fixed_silent],
        f"{sum(quiet)} of {len(quiet)}",
        MARKS[score.undisturbed],
        score.fix.status if score.fix else "-",
        f"{sum(v.found is not None for v in score.variants)} of {len(score.variants)}" if score.variants else "-",
    ]


def _in_part(score: Score) -> Iterator[str]:
    """What a reader wants to know of a case that may be right."""
    if score.fix is not None and score.fix.status not in ("proven", "no edit"):
        yield f"{score.case}: its fix is {score.fix.status}: {score.fix.reason}"
    for variant in score.variants:
        if variant.found is None:
            yield f"{score.case}: missed as {variant.name}"
        elif not variant.found.line:
            yield f"{score.case}: another line as {variant.name}"
        if variant.complaint:
            yield f"{score.case}: as {variant.name}: {variant.complaint}"
        yield from (f"{score.case}: as {variant.name} besides: {alarm}" for alarm in variant.false_alarms)


def totals(scores: Sequence[Score]) -> str:
    """The whole casebook in one line."""
    found = [score.found for score in scores if score.found]
    parts = [f"found {len(found)} of {len(scores)}", f"missed {len(scores) - len(found)}"]
    parts.append(f"false alarms {sum(score.false_alarms for score in scores)}")
    parts.append(f"false alarms in variants {sum(score.alarms_in_variants for score in scores)}")
    for name, aspect in ASPECTS.items():
        asked = [right for judgement in found if (right := aspect(judgement)) is not None]
        parts.append(f"{name} right {sum(asked)} of {len(asked)}")
    silent = [quiet for score in scores for quiet in (score.fixed_silent, *score.lookalikes_silent)]
    parts.append(f"silent where healthy {sum(silent)} of {len(silent)}")
    parts.append(f"undisturbed {sum(score.undisturbed for score in scores)} of {len(scores)}")
    return ", ".join(parts)


def counts(rows: Iterable[tuple[str, str, Count]]) -> str:
    """The independent counts: case, program, bytes per step, peak bytes."""
    heading = ("case", "program", "step is", "steps", "bytes/step", "peak bytes")
    body = (
        (case, name, count.marker, str(count.steps), f"{count.bytes_per_step:.0f}", str(count.peak))
        for case, name, count in rows
    )
    return lay_out([heading, *body])
