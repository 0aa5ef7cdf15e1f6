"""Which index, or class, was outside what it selects from."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

from torchvet.probes.crash import expressions, operands
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, users
from torchvet.probes.crash.rejected_values import Bounds, candidates, fill
from torchvet.recording.records.device import BadValue

TOLD = re.compile(
    # Each alternative is the wording of one kernel. What is worded otherwise is left as torch says it.
    r"index out of range in self|"
    r"index (?P<v1>-?\d+) is out of bounds for dimension (?P<dimension>\d+) with size (?P<n1>\d+)|"
    r"INDICES element is out of DATA bounds, id=(?P<v2>-?\d+) axis_dim=(?P<n2>\d+)|"
    r"Target (?P<v3>-?\d+) is out of bounds|"
    r"tried to access index (?P<v4>-?\d+) on a tensor of (?P<n4>\d+) elements|"
    r"Index \d+ of input takes value (?P<v5>-?\d+) which is not in the valid range \[0, (?P<n5>\d+)\)|"
    r"^target out of range|argument #2 'target' is out of range|Class values must be"
)
"""What torch says, with the value and the size where it names them."""
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def find(record: BadValue, told: re.Match[str], levels: list[Level], names: Names) -> None:
    """Find the value, its bound and its place, given what torch said."""
    groups = told.groupdict()
    value = next((int(groups[k]) for k in ("v1", "v2", "v3", "v4", "v5") if groups.get(k)), None)
    size = next((int(groups[k]) for k in ("n1", "n2", "n4", "n5") if groups.get(k)), None)
    bounds = Bounds(0, size, value=value)
    if size is None:
        _bound_from_frames(bounds, levels, names)
    if record.operation == "indexing" and bounds.high is not None:
        # Indexing counts from the end too; an embedding or a class does not.
        bounds.low = -bounds.high
    record.low, record.high, record.bounded_by = bounds.low, bounds.high, bounds.by
    record.ignored = bounds.ignored
    dimension = int(groups["dimension"]) if groups.get("dimension") else None
    # The first tensor that has the refused value is the one. Others may lie within the bounds.
    for text, tensor, level in candidates(levels, lambda n, at: operands.indices_of(n, at.names, dimension)):
        if tensor.dtype in _INTEGERS and fill(record, bounds, tensor, text, level, names):
            return
    if value is not None:
        record.values, record.count = [float(value)], 1
        record.name = _index_text(levels, value, dimension)


def _index_text(levels: list[Level], value: int, dimension: int | None) -> str | None:
    """The text of an index whose tensor has no name, or that is a Python number."""
    level = users(levels)
    node = level.expression() if level is not None else None
    if level is None or node is None:
        return None
    parts = operands.indices_of(node, level.names, dimension)
    # A part that is known to have the value, before one that is merely the only one left.
    plain = [p for p in parts if _is_number(expressions.value_of(p, level.names), value)]
    others = [p for p in parts if not isinstance(p, (ast.Constant, ast.Slice))]
    chosen = plain or (others if len(others) == 1 else [])
    return ast.unparse(chosen[0]) if chosen else None


def _is_number(found: Any, value: int) -> bool:
    return isinstance(found, int) and found == value


_CLASSIFYING = ("cross_entropy", "nll_loss", "multi_margin_loss", "multilabel_margin_loss")


def _bound_from_frames(bounds: Bounds, levels: list[Level], names: Names) -> None:
    """What torch's own functions were given: the table of an embedding, the scores that a class is one of."""
    # Innermost first: `F.embedding` knows its table, `nn.Embedding` around it only its module.
    for level in reversed(levels):
        table, scores, node = level.local("weight"), level.local("input"), level.expression()
        if level.function in ("embedding", "embedding_bag") and isinstance(table, torch.Tensor):
            bounds.high = int(table.shape[0])
            bounds.by = f"{names.placed(table, 'weight').name} has {bounds.high:,} rows"
        elif level.function in _CLASSIFYING and isinstance(scores, torch.Tensor):
            # Scores are (batch, classes, ...), or (classes) for one sample.
            bounds.high = int(scores.shape[1 if scores.dim() > 1 else 0])
            bounds.by = f"{names.placed(scores, 'input').name} has scores for {bounds.high:,} classes"
            ignored = level.local("ignore_index")
            bounds.ignored = ignored if isinstance(ignored, int) else None
        elif isinstance(node, ast.Call) and expressions.called(node) == "one_hot":
            bounds.high = _classes_asked(node, level)
            bounds.by = f"one_hot was asked for {bounds.high:,} classes" if bounds.high else ""
        else:
            continue
        return


def _classes_asked(one_hot: ast.Call, level: Level) -> int | None:
    given = [*one_hot.args[1:2], *(k.value for k in one_hot.keywords if k.arg == "num_classes")]
    classes = expressions.value_of(given[0], level.names) if given else None
    return classes if isinstance(classes, int) and classes > 0 else None
