"""Edits that put a scaler's state into a checkpoint beside its optimizer's, and load it where that is loaded."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.precision import _scaling as scaling
from torchvet.source.model import Event, blocks, edits, walk

KEY = "scaler"


@dataclass(frozen=True)
class _Saved:
    """Where an optimizer's state is put into a checkpoint: the key and the edits that put the scaler's beside it."""

    key: str
    edits: list[Edit]


def kept_with_optimizer(
    file: SourceFile, made: Event, saved: Sequence[Event], loaded: Sequence[Event]
) -> list[Edit]:  # fmt: skip
    """The scaler's state in every dictionary that holds the optimizer's, loaded where that is if the checkpoint has it:
    older ones have not. Nothing where a place does not know the scaler, or where it may not have been made."""
    if made.context.arms or made.context.guards or made.loop is not None:
        return []
    kept = [_saved(file, event, name) for event in saved if (name := _known_as(file, made, event))]
    known = [one for one in kept if one is not None]
    if not known or len(known) != len(saved) or len({one.key for one in known}) != 1:
        return []
    restored = [_loaded(file, event, name, known[0].key) for event in loaded if (name := _known_as(file, made, event))]
    if not restored or not all(restored) or len(restored) != len(loaded):
        return []
    return [edit for made_there in (*(one.edits for one in known), *restored) for edit in made_there]


def _saved(file: SourceFile, event: Event, scaler: str) -> _Saved | None:
    state, parent = f"{scaler}.state_dict()", event.parent
    end = edits.end_of(file, event.call)
    if isinstance(parent, ast.Dict):
        at = next((i for i, v in enumerate(parent.values) if v is event.node), None)
        key = parent.keys[at] if at is not None else None
        if at is None or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return None
        quote = file.segment(key)[:1]
        text = f"{quote}{KEY}{quote}: {state}"
        return _Saved(key.value, [Edit(path=file.path, start=end, end=end, text=_beside(file, parent, key, text))])
    if isinstance(parent, ast.Call) and file.dotted(parent.func) == "dict":
        name = next((k.arg for k in parent.keywords if k.value is event.node), None)
        return _Saved(name, [Edit(path=file.path, start=end, end=end, text=f", {KEY}={state}")]) if name else None
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
        return None
    quote = file.segment(target.slice)[:1]
    put = edits.after(file, event.statement, f"{file.segment(target.value)}[{quote}{KEY}{quote}] = {state}")
    return _Saved(str(target.slice.value), put) if put else None


def _beside(file: SourceFile, whole: ast.Dict, key: ast.expr, text: str) -> str:
    """A pair more after one of a dictionary: on a line of its own where that one has its own."""
    line = file.lines[key.lineno - 1]
    before = line[: edits.start_of(file, key)[1] - 1]
    others = [k for k in whole.keys if k is not None and k is not key and k.lineno == key.lineno]
    return f", {text}" if before.strip() or others else f",{file.newline}{before}{text}"


def _loaded(file: SourceFile, event: Event, scaler: str, key: str) -> list[Edit]:
    """The scaler's state loaded after the optimizer's, from the checkpoint that holds that under a known key."""
    given = event.call.args[0] if len(event.call.args) == 1 else None
    if not isinstance(given, ast.Subscript) or not isinstance(given.slice, ast.Constant) or given.slice.value != key:
        return []
    statement = event.statement
    if not isinstance(given.value, (ast.Name, ast.Attribute)) or not isinstance(statement, ast.Expr):
        return []
    state, quote = file.segment(given.value), file.segment(given.slice)[:1]
    margin, node = blocks.margin(file, statement), event.unit.node
    more = blocks.step_of(file, node.body, None if isinstance(node, ast.Module) else node)
    word = f"{quote}{KEY}{quote}"
    lines = f"if {state}.get({word}):{file.newline}{margin}{more}{scaler}.load_state_dict({state}[{word}])"
    return edits.after(file, statement, lines) if more else []


# How a place calls the scaler ----------------------------------------------------------------------------------------


def _known_as(file: SourceFile, made: Event, event: Event) -> str:
    """How the scaler is called where an event stands; empty where it is not known there, or not made yet."""
    bound, unit = scaling.bound_to(made), event.unit
    head, dot, rest = bound.partition(".")
    if unit is made.unit:
        return bound if made.index < event.index and _is_bound_once(file, made, bound) else ""
    early = any(c.unit is made.unit and c.index < made.index for c in file.callers(unit))
    if early or not _is_bound_once(file, made, bound):
        return ""
    if dot and head == made.unit.self_name() and unit.method_class() is made.unit.method_class():
        own = unit.self_name()
        return f"{own}.{rest}" if own and unit.method_class() is not None else ""
    if dot:
        return ""
    if bound in unit.parameters and bound not in unit.bindings:
        given = list(file.arguments(unit, bound))
        same = all(isinstance(node, ast.Name) and node.id == bound for node, _ in given)
        return bound if given and same and len(given) == len(file.callers(unit)) else ""
    return bound if unit.home(bound) is made.unit and made.unit.is_module else ""


def _is_bound_once(file: SourceFile, made: Event, bound: str) -> bool:
    """Whether a scaler's name or attribute is bound where it is made, and nowhere else in the file."""
    kind = ast.Attribute if "." in bound else ast.Name
    last = bound.rpartition(".")[2]
    stores = [n for n in walk(file.tree) if isinstance(n, kind) and isinstance(n.ctx, (ast.Store, ast.Del))]
    return [n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in stores].count(last) == 1
