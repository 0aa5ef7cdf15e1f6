"""Edits for calls that set the global random state back while training goes on."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edits, SourceFile
from torchvet.source.model import Event, edits, is_call, terminal
from torchvet.source.walking import Loop

_SEEDS_TORCH = ("torch.manual_seed", "torch.random.manual_seed")
_HANDED = "generator"
_GOES_ON = re.compile(r"\b(yield|await)\b")
"""In a function that other code goes on within."""


def own_generator(file: SourceFile, calls: list[Event]) -> Edits:
    """`torch.manual_seed(0)` seeds the global generator and hands it over: a new one is seeded in its place."""
    handed = [
        e.call for e in calls if any(k.value is e.node for k in getattr(e.parent, "keywords", ()) if k.arg == _HANDED)
    ]
    given = [one.func for one in handed]
    if len(given) != 1 or file.dotted(given[0]) not in _SEEDS_TORCH:
        return ()
    return [edits.replace(file, given[0], "torch.Generator().manual_seed")]


def of_epoch(file: SourceFile, calls: list[Event]) -> Edits:
    """In a loop over epochs all calls that seed get a seed of each epoch's own."""
    at = calls[0] if len(calls) == 1 and _seeds(calls[0]) else None
    name = _counter(at.loop) if at is not None else ""
    if at is None or not name:
        return ()
    given = [event.call.args[0] for event in at.unit.events if event.loop is at.loop and _seeds(event)]
    return (
        [edits.replace(file, one, f"{_term(file, one)} + {name}") for one in given] if _are_plain(given, name) else ()
    )


def _are_plain(given: list[ast.expr], name: str) -> bool:
    """Whether none of these goes by the loop's turn already."""
    known = {node.id for one in given for node in ast.walk(one) if isinstance(node, ast.Name)}
    return name not in known and all(edits.on_one_line(one) for one in given)


def _term(file: SourceFile, node: ast.expr) -> str:
    return file.segment(node) if isinstance(node, ast.Constant) else edits.operand(file, node)


def forked(file: SourceFile, calls: list[Event]) -> Edits:
    """A function that seeds, and has ended when training goes on, leaves torch's state as it was."""
    at = next((event for event in calls if file.dotted(event.call.func) in _SEEDS_TORCH), None)
    if at is None or not isinstance(at.unit.node, ast.FunctionDef) or _GOES_ON.search(file.text_of(at.unit)):
        return ()
    # What is there to seed would do nothing, and what reads a sample is called within a step.
    if "seed" in at.unit.name or at.unit.name == "__getitem__":
        return ()
    return edits.before(file, at.unit.node, "@torch.random.fork_rng()")


def _counter(loop: Loop | None) -> str:
    """What counts a loop's turns, if it is the loop over epochs: the outermost one, named so or with another in it."""
    node = loop.node if loop is not None and loop.parent is None else None
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return ""
    over = node.iter.args[0] if is_call(node.iter, "tqdm") and node.iter.args else node.iter
    epochs = "epoch" in node.target.id or any(isinstance(n, ast.For) for one in node.body for n in ast.walk(one))
    return node.target.id if epochs and is_call(over, "range", "trange") else ""


def _seeds(event: Event) -> bool:
    """Whether it is a call that is given a seed, and nothing else, and stands for itself."""
    call = event.node
    if not isinstance(call, ast.Call) or not isinstance(event.statement, ast.Expr) or event.statement.value is not call:
        return False
    return len(call.args) == 1 and not call.keywords and "seed" in terminal(call)
