"""Edits that take the activation away that ends what a line gives: a Sequential's last module, or a call of its own."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from torchvet.rules.kit import Edit, Edits, Finding, Location, SourceFile, about, events_at
from torchvet.source.model import Event, edits, operand, terminal
from torchvet.source.model.origins import modules_made

_NAMES = (
    *("ReLU", "ReLU6", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "LogSigmoid", "Softplus"),
    *("Hardsigmoid", "Hardswish", "Hardtanh", "GELU", "SiLU", "Mish", "ELU", "SELU"),
)
_ACTIVATIONS = {f"torch.nn.{name}" for name in _NAMES}
_FUNCTIONS = {name.lower() for name in _NAMES} | {"log_softmax"}
_SHAPING = {"squeeze", "unsqueeze", "view", "reshape", "flatten", "permute", "transpose", "float"}
"""What may follow the activation on its line: it gives the same numbers."""
_PARTS = 3
"""A module's path in a model that has the Sequential itself: class, attribute, index."""


def without_last(file: SourceFile, made: ast.Call, modules: Collection[str]) -> list[Edit]:
    """`nn.Sequential(…)` without its last module, where that is one of these."""
    if file.dotted(made.func) != "torch.nn.Sequential" or len(made.args) < 2 or made.keywords:
        return []
    before, last = made.args[-2:]
    if not isinstance(last, ast.Call) or file.dotted(last.func) not in modules:
        return []
    start, end = edits.end_of(file, before), edits.end_of(file, last)
    if edits.text_between(file, start, edits.start_of(file, last)).strip(" \t\r\n,"):
        return []  # a comment would go with it
    return [Edit(path=file.path, start=start, end=end, text="")]


def without_activation(file: SourceFile, finding: Finding) -> Edits:
    """What the finding's line gives, without the activation that the finding names and that ends it: the last module of
    the Sequential that is called, or a call on the line itself. Nothing where it is a part of a part: others may be
    made by the same line."""
    module = about(finding).operands[0] if about(finding).operands else None
    events = [event for event in events_at(file, finding) if isinstance(event.node, ast.Call)]
    if module is None:
        return ()
    if not module.rpartition(".")[2].isdigit():
        return _without_call(file, events, module)
    found = [without_last(file, one, _ACTIVATIONS) for one in _ended(events, module)]
    return found[0] if len(found) == 1 else ()


def _without_call(file: SourceFile, events: list[Event], module: str) -> Edits:
    """The last call of a line that is an activation, as what it is applied to; or the Sequential that is called last,
    without its last module, where the activation's path is not known: it works in place."""
    last = next((e for e in reversed(events) if terminal(e.node) not in _SHAPING), None)
    made = modules_made(last) if last is not None else []
    if last is None or len(made) > 1:
        return ()
    if made and file.dotted(made[0].func) not in _ACTIVATIONS:
        return without_last(file, made[0], _ACTIVATIONS) if not module else ()
    given = _activated(file, last.call, module=bool(made))
    return [edits.replace(file, last.call, file.segment(given))] if given is not None else ()


def _activated(file: SourceFile, call: ast.Call, module: bool) -> ast.expr | None:
    """What an activation is applied to that is called on one line, as a `module` or by its name."""
    if not edits.on_one_line(call):
        return None
    if module:
        return call.args[0] if len(call.args) == 1 and not call.keywords else None
    # `x.relu()`; what is given something is a function of the program's own.
    known = file.dotted(call.func).startswith("torch.") or not call.args
    return operand(file, call) if terminal(call) in _FUNCTIONS and known else None


def activation_of(file: SourceFile | None, line: int, module: str) -> Location | None:
    """Where the activation is made that ends the Sequential which is called on a line; None where that is unsure. The
    path of an activation that works in place is not known (empty): the outermost call of the line is meant."""
    if file is None:
        return None
    calls = [event for event in file.events_on(line) if isinstance(event.node, ast.Call)]
    made = _ended(calls, module) if module else [one for event in calls[-1:] for one in modules_made(event)]
    last = made[0].args[-1] if len(made) == 1 and made[0].args else None
    known = isinstance(last, ast.Call) and file.dotted(last.func) in _ACTIVATIONS
    return Location(path=file.path, line=last.lineno) if known and last is not None else None


def _ended(events: Iterable[Event], module: str) -> list[ast.Call]:
    """The Sequentials that are called, and that end with the module of this path."""
    parts = module.split(".")
    if not parts[1:] or len(parts) > _PARTS or not parts[-1].isdigit():
        return []
    called = [made for event in events if isinstance(event.node, ast.Call) and (made := modules_made(event))]
    return [
        one[0] for one in called if len(one) == 1 and len(one[0].args) == int(parts[-1]) + 1 and not _spread(one[0])
    ]


def _spread(call: ast.Call) -> bool:
    return any(isinstance(one, ast.Starred) for one in call.args)
