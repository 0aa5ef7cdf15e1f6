"""What a module takes on the host on purpose: lengths, which `forward` reads as numbers and computes nothing with."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import SourceFile
from torchvet.source import model

_LENGTHS = re.compile(r"(^|_)(len|lens|lengths?|seqlens?|num_frames|n_frames)(_|$|\d)")
_DEEPEST = 3
_NUMBERS = frozenset(("tolist", "item", "numpy", "size", "dim", "numel", "element_size", "is_floating_point"))
"""Methods that give numbers, or what is no tensor."""
_SINGLE = frozenset(("max", "min", "sum", "amax", "amin", "prod", "all", "any", "argmax", "argmin"))
"""Without arguments these give a tensor without dimensions, which goes with every device."""
_CARRYING = model.name_set(
    "cpu long int float clamp clamp_min clamp_max clone detach contiguous sort argsort view reshape squeeze flatten "
    "add sub div floor mul"
)
"""Methods whose result lives where their tensor does."""
_READING = model.name_set(
    "len int float bool max min sum list tuple range zip enumerate print sorted isinstance str any all reversed repr"
)
"""Functions of Python's own; of a tensor's rows they make numbers or tensors without dimensions."""
_GOING_ON = (ast.Tuple, ast.List, ast.IfExp, ast.BoolOp, ast.Slice, ast.keyword)
_PACKING = "pack_padded_sequence"


def taken_on_host(file: SourceFile, event: model.Event, argument: ast.expr) -> bool:
    """Whether what a module's call passes may stay on the host. Where `forward` is in the file it decides; where it is
    not, a further argument that by its name or by its making holds lengths is not known to be a fault."""
    call = event.call
    position = next((n for n, one in enumerate(call.args) if one is argument), 0)
    known = file.roles.class_of(call.func, event.unit)
    forward = known.method("forward") if known is not None else None
    if forward is not None:
        name = _parameter(forward, position)
        return bool(name) and _only_read(file, forward, name, 0)
    return known is None and position > 0 and _of_lengths(argument, event)


def _of_lengths(argument: ast.expr, event: model.Event) -> bool:
    if _LENGTHS.search(model.terminal(argument).lower()):
        return True
    values = event.unit.file.roles.values(argument, event.unit)
    return bool(values) and all(any(model.is_call(n, "len") for n in model.walk(value)) for value, _ in values)


def _parameter(unit: model.Unit, position: int) -> str:
    """The name that a method, or a function, gives to a positional argument; empty where it has none for it."""
    if isinstance(unit.node, ast.Module):
        return ""
    own = [p.arg for p in (*unit.node.args.posonlyargs, *unit.node.args.args)]
    if unit.owner is not None and "staticmethod" not in unit.decorators:
        own = own[1:]
    return own[position] if position < len(own) else ""


def _only_read(file: SourceFile, unit: model.Unit, name: str, depth: int) -> bool:
    """Whether a parameter, and what is taken from it without leaving the host, is used for its numbers alone."""
    nodes = model.walk(unit.node)
    reading = _Reading(file, unit, name, depth)
    followed = 0
    while len(reading.names) > followed:  # until no name is added by what they are bound to
        followed = len(reading.names)
        if not all(reading.harmless(n) for n in nodes if isinstance(n, ast.Name) and n.id in reading.names):
            return False
    return True


class _Reading:
    """Judges uses of what is on the host within one function. `names` are the names that hold it."""

    def __init__(self, file: SourceFile, unit: model.Unit, name: str, depth: int) -> None:
        self._file = file
        self._unit = unit
        self._parents = model.parents_in(unit.node)
        self.names = {name}
        self._depth = depth

    def harmless(self, node: ast.AST) -> bool:
        """Whether nothing is computed of it together with what may be elsewhere."""
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            changed = self._parents.get(id(node))
            return not isinstance(changed, ast.AugAssign) or self._own(changed.value)
        while True:
            found = self._outward(node)
            if isinstance(found, bool):
                return found
            node = found

    def _outward(self, node: ast.AST) -> ast.AST | bool:
        """The next larger expression that is on the host as well; else whether the use is harmless."""
        parent = self._parents.get(id(node))
        if isinstance(parent, ast.Attribute):
            return self._asked_for(parent)
        if isinstance(parent, ast.Call):
            judged = self._given_to(parent, node)
            return parent if judged is None else judged
        if isinstance(parent, ast.Subscript):
            return parent if parent.value is node else True  # an index may be on the host
        if isinstance(parent, (ast.BinOp, ast.Compare, ast.UnaryOp)):
            return parent if all(self._own(n) for n in ast.iter_child_nodes(parent) if n is not node) else False
        return parent if isinstance(parent, _GOING_ON) else self._ends_in(parent, node)

    def _asked_for(self, attribute: ast.Attribute) -> ast.AST | bool:
        """What an attribute, or a method's call, makes of a tensor on the host."""
        called, name = self._parents.get(id(attribute)), attribute.attr
        if not isinstance(called, ast.Call) or called.func is not attribute:
            return name in ("shape", "device", "dtype", "ndim")
        if name in _NUMBERS or (name in _SINGLE and not model.given(called)):
            return True
        return called if name in _CARRYING and all(self._own(a) for a in called.args) else False

    def _own(self, node: ast.AST) -> bool:
        """Whether the other side of an operation is a number, or of the same origin."""
        if not isinstance(node, ast.expr):
            return True
        return model.names_in(node) <= self.names

    def _ends_in(self, parent: ast.AST | None, node: ast.AST) -> bool:
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            self.names |= model.target_names(parent)
            return all(isinstance(t, (ast.Name, ast.Tuple, ast.List)) for t in model.targets_of(parent))
        if isinstance(parent, (ast.For, ast.comprehension)):
            return parent.iter is node  # rows of lengths have no dimensions
        return isinstance(parent, (ast.If, ast.While, ast.Assert, ast.Return, ast.Expr, ast.FormattedValue))

    def _given_to(self, call: ast.Call, node: ast.AST) -> bool | None:
        """Whether it may be an argument of a call; None where the call's result is judged in its place."""
        called, dotted = model.terminal(call), self._file.dotted(call.func)
        if called == _PACKING:
            return model.argument(call, "lengths", 1) is (node.value if isinstance(node, ast.keyword) else node)
        if isinstance(call.func, ast.Name) and called in _READING:
            return True
        if dotted.startswith("torch.") and call.args[:1] == [node] and dotted[6:] in (*_CARRYING, "as_tensor"):
            return None
        return self._read_below(call, node)

    def _read_below(self, call: ast.Call, node: ast.AST) -> bool:
        """Whether a method, a layer or a function of this file that it is handed on to does no more than read it."""
        event = self._unit.call_of(call)
        if event is None or self._depth >= _DEEPEST:
            return False
        below = self._file.callee(event)
        if below is None:
            known = self._file.roles.class_of(call.func, self._unit)
            below = known.method("forward") if known is not None else None
        if below is None or below is self._unit:
            return False
        if isinstance(node, ast.keyword):
            name = node.arg if node.arg in below.parameters else ""
        else:
            name = _parameter(below, next((n for n, a in enumerate(call.args) if a is node), len(call.args)))
        return bool(name) and _only_read(self._file, below, str(name), self._depth + 1)


def targets_may_stay(file: SourceFile, event: model.Event) -> bool:
    """Whether a loss is CTC's: cuDNN wants its targets on the host, and where cuDNN is not used torch moves them."""
    function = event.call.func
    made = [v.func for v, _ in file.roles.values(function, event.unit) if isinstance(v, ast.Call)]
    return any(file.dotted(one).rpartition(".")[2] in ("ctc_loss", "CTCLoss") for one in (function, *made))
