"""OPS209: `.view()` is asked for a shape that a transposed tensor's memory does not have."""

from __future__ import annotations

import ast
from itertools import combinations, pairwise

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, Severity, SourceFile
from torchvet.rules.operations._permuted import Permuted, more_than_one, permuted
from torchvet.rules.operations._values import binding_of
from torchvet.source.model import Event, is_call, name_set, operand, receiver, target_names, terminal, walk

_FRESH = name_set("matmul bmm mm softmax contiguous clone cat stack conv2d linear view reshape topk")
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
        """`.view(…)` of what a permutation has left with nothing to merge in order, directly or behind operations that
        keep its layout."""
        if not file.mentions("transpose(", "permute(", "swapaxes(", ".t()", ".T"):
            return
        for event in file.calls("view"):
            grades = [(moved, self._grade(file, event, moved)) for moved in permuted(receiver(event.call), event)]
            if grades and all(grade is not None for _, grade in grades):
                # Of several ways there the least sure decides.
                moved, grade = min(grades, key=lambda one: ("info", "warning", "error").index(one[1] or "info"))
                yield self._finding(file, event, moved, grade or "info")

    @staticmethod
    def _grade(file: SourceFile, event: Event, moved: Permuted) -> Severity | None:
        """How sure it is that the view fails behind a permutation; None where it may well work."""
        base, at = moved.base, moved.at
        order, wanted = _order(moved.node, _rank(base, at)), _shape(event.call)
        if order is None or not wanted or not _breaks(order, wanted) or _permuted_before(base, at):
            return None
        if not _breaks(_without_ones(order, _written(base, at)), wanted):
            return None
        # Two permutations may cancel; of a slice of one row every view exists.
        if permuted(base, at) or any(getattr(end, "value", None) == 1 for end, _ in moved.bounds):
            return None
        if not _is_fresh(file, base, at) or not all(more_than_one(*end) for end in moved.bounds):
            return "info"
        return "error" if _sizes(base, at) and not moved.bounds else "warning"

    def _finding(self, file: SourceFile, event: Event, moved: Permuted, grade: Severity) -> Finding:
        function = event.call.func
        line, end = function.end_lineno or 0, file.column(function.end_lineno or 0, function.end_col_offset or 0)
        change = Edit(path=file.path, start=(line, end - len("view")), end=(line, end), text="reshape")
        shape = file.segment(event.node).rpartition(".view")[2]
        name = f"{terminal(moved.node)}(…)" if isinstance(moved.node, ast.Call) else f".{moved.node.attr}"
        in_order = "if the tensor lies in order before that"
        of_one = "unless one of them has the size 1"
        unless = {"error": "", "warning": f", {of_one}", "info": f", {of_one}" if moved.bounds else f", {in_order}"}
        message = f".view{shape} raises after {name}: the dimensions that it merges are not neighbours in memory"
        cause = f"line {moved.node.lineno} permutes the dimensions without moving the data"
        if moved.kept_by:
            keep = "keeps" if len(moved.kept_by) == 1 else "keep"
            cause += f", and {' and '.join(moved.kept_by)} {keep} this layout"
        advice = f"write .reshape{shape}, which copies, if this order of elements is meant"
        message += unless[grade]
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=grade, edits=[change], safe=True)


def _numbers(given: list[ast.expr]) -> list[int] | None:
    try:
        found = [ast.literal_eval(g) for g in _spread(given)]
    except (ValueError, TypeError):
        return None
    return found if all(isinstance(f, int) for f in found) else None


def _spread(given: list[ast.expr]) -> list[ast.expr]:
    """Sizes or dimensions, also where one tuple or list holds them."""
    return list(given[0].elts) if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)) else given


def _order(call: ast.Call | ast.Attribute, rank: int) -> list[int] | None:
    """Which old dimension each new one is. A rank of 0 is not known: the leading dimensions tell enough."""
    if isinstance(call, ast.Attribute) or terminal(call) == "t":
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


def _without_ones(order: list[int], sizes: list[object]) -> list[int]:
    """The order without the dimensions that are written down as 1, which may stand anywhere in memory."""
    if len(sizes) != len(order) or 1 not in sizes:
        return order
    left = [old for old in order if sizes[old] != 1]
    return [sorted(left).index(old) for old in left] or [0]


def _swapped(rank: int, given: list[int]) -> list[int]:
    order = list(range(rank))
    one, other = (g % rank for g in given)
    order[one], order[other] = order[other], order[one]
    return order


def _shape(call: ast.Call) -> list[ast.expr]:
    given = _spread(call.args)
    if len(given) == 1 and (not isinstance(given[0], (ast.UnaryOp, ast.BinOp)) or _joins_shapes(given[0])):
        return []
    if call.keywords or any(isinstance(g, ast.Starred) for g in given):
        return []
    return given


def _joins_shapes(node: ast.expr) -> bool:
    """`(rows, -1) + x.size()[1:]`: sizes in one expression, of which it is not seen how many they are."""
    return any(isinstance(n, (ast.Tuple, ast.List)) or terminal(n) in ("size", "shape") for n in walk(node))


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
    sizes = _written(node, event, depth)
    return bool(sizes) and all(isinstance(size, int) and size > 1 for size in sizes)


def _written(node: ast.expr | None, event: Event, depth: int = 0) -> list[object]:
    """The sizes that a tensor is made or viewed with, None for such as are no numbers."""
    bound = binding_of(node, event)
    if bound is not None:
        return _written(*bound, depth + 1) if depth < _DEEPEST else []
    if not isinstance(node, ast.Call) or node.keywords or terminal(node) not in _BY_SIZES - {"permute"}:
        return []
    return [getattr(size, "value", None) for size in _spread(node.args)]


def _permuted_before(node: ast.expr | None, event: Event) -> bool:
    """Whether the tensor may have been transposed already, so that the two may cancel."""
    text = ast.unparse(node) if node is not None else ""
    bound = event.unit.bindings.get(node.id, ()) if isinstance(node, ast.Name) else ()
    values = [getattr(b.node, "value", None) for b in bound if b.index < event.index]
    texts = [event.unit.file.segment(value) for value in values if value is not None]
    return any(w in text for w in _PERMUTING) or any(w in one for one in texts for w in _MAY_PERMUTE)


def _is_fresh(file: SourceFile, node: ast.expr | None, event: Event) -> bool:
    """Whether the tensor before the permutation surely lies in order in memory."""
    bound = binding_of(node, event)
    if bound is not None:
        return isinstance(bound[0], ast.Call) and _is_fresh(file, *bound)
    if event.is_own(node):
        return _is_part(node.id, event)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    made = file.roles.of(node, event.unit) if isinstance(node, ast.Call) else ()
    return isinstance(node, ast.Call) and ("fresh" in made or "output" in made or terminal(node) in _FRESH)


def _is_part(name: str, event: Event) -> bool:
    """`values, indices = x.topk(3)`: both are made anew."""
    made_by = [e.node for e in event.unit.file.devices.reaching(name, event)]
    parted = [one.value for one in made_by if isinstance(one, ast.Assign) and name in target_names(one)]
    return bool(made_by) and len(parted) == len(made_by) and all(is_call(one, "topk") for one in parted)
