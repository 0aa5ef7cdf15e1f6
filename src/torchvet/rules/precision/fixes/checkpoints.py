"""Edits that put a scaler's state into a checkpoint beside its optimizer's, and load it where that is loaded."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Sequence, SourceFile
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision.fixes.moves import together
from torchvet.source.model import Event, Unit, blocks, edits, is_name, sole_target, terminal, walk

KEY = "scaler"


def kept_with_optimizer(file: SourceFile, made: Event, saved: Sequence[Event], loaded: Sequence[Event]) -> list[Edit]:
    """The scaler's state in every dictionary that holds the optimizer's, loaded where that is if the checkpoint has it:
    older ones have not. Nothing where a place does not know the scaler, or where it may not have been made."""
    if made.context.arms or made.context.guards or made.loop is not None or not loaded:
        return []
    names = {id(event): _known_as(file, made, event) for event in (*saved, *loaded)}
    if not all(names.values()):
        return []
    kept = [_saved(file, event, names[id(event)]) for event in saved]
    keys = {key for key, _ in kept}
    if len(keys) != 1:
        return []
    key = keys.pop()
    restored = [_loaded(file, event, names[id(event)], key) for event in loaded]
    return together(*(put for _, put in kept), *restored)


def _saved(file: SourceFile, event: Event, scaler: str) -> tuple[str, list[Edit]]:
    """The key of an optimizer's state in a checkpoint, and the scaler's beside it; no edits where that is unsure."""
    state, parent = f"{scaler}.state_dict()", event.parent
    if isinstance(parent, ast.Dict):
        return _saved_in_dict(file, event, parent, state)
    if isinstance(parent, ast.Call) and file.dotted(parent.func) == "dict":
        name = next((k.arg for k in parent.keywords if k.value is event.node), None)
        beside = edits.insert(file, edits.end_of(file, event.call), f", {KEY}={state}")
        return (name, [beside]) if name else ("", [])
    target = sole_target(parent)
    if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
        return "", []
    text = f"{file.segment(target.value)}[{_quoted(file, target.slice)}] = {state}"
    return str(target.slice.value), edits.after(file, event.statement, text)


def _quoted(file: SourceFile, like: ast.expr) -> str:
    """The scaler's key, with the quotes of another."""
    quote = file.segment(like)[:1]
    return f"{quote}{KEY}{quote}"


def _saved_in_dict(file: SourceFile, event: Event, literal: ast.Dict, state: str) -> tuple[str, list[Edit]]:
    key = next((k for k, v in zip(literal.keys, literal.values, strict=True) if v is event.node), None)
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return "", []
    text = _beside(file, literal, key, f"{_quoted(file, key)}: {state}")
    return key.value, [edits.insert(file, edits.end_of(file, event.call), text)]


def _beside(file: SourceFile, whole: ast.Dict, key: ast.expr, text: str) -> str:
    """A pair more after one of a dictionary: on a line of its own where that one has its own."""
    before = file.lines[key.lineno - 1][: edits.start_of(file, key)[1] - 1]
    others = any(k is not None and k is not key and k.lineno == key.lineno for k in whole.keys)
    return f", {text}" if before.strip() or others else f",{file.newline}{before}{text}"


def _loaded(file: SourceFile, event: Event, scaler: str, key: str) -> list[Edit]:
    """The scaler's state loaded after the optimizer's, from the checkpoint that holds that under a known key."""
    given, statement = event.call.args[0] if len(event.call.args) == 1 else None, event.statement
    if not isinstance(given, ast.Subscript) or not isinstance(given.slice, ast.Constant) or given.slice.value != key:
        return []
    if not isinstance(given.value, (ast.Name, ast.Attribute)) or not isinstance(statement, ast.Expr):
        return []
    state, word, node = file.segment(given.value), _quoted(file, given.slice), event.unit.node
    more = blocks.step_of(file, node.body, None if isinstance(node, ast.Module) else node)
    inner = f"{file.newline}{blocks.margin(file, statement)}{more}"
    # A checkpoint from before the fix has no scaler in it.
    lines = f"if {state}.get({word}):{inner}{scaler}.load_state_dict({state}[{word}])"
    return edits.after(file, statement, lines) if more else []


# How a place calls the scaler ----------------------------------------------------------------------------------------


def _known_as(file: SourceFile, made: Event, event: Event) -> str:
    """How the scaler is called where an event stands; empty where it is not known there, or not made yet."""
    bound, unit = scaling.bound_to(made), event.unit
    if not _is_bound_once(file, bound):
        return ""
    if unit is made.unit:
        return bound if made.index < event.index else ""
    if any(c.unit is made.unit and c.index < made.index for c in file.callers(unit)):
        return ""
    return _on_self(made, unit, bound) if "." in bound else _by_name(file, made, unit, bound)


def _on_self(made: Event, unit: Unit, bound: str) -> str:
    """How a method calls an attribute that another one of its class has bound."""
    head, _, rest = bound.partition(".")
    owner, own = unit.method_class(), unit.self_name()
    mine = head == made.unit.self_name() and owner is not None and owner is made.unit.method_class()
    return f"{own}.{rest}" if mine and own else ""


def _by_name(file: SourceFile, made: Event, unit: Unit, bound: str) -> str:
    """A name that a function is given by all its callers, or that the file's own level binds."""
    if bound in unit.parameters and bound not in unit.bindings:
        given = [node for node, _ in file.arguments(unit, bound)]
        known = given and len(given) == len(file.callers(unit)) and all(is_name(node, bound) for node in given)
    else:
        known = unit.home(bound) is made.unit and made.unit.is_module
    return bound if known else ""


def _is_bound_once(file: SourceFile, bound: str) -> bool:
    """Whether a scaler's name or attribute is bound where it is made, and nowhere else in the file."""
    kind, last = ast.Attribute if "." in bound else ast.Name, bound.rpartition(".")[2]
    stores = [n for n in walk(file.tree) if isinstance(n, kind) and isinstance(n.ctx, (ast.Store, ast.Del))]
    return [terminal(n) for n in stores].count(last) == 1
