"""Views of parameters: which leaf an expression is a view of, and what shows that it is one."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import SourceFile
from torchvet.rules.operations._values import binding_of
from torchvet.source.model import Event, is_call, is_literal, keyword, name_set, receiver, targets_of

_VIEWS = name_set("""
    view view_as t transpose permute squeeze unsqueeze narrow select diagonal expand expand_as swapaxes swapdims unfold
    movedim unflatten
""")
"""Methods whose result is a view: an in-place change of each raised, on a parameter."""
_IN_ORDER = name_set("reshape flatten ravel")
"""Those that give a view of what lies in order, as a parameter does."""
_FROZEN = ("requires_grad_(False", "requires_grad = False", "requires_grad=False")
_LAYERS = re.compile(r"torch\.nn\.(Linear|Bilinear|Conv\w+|Embedding|EmbeddingBag|LayerNorm|GroupNorm|BatchNorm\w+)")
_FARTHEST = 8


def viewed(node: ast.expr | None, event: Event) -> tuple[ast.Name | ast.Attribute, Event] | None:
    """What an expression is a view of, with the event at which that is so; None for what is no view."""
    steps = 0
    for _ in range(_FARTHEST):
        inner = _inner(node) if node is not None else None
        if inner is not None:
            node, steps = inner, steps + 1
            continue
        bound = binding_of(node, event)
        # What another turn of the loop has bound may be a view of another tensor.
        if bound is None or not event.inside(bound[1].loop) or _inner(bound[0]) is None:
            break
        node, event = bound
    return (node, event) if steps and isinstance(node, (ast.Name, ast.Attribute)) else None


def _inner(node: ast.expr) -> ast.expr | None:
    """What a view is taken of, one step inward."""
    if isinstance(node, ast.Subscript):
        return node.value if _is_basic(node.slice) else None
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        return node.value
    on = receiver(node) if isinstance(node, ast.Call) else None
    if is_call(node, *_VIEWS):
        return on
    return on if is_call(node, *_IN_ORDER) and isinstance(on, (ast.Name, ast.Attribute)) else None


def _is_basic(index: ast.expr) -> bool:
    """Whether an index gives a view: numbers and slices, neither lists nor tensors."""
    listed = index.elts if isinstance(index, ast.Tuple) else [index]
    plain = (ast.Slice, ast.Constant, ast.UnaryOp)
    return all(isinstance(one, plain) for one in listed)


def is_of_kept_layer(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether it is the `weight` or `bias` of a torch layer that the file makes: `self.head.bias`."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("weight", "bias") or file.mentions(*_FROZEN):
        return False
    made = [v for v, _ in file.roles.values(node.value, event.unit)]
    return bool(made) and all(isinstance(v, ast.Call) and _LAYERS.fullmatch(file.dotted(v.func)) for v in made)


def is_registered_again(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether the unit assigns a parameter to the very attribute: `layer.bias = nn.Parameter(changed)`."""
    if not isinstance(node, ast.Attribute) or file.mentions(*_FROZEN):
        return False
    name = file.segment(node)
    others = [v for v, _ in file.roles.values(node, event.unit)]
    if any(not (isinstance(v, ast.Call) and file.dotted(v.func) == "torch.nn.Parameter") for v in others):
        return False  # it was something else before
    for made in event.unit.calls.get("Parameter", ()):
        same = any(isinstance(t, ast.Attribute) and file.segment(t) == name for t in targets_of(made.statement))
        trained = not is_literal(keyword(made.call, "requires_grad"), False)
        if same and trained and file.dotted(made.call.func) == "torch.nn.Parameter":
            return True
    return False


def is_run_here(event: Event) -> bool:
    """Whether the file shows who runs a function: a caller elsewhere may do so without gradients."""
    unit = event.unit
    return unit.is_module or unit.name in ("__init__", "forward") or bool(unit.file.callers(unit))
