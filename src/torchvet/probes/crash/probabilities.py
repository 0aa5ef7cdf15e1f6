"""Which value was refused that had to be a probability, or a parameter of a distribution."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.crash import expressions, operands
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, users
from torchvet.probes.crash.rejected_values import Bounds, candidates, fill, note, on_host, readable
from torchvet.recording.records.device import BadValue

TOLD = re.compile(
    r"all elements of (?P<which>input|target) should be between 0 and 1|"
    r"probability tensor contains either|invalid multinomial distribution|Expected p_in >= 0 && p_in <= 1|"
    r"Expected parameter (?P<parameter>\w+) \(\w+ of shape .*\) of distribution (?P<distribution>\w+)\(|"
    r"Expected value argument \(\w+ of shape .*\) to be within the support"
)
"""What torch says, and of whom."""


def find(record: BadValue, told: re.Match[str], levels: list[Level], names: Names) -> None:
    """Find the value and its place, given what torch said."""
    groups = told.groupdict()
    if groups["parameter"] or "within the support" in told[0]:
        _find_invalid(record, groups, levels, names)
        return
    sums = "multinomial" in told[0] and "sum" in told.string
    multinomial = "probability tensor" in told[0] or "multinomial" in told[0]
    bounds = Bounds(0.0, None if multinomial else 1.0, "rows that sum to zero" if sums else "", whole=sums)
    record.low, record.high, record.of = bounds.low, bounds.high, bounds.what
    for text, tensor, level in candidates(levels, lambda n, at: operands.operands_of(n)):
        # torch names its own parameter (`input`, `target`). In the user's line the same tensor has another
        # name.
        wanted = groups["which"] is None or level.whose == frames.USER or text == groups["which"]
        if wanted and tensor.is_floating_point() and fill(record, bounds, tensor, text, level, names):
            record.argument = groups["which"] or ""
            return
    _find_source(record, levels)


def _find_source(record: BadValue, levels: list[Level]) -> None:
    """Where a result without a name was refused: what it was made of, if that is not finite."""
    level = users(levels)
    node = level.expression() if level is not None else None
    if level is None or node is None:
        return
    given = [o for o in operands.operands_of(node) if not isinstance(o, ast.Constant)]
    record.derived = next((ast.unparse(o) for o in given if isinstance(o, (ast.Call, ast.BinOp, ast.UnaryOp))), "")
    for text, tensor in expressions.tensors_in(node, level.names):
        if tensor is not None and readable(tensor) and tensor.is_floating_point():
            bad = ~torch.isfinite(on_host(tensor))
            if bool(bad.any()):
                note(record, tensor, bad, text)
                return


def _find_invalid(record: BadValue, groups: dict[str, Any], levels: list[Level], names: Names) -> None:
    """A distribution that validates its arguments has said itself which are bad: `valid`, in its frame."""
    # `Distribution.__init__` calls its check `valid`: without that local nothing is told.
    level = next((one for one in reversed(levels) if isinstance(one.local("valid"), torch.Tensor)), None)
    value = level.local("value") if level is not None else None
    if level is None or not isinstance(value, torch.Tensor) or not readable(value):
        return
    kind = groups["distribution"] or type(level.local("self")).__name__
    record.operation, record.argument = kind, groups["parameter"] or "value"
    constraint = level.local("constraint") if groups["parameter"] else level.local("support")
    record.of = re.sub(r"\(\)$", "", repr(constraint)) if constraint is not None else ""
    name = names.placed(value, record.argument).name
    if name in (record.argument, "value"):
        # The text of the user's argument, where the tensor has no name outside of torch.
        name = names.argument(record.argument) or name
    note(record, value, ~on_host(level.local("valid")), name)
