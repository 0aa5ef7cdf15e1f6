"""Edits for what frameworks gather in lists of their own: what a Trainer's evaluation keeps, what an Accelerator has
prepared."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile, events_at
from torchvet.source.model import blocks, edits, is_call, receiver

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
    calls = unit.calls.get("prepare", ()) if unit is not None else ()
    mine = [e for e in calls if (on := receiver(e.call)) is not None and held.startswith(f"{file.segment(on)}._")]
    if unit is None or not mine or file.mentions("free_memory"):
        return ()
    around = [*blocks.blocks_around(unit.node, mine[0].statement)]
    loops = {id(node.body): node for node in ast.walk(unit.node) if isinstance(node, (ast.For, ast.While))}
    block = next((one for one in around if id(one) in loops), unit.node.body)
    first = block[1] if block is unit.node.body and _is_text(block[0]) and len(block) > 1 else block[0]
    return edits.before(file, first, f"{file.segment(receiver(mine[0].call))}.free_memory()")  # type: ignore[arg-type]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
