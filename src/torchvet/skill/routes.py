"""From what people see to the command to run first and the reference to read."""

from __future__ import annotations

from torchvet.docgen.rule_pages import SYMPTOMS
from torchvet.skill.families import FAMILIES, Family

FIRST = {
    "Memory grows from step to step": "torchvet run --steps 200 train.py",
    "Out of memory, although nothing grows": "torchvet run train.py",
    "Mixed precision that gives wrong or no savings": "torchvet amp train.py",
    "Slow": "torchvet run train.py",
    "A device error, or a device-side assert": "torchvet run --simulate-gpu l4 train.py",
    "An error in backward, in view(), or from the scaler": "torchvet run train.py",
    "NaN or inf": "torchvet run train.py",
    "The loss does not fall, or the model does not learn": "torchvet run --steps 200 train.py",
    "Validation is worse than it should be": "torchvet check train.py",
    "Several GPUs: slower, uneven, or only one is used": "torchvet inspect folder-of-ranks/",
}
"""By the symptoms of the rules' index."""


def routes() -> str:
    """The table, as Markdown: the references of a symptom, with the codes where it is not the whole of one."""
    rows = ["| symptom | first | then read |", "|---|---|---|"]
    for symptom, prefixes in SYMPTOMS.items():
        links = ", ".join(_link(family, prefixes) for family in _families(prefixes))
        rows.append(f"| {symptom} | `{FIRST[symptom]}` | {links} |")
    return "\n".join(rows)


def _families(prefixes: tuple[str, ...]) -> list[Family]:
    """The families with rules whose codes begin so, in the order of the codes given."""
    found = [f for prefix in prefixes for f in FAMILIES if any(r.code.startswith(prefix) for r in f.rules())]
    return list(dict.fromkeys(found))


def _link(family: Family, prefixes: tuple[str, ...]) -> str:
    meant = [r.code for r in family.rules() if r.code.startswith(prefixes)]
    link = f"[{family.file.removesuffix('.md')}](references/{family.file})"
    return link if len(meant) == len(family.rules()) else f"{link}: {' '.join(meant)}"
