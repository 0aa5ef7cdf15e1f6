"""Edits for what frameworks gather in lists of their own: what a Trainer's evaluation keeps, what an Accelerator has
prepared."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile, events_at
from torchvet.source.model import Event, blocks, edits, is_call, receiver, walk

_IGNORED = {"train": "ignore_keys_for_eval", "evaluate": "ignore_keys", "predict": "ignore_keys"}
_KEYS = '["hidden_states", "attentions"]'


def left_out_of_evaluation(file: SourceFile, finding: Finding) -> Edits:
    """`trainer.train(ignore_keys_for_eval=["hidden_states", "attentions"])` on the finding's line."""
    calls = [e.call for e in events_at(file, finding) if is_call(e.node, *_IGNORED) and receiver(e.call) is not None]
    if len(calls) != 1:
        return ()
    name = _IGNORED[calls[0].func.attr]  # type: ignore[attr-defined]
    told = any(k.arg in (name, None) for k in calls[0].keywords)
    return () if told else edits.with_argument(file, calls[0], f"{name}={_KEYS}")


def freed_before_the_next(file: SourceFile, finding: Finding) -> Edits:
    """`accelerator.free_memory()` at the head of the block, of a loop or a function, that prepares what piles up in the
    accelerator's lists."""
    unit = unit_of(file, finding)
    held = finding.holder.name if finding.holder is not None else ""
    for event in unit.calls.get("prepare", ()) if unit is not None else ():
        on = receiver(event.call)
        if on is not None and held.startswith(f"{file.segment(on)}._") and not file.mentions("free_memory"):
            return edits.before(file, _head_around(event), f"{file.segment(on)}.free_memory()")
    return ()


def _head_around(event: Event) -> ast.stmt:
    """The first statement of the innermost loop around an event, or of its function."""
    whole = event.unit.node
    repeated = {id(node.body) for node in walk(whole) if isinstance(node, (ast.For, ast.While))}
    inner = (one for one in blocks.blocks_around(whole, event.statement) if id(one) in repeated)
    block = next(inner, whole.body)
    told = isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Constant)
    return block[1] if told else block[0]
