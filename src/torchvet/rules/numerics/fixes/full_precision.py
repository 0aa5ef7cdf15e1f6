"""Edits that make a fresh tensor float32 where it was made half: an accumulator's start, a range of positions."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Iterator, SourceFile
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, Unit, edits, receiver, targets_of, terminal, value_for, walk

_FACTORIES = frozenset(("zeros", "ones", "empty", "full", "tensor", "as_tensor", "arange", "new_zeros"))
_LIKE = frozenset(("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros"))
"""Factories that give what they are told no dtype for that of another tensor."""
_MOVES = frozenset(("cuda", "cpu", "pin_memory", "clone", "detach", "requires_grad_", "to", "unsqueeze", "view"))
_LAYOUT = frozenset(("unsqueeze", "view", "reshape", "expand", "cuda", "repeat", "flatten", "squeeze"))
_NUMBERS = frozenset(("item", "tolist", "float", "double", "int", "bool", "isnan", "isfinite", "numel", "size", "dim"))
_ALONG = frozenset(("mean", "sum", "sqrt", "abs", "max", "min", "cpu", "detach", "clone", "div", "clamp", "squeeze",
                    "numpy", "norm", "square", "all", "any"))  # fmt: skip
_SHOWN = frozenset(("print", "float", "int", "str", "repr", "format", "round", "bool", "info", "debug", "add_scalar"))


def made_float32(file: SourceFile, value: ast.expr, unit: Unit) -> list[Edit]:
    """A call that makes a half tensor, with float32 in the place of half; nothing where it cannot be seen how."""
    if not isinstance(value, ast.Call) or value.lineno != value.end_lineno:
        return []
    on, name = receiver(value), terminal(value)
    if name in ("half", "bfloat16") and on is not None and not value.args:
        return [edits.replace(file, value, f"{file.segment(on)}.float()")]
    converted = half_precision.converts(file, value, unit)
    told = [k.value for k in value.keywords if k.arg == "dtype"]
    told = told or [
        a for a in value.args if converted is not None and (half_precision.named(file, a, unit) or _asks(a))
    ]
    if len(told) == 1 and (converted is not None or name in _FACTORIES | _LIKE):
        text = _float32(file, told[0], value)
        return [edits.replace(file, told[0], text)] if text else []
    if converted is None and name in _LIKE and not told:
        return _told(file, value)
    if on is not None and name in _MOVES and file.dotted(value.func).partition(".")[0] != "torch":
        return made_float32(file, on, unit)
    return []


def _asks(node: ast.expr) -> bool:
    """`dtype`, `x.dtype`: another's, which is known when it runs."""
    return terminal(node) == "dtype" and not isinstance(node, ast.Call)


def _float32(file: SourceFile, dtype: ast.expr, call: ast.Call) -> str:
    """`torch.float32` as the file writes torch's name."""
    dotted = file.dotted(dtype)
    if isinstance(dtype, ast.Attribute) and dotted in half_precision.DTYPES:
        return f"{file.segment(dtype.value)}.float32"
    made = call.func
    if isinstance(made, ast.Attribute) and file.dotted(made) == f"torch.{made.attr}":
        return f"{file.segment(made.value)}.float32"
    return "torch.float32" if file.imports.names.get("torch") == "torch" else ""


def _told(file: SourceFile, call: ast.Call) -> list[Edit]:
    """`dtype=torch.float32` added to `torch.zeros_like(x)`."""
    text, given = _float32(file, call.func, call), [*call.args, *(k.value for k in call.keywords)]
    if not text or not given or any(isinstance(one, ast.Starred) for one in given):
        return []
    line, column = max(edits.end_of(file, one) for one in given)
    stop = edits.end_of(file, call)
    if file.lines[line - 1][column - 1 : stop[1] - 1].strip() != ")":
        return []
    return [Edit(path=file.path, start=(line, column), end=(line, column), text=f", dtype={text}")]


def started_float32(file: SourceFile, target: ast.expr, event: Event) -> list[Edit]:
    """Every start of an accumulator in float32; nothing where one of them cannot be."""
    made: list[Edit] = []
    starts = list(_starts(target, event))
    for value, unit in starts:
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        edited = made_float32(file, value, unit) if value is not None else []
        if not edited:
            return []
        made += edited
    return made


def _starts(target: ast.expr, event: Event) -> Iterator[tuple[ast.expr | None, Unit]]:
    """What an accumulator is bound to but for additions to it."""
    if isinstance(target, ast.Attribute):
        owner = event.unit.method_class()
        if owner is None or terminal(target.value) != event.unit.self_name():
            return
        for binding, value in owner.attributes.get(target.attr, ()):
            if not isinstance(binding.node, ast.AugAssign):
                yield value, binding.unit
        for value, binding in half_precision.buffers(owner, target.attr):
            yield value, binding.unit
    elif isinstance(target, ast.Name):
        for binding in event.unit.bindings.get(target.id, ()):
            if not isinstance(binding.node, (ast.AugAssign, ast.Delete)):
                one = next(t for t in targets_of(binding.node) if isinstance(t, ast.Name) and t.id == target.id)
                yield value_for(binding.node, one), event.unit


def only_numbers_come_out(file: SourceFile, target: ast.expr, event: Event) -> bool:
    """Whether all that is read of an accumulator ends as a number that is shown or kept, so that no operator meets
    another dtype."""
    if isinstance(target, ast.Attribute):
        owner = event.unit.method_class()
        units = file.units_with(target.attr)
        if owner is None or any(unit.method_class() is not owner for unit in units):
            return False
    else:
        units = file.units_with(terminal(target))
    wanted = ast.unparse(target)
    for unit in units:
        above = {id(child): node for node in walk(unit.node) for child in ast.iter_child_nodes(node)}
        for node in walk(unit.node):
            read = isinstance(node, type(target)) and isinstance(getattr(node, "ctx", None), ast.Load)
            if read and ast.unparse(node) == wanted and not _is_a_number(node, above):
                return False
    return True


def _is_a_number(node: ast.AST, above: dict[int, ast.AST]) -> bool:
    """Whether what an expression is part of takes a number out of it, shows it, or changes it in place."""
    for _ in range(12):
        parent = above.get(id(node))
        if isinstance(parent, (ast.FormattedValue, ast.Compare, ast.AugAssign)):
            return not isinstance(parent, ast.AugAssign) or parent.target is node
        if isinstance(parent, ast.Attribute):
            call = above.get(id(parent))
            if not isinstance(call, ast.Call) or call.func is not parent:
                return parent.attr in ("shape", "device")
            if parent.attr in _NUMBERS:
                return True
            if parent.attr not in _ALONG and not (parent.attr.endswith("_") and not parent.attr.endswith("__")):
                return False
            if isinstance(above.get(id(call)), ast.Expr):
                return True
            node = call
        elif isinstance(parent, ast.Call):
            return terminal(parent) in _SHOWN and parent.func is not node
        elif isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
            node = parent
        else:
            return False
    return False


def only_widened(call: ast.Call, event: Event) -> bool:
    """Whether a half tensor is given to nothing but `.float()`, `.double()` or a whole number's dtype: directly, or by
    the one name that it is bound to."""
    unit = event.unit
    above = {id(child): node for node in walk(unit.node) for child in ast.iter_child_nodes(node)}
    reached = _as_laid_out(call, above)
    parent = above.get(id(reached))
    if _widens(parent, above):
        return True
    bound = parent.targets if isinstance(parent, ast.Assign) else []
    if len(bound) != 1 or not isinstance(bound[0], ast.Name) or len(unit.bindings.get(bound[0].id, ())) != 1:
        return False
    name = bound[0].id
    if not unit.is_module and unit.home(name) is not unit:
        return False
    reads = [n for u in unit.file.units_with(name) for n in walk(u.node) if isinstance(n, ast.Name) and n.id == name]
    loads = {id(n): n for n in reads if isinstance(n.ctx, ast.Load)}.values()
    return bool(loads) and all(_widens(above.get(id(_as_laid_out(n, above))), above) for n in loads)


def _as_laid_out(node: ast.AST, above: dict[int, ast.AST]) -> ast.AST:
    """What an expression is part of that only lays its numbers out otherwise: `x[:, None]`, `x.unsqueeze(0)`."""
    while True:
        parent = above.get(id(node))
        call = above.get(id(parent))
        if isinstance(parent, ast.Subscript) and parent.value is node:
            node = parent
        elif isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and parent.attr in _LAYOUT:
            node = call
        else:
            return node


def _widens(parent: ast.AST | None, above: dict[int, ast.AST]) -> bool:
    call = above.get(id(parent))
    called = isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent
    return called and parent.attr in ("float", "double", "long", "int")  # type: ignore[union-attr]
