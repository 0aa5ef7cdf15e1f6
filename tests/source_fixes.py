"""What a rule's edits from source alone do to a text."""

from __future__ import annotations

import textwrap

from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.source.model import SourceFile

FILE = "train.py"
HEAD = "import torch\nfrom torch import nn, optim\nimport torch.nn.functional as F\n"


def fixed(code: str, text: str) -> tuple[list[str], list[str]]:
    """The lines that a rule's edits take out and put in. What is left has nothing to be edited by that rule."""
    text = HEAD + textwrap.dedent(text)
    found = [f for f in rule(code).in_source(SourceFile(FILE, text)) if f.remedy.edits]
    after = apply({FILE: text}, found)[0][FILE]
    compile(after, FILE, "exec")
    assert not [f for f in rule(code).in_source(SourceFile(FILE, after)) if f.remedy.edits]
    old, new = text.splitlines(), after.splitlines()
    return [one for one in old if one not in new], [one for one in new if one not in old]
