"""Edits for what frameworks gather in lists of their own: what a Trainer's evaluation keeps, what an Accelerator has
prepared."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, events_at, unit_of
from torchvet.source.model import Event, edits, is_call, receiver, terminal

_IGNORED = {"train": "ignore_keys_for_eval", "evaluate": "ignore_keys", "predict": "ignore_keys"}
_KEYS = '["hidden_states", "attentions"]'


def left_out_of_evaluation(file: SourceFile, finding: Finding) -> Edits:
    """`trainer.train(ignore_keys_for_eval=["hidden_states", "attentions"])` on the finding's line, in a file that
    takes its Trainer from transformers."""
    homes = {home.partition(".")[0] for home in file.imports.names.values()}
    # Their Trainers have methods of these names as well.
    if "transformers" not in homes or homes & {"lightning", "pytorch_lightning"}:
        return ()
    calls = [e.call for e in events_at(file, finding) if is_call(e.node, *_IGNORED) and receiver(e.call) is not None]
    if len(calls) != 1:
        return ()
    name = _IGNORED[terminal(calls[0])]
    told = any(k.arg in (name, None) for k in calls[0].keywords)
    return () if told else edits.with_argument(file, calls[0], f"{name}={_KEYS}")


def without_predictions(file: SourceFile, finding: Finding) -> Edits:
    """`trainer.predict(model, loader, return_predictions=False)` on the finding's line, where nobody takes what
    Lightning's Trainer would return."""
    homes = {home.partition(".")[0] for home in file.imports.names.values()}
    found = [e for e in events_at(file, finding) if is_call(e.node, "predict") and receiver(e.call) is not None]
    if len(found) != 1 or not homes & {"lightning", "pytorch_lightning"} or "transformers" in homes:
        return ()
    call, statement = found[0].call, found[0].statement
    taken = not isinstance(statement, ast.Expr) or statement.value is not call
    # `None` is the key of `**options`.
    given = taken or any(k.arg in ("return_predictions", None) for k in call.keywords)
    return () if given else edits.with_argument(file, call, "return_predictions=False")


def freed_before_the_next(file: SourceFile, finding: Finding) -> Edits:
    """`accelerator.free_memory()` at the head of the function that prepares what piles up in the accelerator's lists.

    It forgets all that was prepared: nothing where a file has another `prepare`, or saves the state. The accelerator is
    an attribute or a parameter, so that it is there.
    """
    unit = unit_of(file, finding)
    held = finding.holder.name if finding.holder is not None else ""
    prepared = list(file.calls("prepare"))
    if unit is None or len(prepared) != 1 or prepared[0].unit is not unit or prepared[0].loop is not None:
        return ()
    on = receiver(prepared[0].call)
    there = isinstance(on, ast.Attribute) or (isinstance(on, ast.Name) and on.id in unit.parameters)
    if on is None or not there or not held.startswith(f"{file.segment(on)}._"):
        return ()
    if file.mentions("free_memory", "save_state", "load_state", "register_for_checkpointing"):
        return ()
    return edits.before(file, _first(prepared[0]), f"{file.segment(on)}.free_memory()")


def _first(event: Event) -> ast.stmt:
    """The first statement of an event's function."""
    block = event.unit.node.body
    told = isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Constant)
    return block[1] if told else block[0]
