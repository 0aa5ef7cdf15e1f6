"""What the function that failed did to a tensor before: a move that it threw away, a device that it wrote out."""

from __future__ import annotations

import ast
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from torchvet.probes.crash import expressions, positions
from torchvet.probes.crash.raised import Level, of_program
from torchvet.recording.records.base import Place
from torchvet.recording.records.device import Written
from torchvet.source.running import reached

CONVERSIONS = frozenset(["double", "half", "float", "long", "int", "bool", "bfloat16", "short", "char", "byte", "type"])
MOVES = frozenset(["to", "cuda", "cpu", *CONVERSIONS])
"""Methods of a tensor that give another one, moved or converted, and leave the tensor as it is."""
BETWEEN_DEVICES = frozenset(["to", "cuda", "cpu"])
_AT_MOST = 256
# Without "cpu": that a tensor is made on the host needs no text, so its text proves nothing.
_ELSEWHERE = ("cuda", "mps", "xpu")


_moved: dict[int, tuple[weakref.ref[torch.Tensor], str, Place]] = {}
"""Tensors whose move was seen to be thrown away, by identity: in which function that was does not matter then."""


def remember(tensor: torch.Tensor, text: str, place: Place) -> None:
    """A statement has moved this tensor and thrown the result away."""
    if len(_moved) >= _AT_MOST:
        _moved.clear()
    _moved[id(tensor)] = weakref.ref(tensor), text, place


def forget() -> None:
    """Forget what was remembered."""
    _moved.clear()


def thrown_away(tensor: torch.Tensor, levels: list[Level], moves: frozenset[str] = MOVES) -> tuple[str, Place] | None:
    """A move or conversion of this very tensor that ran as a statement of its own: its text and line."""
    # The identity of a tensor that is gone may be this one's now: the weak reference tells.
    known = _moved.get(id(tensor))
    if known is not None and known[0]() is tensor and known[1].partition("(")[0].rpartition(".")[2] in moves:
        return known[1:]
    # Where no sampled step saw the move: by the text of the function, which only shows what must have run.
    for level in of_program(levels):
        for statement in _ran_before(level):
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in moves:
                subject = expressions.value_of(call.func.value, level.names)
                # The name may have been bound anew since; then it stands for another tensor.
                if subject is tensor and not _is_there(call, tensor, level):
                    return ast.unparse(call), Place(level.place.path, statement.lineno, level.place.function)
    return None


def _is_there(call: ast.Call, tensor: torch.Tensor, level: Level) -> bool:
    """Whether the call would have left the tensor where it is: then nothing was lost."""
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg in ("device", "dtype")), None)
    if call.func.attr == "cpu":  # type: ignore[attr-defined]
        return tensor.device.type == "cpu"
    wanted = expressions.value_of(given, level.names) if given is not None else expressions.MISSING
    return str(wanted) in (str(tensor.device), tensor.device.type, str(tensor.dtype))


def written_out(tensor: torch.Tensor, text: str, levels: list[Level]) -> Written | None:
    """The device that the text names where this tensor was made or moved, and the variable that holds another.

    None where no device is written there, or no variable for it is in sight: then nothing says which was meant.
    """
    for level in of_program(levels):
        # An operand without a name was made in the failing line itself.
        sources = [(level.expression(), level.line)] if text and not text.isidentifier() else []
        bound = [s for s in _ran_before(level) if isinstance(s, ast.Assign) and _binds(s, tensor, level)]
        # The last binding is the one that counts.
        sources += [(s.value, s.lineno) for s in bound[-1:]]
        for node, line in sources:
            named = next(device_texts(node), None) if node is not None else None
            if named is not None:
                chosen = chosen_elsewhere(str(tensor.device), level)
                place = Place(level.place.path, line, level.place.function)
                return Written(text=named, place=place, variable=chosen[0], device=chosen[1]) if chosen else None
    return None


def device_texts(node: ast.AST) -> Iterator[str]:
    """What names a device in an expression: `.cuda()`, `"cuda:1"`."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "cuda":
            # `.cuda(rank)` is chosen by a variable, and written out nowhere.
            if all(isinstance(a, ast.Constant) for a in one.args) and not one.keywords:
                yield f".cuda({', '.join(map(ast.unparse, one.args))})"
        elif isinstance(one, ast.Constant) and _names_device(one.value, _ELSEWHERE):
            yield repr(one.value)


def _names_device(value: Any, kinds: tuple[str, ...]) -> bool:
    return isinstance(value, str) and value.partition(":")[0] in kinds


def chosen_elsewhere(device: str, level: Level) -> tuple[str, str] | None:
    """A variable, or an attribute of `self`, that holds a device which is not this one: its name and its device."""
    owner = level.names.get("self")
    attributes = getattr(owner, "__dict__", {})
    # device, dev, DEVICE, self.device: what people call it. A string "cpu" of any other name may mean something
    # else.
    named = [(n, v) for n, v in level.names.items() if "dev" in n.lower()]
    named += [(f"self.{n}", v) for n, v in attributes.items() if "dev" in n.lower()]
    for name, value in named:
        if isinstance(value, torch.device) or _names_device(value, ("cpu", *_ELSEWHERE)):
            held = torch.device(value)
            if held.type != torch.device(device).type or held.index not in (None, torch.device(device).index):
                return name, str(held)
    return None


def _binds(statement: ast.Assign, tensor: torch.Tensor, level: Level) -> bool:
    return any(expressions.value_of(target, level.names) is tensor for target in statement.targets)


def _ran_before(level: Level) -> list[ast.stmt]:
    """Statements of a frame's function that must have run before the line at which it stands, in order."""
    tree = positions.tree(level.frame.f_code.co_filename)
    if tree is None:
        return []
    body = _function(tree, level.frame.f_code.co_firstlineno, level.function) or tree
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = list(ast.iter_child_nodes(body))
    while waiting:
        node = waiting.pop()
        # A function within is only defined here; its statements have not run by that.
        if isinstance(node, inner):
            continue
        if isinstance(node, (ast.Expr, ast.Assign)) and (node.end_lineno or node.lineno) < level.line:
            found.append(node)
        waiting.extend(ast.iter_child_nodes(node))
    return sorted((s for s in found if reached(tree, [level.line], s.lineno)), key=lambda s: s.lineno)


def _function(tree: ast.Module, first: int, name: str) -> ast.AST | None:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != name:
            continue
        # `co_firstlineno` is the first decorator's line.
        if first in (node.lineno, *(d.lineno for d in node.decorator_list)):
            return node
    return None
