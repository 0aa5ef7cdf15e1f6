"""OPS209: `.view()` is asked for a shape that a transposed tensor's memory does not have."""

from __future__ import annotations

import ast
from itertools import combinations, pairwise

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, SourceFile
from torchvet.source.model import Event, receiver, targets_of, terminal, value_bound, value_for

_MOVING = frozenset(("transpose", "permute", "swapaxes", "swapdims", "t"))
_FRESH = frozenset(("matmul", "bmm", "mm", "softmax", "contiguous", "clone", "cat", "stack", "conv2d", "linear"))
_KEEPS_RANK = frozenset(("transpose", "softmax", "dropout", "contiguous", "to", "float", "half", "type_as", "clone",
                         "masked_fill", "relu", "tanh"))  # fmt: skip
"""`scaled_dot_product_attention` is not among them: its result may be laid out as if transposed already."""


class ViewOnIncompatibleLayout(Rule):
    """`.view()` is asked for a shape that a transposed tensor's memory does not have."""

    code = "OPS209"
    name = "view-on-incompatible-layout"
    summary = "`.view()` is asked for a shape that a transposed tensor's memory does not have"
    severity = "error"
    words = (".view(",)

    bad_raises = "view size is not compatible"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`.view(…)` right after a permutation that leaves nothing to merge in order."""
        if not file.mentions("transpose(", "permute(", "swapaxes(", ".t()"):
            return
        for event in file.calls("view"):
            on = receiver(event.call)
            moved = _permutation_call(on, event)
            if moved is None:
                continue
            call, at = moved
            base = receiver(call)
            order = _order(call, _rank(base, at, 0))
            wanted = _shape(event.call)
            if order is not None and wanted and _breaks(order, wanted) and not _permuted_before(base, at):
                yield self._finding(file, event, call, _is_fresh(file, base, at))

    def _finding(self, file: SourceFile, event: Event, moved: ast.Call, sure: bool) -> Finding:
        function = event.call.func
        assert isinstance(function, ast.Attribute)
        line, column = function.end_lineno or 0, function.end_col_offset or 0
        end = file.column(line, column)
        change = Edit(path=file.path, start=(line, end - 4), end=(line, end), text="reshape")
        shape = file.segment(event.node).rpartition(".view")[2]
        message = (
            f".view{shape} raises after {terminal(moved)}(…): the dimensions that it merges are not "
            "neighbours in memory"
        )
        cause = f"line {moved.lineno} permutes the dimensions without moving the data"
        advice = f"write .reshape{shape}, which copies, if this order of elements is meant"
        return self.suspect(
            file,
            event,
            message,
            cause=cause,
            advice=advice,
            severity="error" if sure else "warning",
            edits=[change],
            safe=True,
        )


def _permutation_call(node: ast.expr | None, event: Event) -> tuple[ast.Call, Event] | None:
    """The `transpose` or `permute` whose result a node is, directly or by its one name, and where it stands."""
    if isinstance(node, ast.Call):
        return (node, event) if terminal(node) in _MOVING and receiver(node) is not None else None
    if not isinstance(node, ast.Name) or event.unit.home(node.id) is not event.unit:
        return None
    reaching = event.unit.file.devices.reaching(node.id, event)
    if len(reaching) != 1 or reaching[0].loop is not event.loop:
        return None
    value = value_bound(reaching[0].node, node.id)
    return _permutation_call(value, reaching[0]) if isinstance(value, ast.Call) else None


def _numbers(given: list[ast.expr]) -> list[int] | None:
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    try:
        found = [ast.literal_eval(g) for g in given]
    except (ValueError, TypeError):
        return None
    return found if all(isinstance(f, int) for f in found) else None


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
    given = list(call.args)
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = list(given[0].elts)
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
    if dimensions == sorted(dimensions) or any(isinstance(w, ast.Constant) and w.value == 1 for w in wanted):
        return False
    if groups >= len(dimensions) or (not known and groups > 2):
        return False
    if not known and groups == 2 and dimensions[-1] != dimensions[-2] - 1:
        return False
    for cuts in combinations(range(1, len(dimensions)), groups - 1):
        parts = [dimensions[a:b] for a, b in zip((0, *cuts), (*cuts, len(dimensions)), strict=True)]
        if all(b == a + 1 for part in parts for a, b in pairwise(part)):
            return False
    return True


def _rank(node: ast.expr | None, event: Event, depth: int) -> int:
    """How many dimensions a tensor has, where a view or a factory says so; 0 for not known."""
    if isinstance(node, ast.Name) and depth < 4:
        reaching = event.unit.file.devices.reaching(node.id, event)
        if len(reaching) != 1:
            return 0
        target = next((t for t in targets_of(reaching[0].node) if isinstance(t, ast.Name) and t.id == node.id), None)
        return _rank(value_for(reaching[0].node, target) if target is not None else None, reaching[0], depth + 1)
    if isinstance(node, ast.BinOp) and depth < 4:
        return max(_rank(node.left, event, depth + 1), _rank(node.right, event, depth + 1))
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return 0
    if terminal(node) in ("matmul", "bmm", "baddbmm") and depth < 4:
        on = receiver(node)
        dotted = event.unit.file.dotted(node.func).startswith("torch.")
        both = node.args[:2] if dotted else [*([on] if on is not None else []), *node.args[:1]]
        return max((_rank(one, event, depth + 1) for one in both), default=0)
    if terminal(node) in _KEEPS_RANK and depth < 4:
        on = receiver(node)
        first = node.args[0] if event.unit.file.dotted(node.func).startswith("torch.") and node.args else on
        return _rank(first, event, depth + 1)
    given = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
    shaped = terminal(node) in ("view", "reshape", "permute", "randn", "rand", "zeros", "ones", "empty")
    return len(given) if shaped and len(given) > 1 else 0


def _permuted_before(node: ast.expr | None, event: Event) -> bool:
    """Whether the tensor may have been transposed already, so that the two may cancel."""
    text = ast.unparse(node) if node is not None else ""
    if any(w in text for w in ("transpose", "permute", ".T", ".t()", "rearrange", "einsum", "swap", "movedim")):
        return True
    if isinstance(node, ast.Name):
        bound = [b for b in event.unit.bindings.get(node.id, ()) if b.index < event.index]
        return any(
            w in ast.unparse(v)
            for b in bound
            if (v := getattr(b.node, "value", None)) is not None
            for w in ("transpose", "permute", "einsum", "swap", "movedim", "unbind", "chunk")
        )
    return False


def _is_fresh(file: SourceFile, node: ast.expr | None, event: Event) -> bool:
    """Whether the tensor before the permutation surely lies in order in memory."""
    if isinstance(node, ast.Name):
        reaching = file.devices.reaching(node.id, event)
        values = [value_for(b.node, t) for b in reaching for t in targets_of(b.node)]
        return len(values) == 1 and isinstance(values[0], ast.Call) and _is_fresh(file, values[0], reaching[0])
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    made = file.roles.of(node, event.unit)
    return "fresh" in made or "output" in made or terminal(node) in _FRESH or terminal(node) in ("view", "reshape")
