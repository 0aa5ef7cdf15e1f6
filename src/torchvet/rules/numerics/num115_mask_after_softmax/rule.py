"""NUM115: probabilities are masked by -inf after the softmax instead of before it."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Findings, Rule, SourceFile
from torchvet.rules.numerics import _terms
from torchvet.rules.numerics._formulas import is_softmax
from torchvet.source.model import Event, is_call, name_set, names_in, receiver, target_names, targets_of, terminal, walk

_LOWEST = -1e3
"""A number that is never meant to be a probability. Chosen, not measured."""
_INFINITE = ("math.inf", "torch.inf", "numpy.inf", "np.inf")
_PRODUCTS = name_set("@ matmul bmm mm einsum baddbmm")
_SHAPES = name_set("""
    unsqueeze squeeze view reshape transpose permute contiguous expand flatten T mT float half double bfloat16 to
    type_as clone detach
""")
"""What leaves the numbers as they are."""
_RANKS = name_set("""
    softmax log_softmax topk argmax argsort sort max amax multinomial log logsumexp exp Categorical where nan_to_num
    masked_fill_ clamp
""")
"""What may be given -inf on purpose: it only orders, or takes the mask's place away again."""


class MaskAfterSoftmax(Rule):
    """Probabilities are masked by -inf after the softmax instead of before it."""

    severity = "warning"
    words = ("softmax", "Softmax")
    fix_changes_results = True

    def in_file(self, file: SourceFile) -> Findings:
        """A softmax's result that is filled with -inf, or with a large negative number, and then multiplied."""
        if file.imports.uses("torch") and file.mentions("masked_fill"):
            for event in file.calls("masked_fill", "masked_fill_"):
                probabilities, low = _filled(file, event)
                if probabilities is not None and low is not None and _is_multiplied(event, probabilities):
                    yield self._finding(file, event, probabilities, low)

    def _finding(self, file: SourceFile, event: Event, probabilities: ast.expr, low: ast.expr) -> Finding:
        name, value = file.segment(probabilities), file.segment(low)
        product = "infinite or NaN" if "inf" in value.replace("finfo", "") else "a huge number"
        return self.suspect(
            file,
            event,
            f"{name} is filled with {value} after its softmax and then multiplied: where the mask holds, the product "
            f"is {product}",
            cause="a softmax turns -inf into 0; after it -inf and large negative numbers are multiplied as they are, "
            "and the places that are masked have already taken their share of the 1",
            advice=f"fill the scores with {value} before the softmax",
        )


def _filled(file: SourceFile, event: Event) -> tuple[ast.expr | None, ast.expr | None]:
    """The softmax's result that a call fills, and what with."""
    call = event.call
    given = [*call.args, *(k.value for k in call.keywords)]
    if not file.dotted(call.func).startswith("torch."):
        given.insert(0, call.func.value if isinstance(call.func, ast.Attribute) else call.func)
    on, low = (given[0], given[2]) if len(given) == 3 else (None, None)
    if on is None or low is None or not _is_low(file, low, event):
        return None, None
    return (on, low) if is_softmax(*_terms.meaning(on, event), "softmax") else (None, None)


def _is_low(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """-inf in one of its spellings, `finfo(…).min`, or a number far below 0."""
    number = _terms.number(node, event.unit)
    if number is not None:
        return number <= _LOWEST
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = node.operand
        spelled = is_call(inner, "float") and "inf" in ast.unparse(inner) and "-" not in ast.unparse(inner)
        return spelled or file.dotted(inner) in _INFINITE
    if isinstance(node, ast.Attribute) and node.attr == "min":
        return is_call(node.value, "finfo")
    return is_call(node, "float") and "-inf" in ast.unparse(node)


def _is_multiplied(event: Event, probabilities: ast.expr) -> bool:
    """Whether what was filled goes into a product, and into nothing that only compares it or softens it again."""
    in_place = terminal(event.node) == "masked_fill_"
    names = names_in(probabilities) if in_place else target_names(event.statement)
    uses: set[str] = set()
    seen: set[int] = set()
    for later in event.unit.events[event.index :]:
        if later.excludes(event):
            continue
        fresh = id(later.statement) not in seen
        seen.add(id(later.statement))
        products = [n for n in walk(later.statement) if _is_product(n)] if fresh else []
        own = [later.node] if later is not event else []
        taking = [n for n in (*own, *products) if _goes_in(n, event.node, names)]
        uses |= {"@" if isinstance(n, ast.BinOp) else terminal(n) for n in taking}
        # Bound anew, or changed in place, it is another tensor.
        if later.statement is not event.statement and _changes(later, names):
            break
    return not uses & _RANKS and not uses.isdisjoint(_PRODUCTS)


def _changes(event: Event, names: set[str]) -> bool:
    """Whether an event binds one of the names to what is no other shape of it, or changes it in place."""
    node = event.node
    if isinstance(node, ast.Call):
        return terminal(node).endswith("_") and bool(names & names_in(receiver(node)))
    if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or event.context.arms:
        return False
    bound = {_root(t.value, node) if isinstance(t, ast.Subscript) else t for t in targets_of(node)}
    mine = any(isinstance(one, ast.Name) and one.id in names for one in bound)
    return mine and (isinstance(node, ast.AugAssign) or not _is_same(node.value, node, names))


def _is_same(value: ast.expr | None, at: ast.AST, names: set[str]) -> bool:
    """Whether a value is another shape of one of the names. Dropout leaves most numbers, and -inf in all cases."""
    if isinstance(value, ast.Call) and "drop" in terminal(value).lower() and value.args:
        value = value.args[0]
    root = _root(value, at) if value is not None else None
    return isinstance(root, ast.Name) and root.id in names


def _is_product(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _goes_in(node: ast.AST, filled: ast.AST, names: set[str]) -> bool:
    """Whether a call or a product takes what was filled, as it is or in another shape."""
    if isinstance(node, ast.BinOp):
        taken = [node.left]
    else:
        taken = [*node.args, node.func] if isinstance(node, ast.Call) else []
    roots = (_root(one, filled) for one in taken)
    return any(r is filled or (isinstance(r, ast.Name) and r.id in names) for r in roots)


def _root(node: ast.expr, filled: ast.AST) -> ast.expr:
    """What a chain of methods that leave the numbers alone begins with: `w` of `w.unsqueeze(1)`."""
    while node is not filled and isinstance(node, (ast.Call, ast.Attribute)) and terminal(node) in _SHAPES:
        inner = node.func if isinstance(node, ast.Call) else node
        if not isinstance(inner, ast.Attribute):
            break
        node = inner.value
    return node
