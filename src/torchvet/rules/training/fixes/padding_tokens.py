"""An edit for a tokenizer that pads with the token that ends texts."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, events_at
from torchvet.source.model import edits, is_attribute, root_of, sole_target


def padded_by_its_own(file: SourceFile, finding: Finding) -> Edits:
    """`tokenizer.add_special_tokens({"pad_token": "<pad>"})` in the place of `tokenizer.pad_token =
    tokenizer.eos_token`. A model that was made for the smaller vocabulary fails with it."""
    for event in events_at(file, finding):
        node = event.node
        target = sole_target(node)
        if isinstance(node, ast.Assign) and is_attribute(target, "pad_token"):
            tokenizer = file.segment(target.value)
            text = f'{tokenizer}.add_special_tokens({{"pad_token": "<pad>"}})'
            return [edits.replace(file, node, text)] if root_of(target) else ()
    return ()
