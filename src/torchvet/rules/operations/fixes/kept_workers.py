"""An edit for a loader that starts its workers anew for each pass: they are kept."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.rules.operations.fixes.whole_batches import maker_of
from torchvet.source.model import Event, edits, is_call, value_for

_ARGUMENT = "persistent_workers"


def kept_workers(file: SourceFile, finding: Finding) -> Edits:
    """`persistent_workers=True` in the call that makes the loader.

    Nothing where a loop makes a loader for each pass, which ends the workers with it, or where the arguments may say
    something of it.
    """
    made = maker_of(file, finding)
    if made is None or made.loop is not None or file.mentions(_ARGUMENT):
        return ()
    if not all(_is_known(made, one.value) for one in made.call.keywords if one.arg is None):
        return ()
    return edits.with_argument(file, made.call, f"{_ARGUMENT}=True")


def _is_known(made: Event, options: ast.expr) -> bool:
    """Whether `**options` is a dict whose keys the text shows."""
    if not isinstance(options, ast.Name):
        return False
    bound = made.unit.bindings.get(options.id, ())
    values = [value_for(event.node, target) for event in bound for target in _targets(event.node)]
    return bool(values) and all(isinstance(one, ast.Dict) or is_call(one, "dict") for one in values)


def _targets(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else []
