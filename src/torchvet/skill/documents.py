"""The skill's files: SKILL.md from its template, and references from templates and from the rules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from inspect import cleandoc
from pathlib import Path

from torchvet._version import __version__
from torchvet.rules import rule
from torchvet.skill import measured
from torchvet.skill.families import pages
from torchvet.skill.routes import routes

NAME = "torchvet"
"""The skill's name and its folder's: the specification wants them equal."""

TEMPLATES = Path(__file__).parent / "templates"
MOST_OF_A_DESCRIPTION = 1024

DESCRIPTION = (
    "Finds and proves faults of PyTorch programs with torchvet. Use when a PyTorch program (training, fine-tuning, "
    "evaluation, inference; Lightning, Trainer, Accelerate) misbehaves or is to be reviewed: memory grows from step "
    "to step, CUDA out of memory, the process is killed, memory runs out after some epochs or only in validation; "
    "loss or gradients are NaN or inf, GradScaler skips steps, the loss does not fall, doubts about fp16, bf16 or "
    "autocast; training is slow or the GPU idles; device mismatch, device-side assert, 'backward through the graph "
    "a second time', 'modified by an inplace operation'; DDP ranks uneven or waiting; a memory snapshot or profiler "
    "trace to read. Also when someone proposes to halve the batch, take a bigger GPU, call empty_cache or "
    "gc.collect in each step, restart every epoch, turn AMP off, switch to bf16, or blames the data loader without "
    "a measurement."
)
"""When to read the skill: symptoms, as people put them. No steps: an agent that finds them here reads no further."""

_FIELD = re.compile(r"\{\{(.+?)\}\}")


@cache
def documents() -> Mapping[str, str]:
    """The text of each file by its path below the skill's folder, with `/` between names."""
    found = {"SKILL.md": _front_matter() + _filled((TEMPLATES / "SKILL.md").read_text("utf-8"))}
    for template in sorted((TEMPLATES / "references").glob("*.md")):
        found[f"references/{template.name}"] = _filled(template.read_text("utf-8"))
    found.update({f"references/{name}": text for name, text in pages().items()})
    return found


def _front_matter() -> str:
    """Only keys that the specification has. A JSON string is a YAML string too."""
    assert len(DESCRIPTION) <= MOST_OF_A_DESCRIPTION
    rows = {
        "name": NAME,
        "description": json.dumps(DESCRIPTION),
        "license": "Apache-2.0",
        "compatibility": json.dumps("Needs the torchvet command (Python 3.10 or newer) beside the program's own torch"),
        "metadata": f'\n  torchvet-version: "{__version__}"',
    }
    return "---\n" + "".join(f"{key}: {value}\n".replace(": \n", ":\n") for key, value in rows.items()) + "---\n\n"


def _filled(text: str) -> str:
    """A template with its fields filled in. Raises KeyError for a field that is none: a rule that is no more."""
    return _FIELD.sub(lambda field: _value(field[1]), text)


def _value(field: str) -> str:
    word, _, rest = field.partition(" ")
    if not rest and field in _WHOLE:
        return _WHOLE[field]()
    if not rest:
        return f"{rule(field).code} {rule(field).name}"
    if word == "step":
        return measured.steps()[rest]
    if word in ("what", "why", "when_not", "proof", "remedy"):
        return " ".join(cleandoc(getattr(rule(rest), word)).split())
    raise KeyError(field)


_WHOLE: dict[str, Callable[[], str]] = {"routes": routes, "steps": measured.table}
