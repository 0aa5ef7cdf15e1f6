"""Targets of a CTC loss that no path through their input can spell."""

from __future__ import annotations

from typing import Any

import torch


def unaligned(operator: str, args: tuple[Any, ...]) -> str:
    """The first target that is longer than its input, in figures; empty for other operators, and where there is none.

    Between two equal labels a path needs a blank: each repetition takes one more frame.
    """
    if "ctc_loss" not in operator or len(args) < 4:
        return ""
    # The operator's signature: log_probs, targets, input_lengths, target_lengths.
    targets, frames, lengths = args[1:4]
    frames, lengths = _whole(frames), _whole(lengths)
    start = 0
    for row, (available, length) in enumerate(zip(frames, lengths, strict=False)):
        # torch takes targets padded, or all in one row.
        labels = targets[row, :length] if targets.dim() == 2 else targets[start : start + length]
        start += length
        repeated = int((labels[1:] == labels[:-1]).sum())
        if length + repeated > available:
            more = f" and {repeated} blanks between equal ones" if repeated else ""
            return f"target {row} has {length} labels{more}, its input {available} frames"
    return ""


def _whole(values: Any) -> list[int]:
    return [int(v) for v in (values.tolist() if isinstance(values, torch.Tensor) else values)]
