"""A reference for each family of rules: all of them in one table, then each with its figures and its fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import cleandoc

from torchvet.docgen.rule_pages import found_by
from torchvet.rules import Rule, all_rules


@dataclass(frozen=True)
class Family:
    """Rules whose codes begin so, in one file."""

    file: str
    title: str
    prefixes: tuple[str, ...]

    def rules(self) -> list[Rule]:
        """Its rules, in the order of their codes."""
        return [r for r in all_rules() if r.code.startswith(self.prefixes)]


FAMILIES = (
    Family("memory-growth.md", "Memory that grows from step to step", ("MEM1",)),
    Family("memory-peak.md", "Peak memory and the allocator", ("MEM2", "MEM3")),
    Family("speed.md", "Speed: waits, copies, layouts, launches", ("OPS",)),
    Family("devices.md", "Devices", ("DEV",)),
    Family("loss-scaling.md", "Mixed precision: the gradient scaler", ("AMP1",)),
    Family("autocast.md", "Mixed precision: autocast", ("AMP2",)),
    Family("numerics.md", "NaN, infinities and lost digits", ("NUM",)),
    Family("training-loop.md", "The training loop", ("TRN",)),
    Family("several-ranks.md", "Several ranks", ("DST",)),
)


def pages() -> dict[str, str]:
    """The text of each family's reference, by file name."""
    return {family.file: _page(family) for family in FAMILIES}


def _page(family: Family) -> str:
    parts = [
        f"# {family.title}",
        "Severity is the usual one: a run grades by what it measured. `torchvet explain` with a code prints whole "
        "programs, faulty and fixed.",
        "\n".join(_table(family.rules())),
    ]
    parts += [_section(rule) for rule in family.rules()]
    return "\n\n".join(parts) + "\n"


def _table(rules: Sequence[Rule]) -> Iterator[str]:
    yield "| code | name | usually | found by | pitfall |"
    yield "|---|---|---|---|---|"
    for rule in rules:
        summary = rule.summary.replace("|", "\\|")
        yield f"| {rule.code} | {rule.name} | {rule.severity} | {found_by(rule)} | {summary} |"


def _section(rule: Rule) -> str:
    texts = (("Why", rule.why), ("Silent", rule.when_not), ("Proof", rule.proof), ("Fix", rule.remedy))
    said = "\n".join(f"- {title}: {' '.join(cleandoc(text).split())}" for title, text in texts)
    return f"## {rule.code} {rule.name}\n\n{' '.join(cleandoc(rule.what).split())}\n\n{said}\n\n```diff\n{fix(rule)}```"


def fix(rule: Rule) -> str:
    """The diff from a rule's faulty example to its fixed one, with one line of context."""
    bad, good = (cleandoc(code).splitlines(keepends=True) for code in (rule.BAD, rule.GOOD))
    lines = (line if line.endswith("\n") else line + "\n" for line in difflib.unified_diff(bad, good, n=1))
    return "".join(line for line in lines if not line.startswith(("---", "+++")))
