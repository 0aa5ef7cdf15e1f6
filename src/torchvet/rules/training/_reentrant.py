"""What TRN104 says of parameters behind a reentrant checkpoint that no gradient enters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.recording.records.optimizers import OptimizerUse
from torchvet.rules.kit import Edits, Finding, Location, Recording, SourceFile
from torchvet.source.model import edits

ADVICE = "use_reentrant=False; with transformers also `model.enable_input_require_grads()`"
_NAME = "use_reentrant"


def cause(use: OptimizerUse) -> str:
    """Why backward does not reach these parameters."""
    all_of_them = use.checkpointed >= use.without_gradient_count
    return (
        f"{'they' if all_of_them else f'{use.checkpointed} of them'} run within torch.utils.checkpoint with "
        "use_reentrant=True, and none of its arguments is a tensor that requires a gradient: backward does not enter it"
    )


def setting(recording: Recording) -> Location | None:
    """The only line of the program that asks for reentrant checkpoints."""
    files = [file for path in recording.sources if (file := recording.model(path)) is not None]
    found = [Location(path=file.path, line=value.lineno) for file in files for value in _given(file)]
    return found[0] if len(found) == 1 else None


def not_reentrant(file: SourceFile, finding: Finding) -> Edits:
    """`use_reentrant=False` on the finding's line."""
    line = finding.location.line if finding.location is not None else 0
    return [edits.replace(file, value, "False") for value in _given(file) if value.lineno == line]


def _given(file: SourceFile) -> Iterator[ast.Constant]:
    """`True` for `use_reentrant`: by keyword, or by its name in a dictionary."""
    for node in ast.walk(file.tree):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [one.value for one in node.keywords if one.arg == _NAME]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == _NAME]
        yield from (one for one in values if isinstance(one, ast.Constant) and one.value is True)
