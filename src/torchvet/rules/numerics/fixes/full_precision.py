"""Edits that make a fresh tensor float32 where it was made half: an accumulator's start, a range of positions."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Iterator, Sequence, SourceFile, all_or_none
from torchvet.rules.shared import half_precision
from torchvet.source import model

_FACTORIES = model.name_set("zeros ones empty full tensor as_tensor arange new_zeros")
_LIKE = model.name_set("zeros_like ones_like full_like empty_like new_zeros")
"""Factories that take another tensor's dtype unless they are given one."""
_MOVES = model.name_set("cuda cpu pin_memory clone detach requires_grad_ to unsqueeze view")
_LAYOUT = model.name_set("unsqueeze view reshape expand cuda repeat flatten squeeze")
_NUMBERS = model.name_set("item tolist float double int bool isnan isfinite numel size dim")
_ALONG = model.name_set("mean sum sqrt abs max min cpu detach clone div clamp squeeze numpy norm square all any")
_SHOWN = model.name_set("print float int str repr format round bool info debug add_scalar")
_WIDER = ("float", "double", "long", "int")
_FARTHEST = 12


def made_float32(file: SourceFile, value: ast.expr, unit: model.Unit) -> list[Edit]:
    """A call that makes a half tensor, with float32 in the place of half; nothing where it cannot be seen how."""
    if not isinstance(value, ast.Call) or not model.edits.on_one_line(value):
        return []
    on, name = model.receiver(value), model.terminal(value)
    if name in ("half", "bfloat16") and on is not None and not value.args:
        return [model.edits.replace(file, value, f"{file.segment(on)}.float()")]
    dtypes = _dtypes(file, value, unit)
    if len(dtypes) == 1:
        text = _float32(file, dtypes[0], value)
        return [model.edits.replace(file, dtypes[0], text)] if text else []
    if name in _LIKE and not dtypes:
        text = _float32(file, value.func, value)
        return model.edits.with_argument(file, value, f"dtype={text}") if text and model.given(value) else []
    moves = name in _MOVES and file.dotted(value.func).partition(".")[0] != "torch"
    return made_float32(file, on, unit) if on is not None and moves else []


def _dtypes(file: SourceFile, call: ast.Call, unit: model.Unit) -> list[ast.expr]:
    """The arguments that may be the dtype of what a factory makes, or a conversion gives."""
    converts = half_precision.converts(file, call, unit) is not None
    named = model.keyword(call, "dtype") if converts or model.terminal(call) in _FACTORIES | _LIKE else None
    if named is not None or not converts:
        return [named] if named is not None else []
    return [a for a in call.args if half_precision.named(file, a, unit) or _asks(a)]


def _asks(node: ast.expr) -> bool:
    """Whether an argument is the dtype of something else, which is only known when the program runs: `x.dtype`."""
    return model.terminal(node) == "dtype" and not isinstance(node, ast.Call)


def _float32(file: SourceFile, dtype: ast.expr, call: ast.Call) -> str:
    """`torch.float32` as the file writes torch's name."""
    if isinstance(dtype, ast.Attribute) and file.dotted(dtype) in half_precision.DTYPES:
        return f"{file.segment(dtype.value)}.float32"
    made = call.func
    if isinstance(made, ast.Attribute) and file.dotted(made) == f"torch.{made.attr}":
        return f"{file.segment(made.value)}.float32"
    return "torch.float32" if file.imports.names.get("torch") == "torch" else ""


def started_float32(file: SourceFile, target: ast.expr, event: model.Event) -> Sequence[Edit]:
    """Every start of an accumulator in float32; nothing where one of them cannot be."""
    starts = [s for s in _starts(target, event) if not model.is_literal(s[0], None)]
    return all_or_none(made_float32(file, value, unit) if value is not None else () for value, unit in starts)


def _starts(target: ast.expr, event: model.Event) -> Iterator[tuple[ast.expr | None, model.Unit]]:
    """What an accumulator is bound to but for additions to it."""
    if isinstance(target, ast.Name):
        for binding in event.unit.bindings.get(target.id, ()):
            if not isinstance(binding.node, (ast.AugAssign, ast.Delete)):
                yield model.value_bound(binding.node, target.id), event.unit
    owner = event.unit.method_class()
    own = isinstance(target, ast.Attribute) and model.terminal(target.value) == event.unit.self_name()
    if own and isinstance(target, ast.Attribute) and owner is not None:
        bound = owner.attributes.get(target.attr, ())
        yield from ((value, b.unit) for b, value in bound if not isinstance(b.node, ast.AugAssign))
        yield from ((value, b.unit) for value, b in half_precision.buffers(owner, target.attr))


def only_numbers_come_out(file: SourceFile, target: ast.expr, event: model.Event) -> bool:
    """Whether all that is read of an accumulator ends as a number that is shown or kept, so that no operator meets
    another dtype."""
    units = file.units_with(model.terminal(target))
    if isinstance(target, ast.Attribute):
        owner = event.unit.method_class()
        if owner is None or any(unit.method_class() is not owner for unit in units):
            return False
    # Compared as text: `self.total` is another node at each of its places.
    wanted = ast.unparse(target)
    for unit in units:
        above = model.parents_in(unit.node)
        for node in model.walk(unit.node):
            read = isinstance(node, type(target)) and isinstance(getattr(node, "ctx", None), ast.Load)
            if read and ast.unparse(node) == wanted and not _is_a_number(node, above):
                return False
    return True


def _is_a_number(node: ast.AST, above: dict[int, ast.AST]) -> bool:
    """Whether what an expression is part of takes a number out of it, shows it, or changes it in place."""
    for _ in range(_FARTHEST):
        parent = above.get(id(node))
        if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
            node = parent
        elif isinstance(parent, ast.Attribute):
            call = above.get(id(parent))
            if not isinstance(call, ast.Call) or call.func is not parent:
                return parent.attr in ("shape", "device")
            if parent.attr in _NUMBERS or not _goes_along(parent.attr):
                return parent.attr in _NUMBERS
            if isinstance(above.get(id(call)), ast.Expr):
                return True
            node = call
        elif isinstance(parent, ast.Call):
            return model.terminal(parent) in _SHOWN and parent.func is not node
        else:
            shown = isinstance(parent, (ast.FormattedValue, ast.Compare))
            return shown or (isinstance(parent, ast.AugAssign) and parent.target is node)
    return False


def _goes_along(method: str) -> bool:
    """Whether a method gives a tensor of the same dtype, as those do that change it in place."""
    return method in _ALONG or (method.endswith("_") and not method.endswith("__"))


def only_widened(call: ast.Call, event: model.Event) -> bool:
    """Whether a half tensor is given to nothing but `.float()`, `.double()` or a whole number's dtype: directly, or by
    the one name that it is bound to."""
    unit = event.unit
    above = model.parents_in(unit.node)
    if _widens(call, above):
        return True
    parent = above.get(id(_as_laid_out(call, above)))
    bound = parent.targets if isinstance(parent, ast.Assign) else []
    if len(bound) != 1 or not isinstance(bound[0], ast.Name) or len(unit.bindings.get(bound[0].id, ())) != 1:
        return False
    name = bound[0].id
    if not unit.is_module and unit.home(name) is not unit:
        return False
    nodes = (n for u in unit.file.units_with(name) for n in model.walk(u.node) if model.is_name(n, name))
    loads = {id(n): n for n in nodes if isinstance(n.ctx, ast.Load)}.values()
    return bool(loads) and all(_widens(n, above) for n in loads)


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


def _widens(node: ast.AST, above: dict[int, ast.AST]) -> bool:
    """Whether what an expression is laid out as is converted to a wider dtype at once."""
    parent = above.get(id(_as_laid_out(node, above)))
    call = above.get(id(parent))
    return model.is_call(call, *_WIDER) and call.func is parent
