"""What a rule's `mends` does to a text, for a finding that a run is taken to have made."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec

from torchvet.finding import DetailedFinding, Location, Remedy
from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.source.model import SourceFile

FILE = "train.py"
HEAD = "import torch\nfrom torch import nn, optim\nimport torch.nn.functional as F\n"


def fixed_lines(code: str, text: str, at: str, *, whole: bool = False, **more: Any) -> tuple[list[str], list[str]]:
    """The lines taken out and put in by the edits for a finding on the first line that holds `at`; with `whole` all
    lines before and after. What is mended compiles."""
    text = HEAD + textwrap.dedent(text)
    line = next(n for n, one in enumerate(text.splitlines(), start=1) if at in one)
    facts: dict[str, Any] = {"message": "", "cause": "", **more}  # no fix goes by words
    finding = DetailedFinding(
        code=code, name="x", severity="error", evidence="observed", location=Location(path=FILE, line=line),
        remedy=Remedy(summary=""), **facts,
    )  # fmt: skip
    edits = list(rule(code).fixes(finding, SourceFile(FILE, text)))
    made = msgspec.structs.replace(finding, remedy=Remedy(summary="", edits=edits))
    applied, done = apply({FILE: text}, [made])
    assert bool(done) is bool(edits)
    compile(applied[FILE], FILE, "exec")
    old, new = text.splitlines(), applied[FILE].splitlines()
    if whole:
        return old, new
    return [one for one in old if one not in new], [one for one in new if one not in old]
