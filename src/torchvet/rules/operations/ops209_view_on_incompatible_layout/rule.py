"""OPS209: `.view()` is asked for a shape that a transposed tensor's memory does not have."""

from __future__ import annotations

import ast
from itertools import combinations, pairwise

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, Severity, SourceFile
from torchvet.rules.operations._values import binding_of
from torchvet.source.model import Event, is_call, name_set, operand, receiver, terminal

_MOVING = name_set("transpose permute swapaxes swapdims t")
_FRESH = name_set("matmul bmm mm softmax contiguous clone cat stack conv2d linear view reshape")
_KEEPS_RANK = name_set("transpose softmax dropout contiguous to float half type_as clone masked_fill relu tanh")
"""`scaled_dot_product_attention` is not among them: its result may be laid out as if transposed already."""
_BY_SIZES = name_set("view reshape permute randn rand zeros ones empty")
_PERMUTING = ("transpose", "permute", ".T", ".t()", "rearrange", "einsum", "swap", "movedim")
_MAY_PERMUTE = ("transpose", "permute", "einsum", "swap", "movedim", "unbind", "chunk")
_DEEPEST = 4


class ViewOnIncompatibleLayout(Rule):
    """`.view()` is asked for a shape that a transposed tensor's memory does not have."""

    severity = "error"
    words = (".view(",)
    bad_raises = "view size is not compatible"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`.view(…)` right after a permutation that leaves nothing to merge in order."""
        if not file.mentions("transpose(", "permute(", "swapaxes(", ".t()"):
            return
        for event in file.calls("view"):
            moved = _permutation_call(receiver(event.call), event)
            if moved is None:
                continue
            base, at = receiver(moved[0]), moved[1]
            order, wanted = _order(moved[0], _rank(base, at)), _shape(event.call)
            if order is not None and wanted and _breaks(order, wanted) and not _permuted_before(base, at):
                fresh: Severity = "error" if _sizes(base, at) else "warning"
                yield self._finding(file, event, moved[0], fresh if _is_fresh(file, base, at) else "info")

    def _finding(self, file: SourceFile, event: Event, moved: ast.Call, grade: Severity) -> Finding:
        function = event.call.func
        line, end = function.end_lineno or 0, file.column(function.end_lineno or 0, function.end_col_offset or 0)
        change = Edit(path=file.path, start=(line, end - len("view")), end=(line, end), text="reshape")
        shape = file.segment(event.node).rpartition(".view")[2]
        raises = f".view{shape} raises after {terminal(moved)}(…)"
        unless = {
            "error": "",
            "warning": ", unless one of them has the size 1",
            "info": ", if the tensor lies in order before that",
        }[grade]
        message = f"{raises}: the dimensions that it merges are not neighbours in memory{unless}"
        cause = f"line {moved.lineno} permutes the dimensions without moving the data"
        advice = f"write .reshape{shape}, which copies, if this order of elements is meant"
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=grade, edits=[change], safe=True)


def _permutation_call(node: ast.expr | None, event: Event) -> tuple[ast.Call, Event] | None:
    """The `transpose` or `permute` whose result a node is, directly or by its one name, and where it stands."""
    bound = binding_of(node, event)
    if bound is not None and bound[1].loop is event.loop:
        node, event = bound
    return (node, event) if is_call(node, *_MOVING) and receiver(node) is not None else None


def _numbers(given: list[ast.expr]) -> list[int] | None:
    try:
        found = [ast.literal_eval(g) for g in _spread(given)]
    except (ValueError, TypeError):
        return None
    return found if all(isinstance(f, int) for f in found) else None


def _spread(given: list[ast.expr]) -> list[ast.expr]:
    """Sizes or dimensions, also where one tuple or list holds them."""
    return list(given[0].elts) if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)) else given


def _order(call: ast.Call, rank: int) -> list[int] | None:
    """Which old dimension each new one is. A rank of 0 is not known: the leading dimensions tell enough."""
    if terminal(call) == "t":
        return [1, 0]
    given = _numbers(call.args)
    if not given or call.keywords:
        return None
    if terminal(call) == "permute":
        return [g % len(given) for g in given]
    if len(given) != 2 or (min(given) < 0 and not rank):
        return None
    if not rank:
        # At least so many; more trailing dimensions change nothing where all of these groupings fail.
        return None if max(given) == 1 and min(given) == 0 else [*_swapped(max(given) + 1, given), -1]
    return _swapped(rank, given) if max(given) < rank else None


def _swapped(rank: int, given: list[int]) -> list[int]:
    order = list(range(rank))
    one, other = (g % rank for g in given)
    order[one], order[other] = order[other], order[one]
    return order


def _shape(call: ast.Call) -> list[ast.expr]:
    given = _spread(call.args)
    if len(given) == 1 and not isinstance(given[0], (ast.UnaryOp, ast.BinOp)):
        return []
    if call.keywords or any(isinstance(g, ast.Starred) for g in given):
        return []
    return given


def _breaks(order: list[int], wanted: list[ast.expr]) -> bool:
    """Whether no way to merge neighbouring dimensions into so many keeps each group in order."""
    known = order[-1] >= 0
    dimensions = order if known else order[:-1]
    groups = len(wanted)
    # A dimension of one can stand anywhere in memory, so that a view may exist.
    if dimensions == sorted(dimensions) or any(isinstance(w, ast.Constant) and w.value == 1 for w in wanted):
        return False
    if groups >= len(dimensions) or (not known and groups > 2):
        return False
    if not known and groups == 2 and dimensions[-1] != dimensions[-2] - 1:
        return False
    # A view exists if some split of the dimensions into groups leaves the order within each group untouched.
    splits = ((0, *cuts, len(dimensions)) for cuts in combinations(range(1, len(dimensions)), groups - 1))
    return not any(all(_is_ascending(dimensions[a:b]) for a, b in pairwise(split)) for split in splits)


def _is_ascending(group: list[int]) -> bool:
    return group == list(range(group[0], group[0] + len(group)))


def _rank(node: ast.expr | None, event: Event, depth: int = 0) -> int:
    """How many dimensions a tensor has, where a view or a factory says so; 0 for not known."""
    if depth > _DEEPEST:
        return 0
    bound = binding_of(node, event)
    if bound is not None:
        return _rank(*bound, depth + 1)
    if isinstance(node, ast.BinOp):
        return max(_rank(node.left, event, depth + 1), _rank(node.right, event, depth + 1))
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return 0
    of = operand(event.unit.file, node)
    if terminal(node) in ("matmul", "bmm", "baddbmm"):
        others = node.args[:2] if of in node.args else node.args[:1]
        return max(_rank(one, event, depth + 1) for one in (of, *others))
    if terminal(node) in _KEEPS_RANK:
        return _rank(of, event, depth + 1)
    given = _spread(node.args)
    return len(given) if terminal(node) in _BY_SIZES and len(given) > 1 else 0


def _sizes(node: ast.expr | None, event: Event, depth: int = 0) -> bool:
    """Whether all sizes of a tensor are written down and none is 1: a dimension of 1 lies in order anywhere."""
    bound = binding_of(node, event)
    if bound is not None:
        return depth < _DEEPEST and _sizes(*bound, depth + 1)
    given = _numbers(node.args) if isinstance(node, ast.Call) and not node.keywords else None
    return terminal(node) in _BY_SIZES - {"permute"} and bool(given) and all(size > 1 for size in given or ())


def _permuted_before(node: ast.expr | None, event: Event) -> bool:
    """Whether the tensor may have been transposed already, so that the two may cancel."""
    text = ast.unparse(node) if node is not None else ""
    bound = event.unit.bindings.get(node.id, ()) if isinstance(node, ast.Name) else ()
    values = [getattr(b.node, "value", None) for b in bound if b.index < event.index]
    texts = [ast.unparse(value) for value in values if value is not None]
    return any(w in text for w in _PERMUTING) or any(w in one for one in texts for w in _MAY_PERMUTE)


def _is_fresh(file: SourceFile, node: ast.expr | None, event: Event) -> bool:
    """Whether the tensor before the permutation surely lies in order in memory."""
    bound = binding_of(node, event)
    if bound is not None:
        return isinstance(bound[0], ast.Call) and _is_fresh(file, *bound)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    made = file.roles.of(node, event.unit) if isinstance(node, ast.Call) else ()
    return isinstance(node, ast.Call) and ("fresh" in made or "output" in made or terminal(node) in _FRESH)
