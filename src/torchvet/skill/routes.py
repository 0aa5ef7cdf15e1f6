"""From what people see to the command to run first and the reference to read."""

from __future__ import annotations

from torchvet.rule_pages import SYMPTOMS
from torchvet.skill.families import files_for

FIRST = {
    "Memory grows from step to step": "torchvet run --steps 200 train.py",
    "Out of memory, although nothing grows": "torchvet run train.py",
    "Mixed precision that gives wrong or no savings": "torchvet amp train.py",
    "Slow": "torchvet run train.py",
    "A device error, or a device-side assert": "torchvet run --simulate-gpu l4 train.py",
    "An error in backward": "torchvet run train.py",
    "NaN or inf": "torchvet run train.py",
    "The loss does not fall, or the model does not learn": "torchvet run --steps 200 train.py",
    "Validation is worse than it should be": "torchvet check train.py",
    "Several GPUs: slower, uneven, or only one is used": "torchvet inspect folder-of-ranks/",
}
"""By the symptoms of the rules' index."""


def routes() -> str:
    """The table, as Markdown."""
    rows = ["| symptom | first | then read |", "|---|---|---|"]
    for symptom, prefixes in SYMPTOMS.items():
        links = ", ".join(f"[{file.removesuffix('.md')}](references/{file})" for file in files_for(prefixes))
        rows.append(f"| {symptom} | `{FIRST[symptom]}` | {links} |")
    return "\n".join(rows)
