"""Edits for dicts that only remember results: what is not found is computed again, so that old entries may go."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Iterator, SourceFile, places_of
from torchvet.rules.memory._stores import is_dict
from torchvet.source.model import blocks, edits, parents_in, sole_target, targets_of, terminal, walk

_KEPT = 8
"""Entries that stay: enough for what is asked for again within a step."""
_EMPTY = ("WeakKeyDictionary", "WeakValueDictionary")
_WEAK = "torch.utils.weak.WeakTensorKeyDictionary()"

Parents = dict[int, ast.AST]


def evicted(file: SourceFile, finding: Finding) -> Edits:
    """The oldest entries taken out before a new one goes in, where every reader of the dict can do without them."""
    for event in (e for line in places_of(file, finding) for e in file.events_on(line)):
        node = event.node
        target = sole_target(node)
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, (ast.Name, ast.Attribute)):
            continue
        if not _is_named(finding, terminal(target.value)) or not _is_memo(file, target.value):
            continue
        held, margin = file.segment(target.value), blocks.margin(file, event.statement)
        more = "\t" if margin.endswith("\t") else blocks.step_of(file, file.tree.body, None)
        inner = f"{file.newline}{margin}{more}{held}"
        # Weak dictionaries are cleared whole, for that reason.
        if any(terminal(value) in _EMPTY for value in _bound(file, terminal(target.value))):
            # These compare keys by `==` when one is popped, which tensors do not answer.
            return edits.before(file, event.statement, f"if len({held}) >= {_KEPT}:{inner}.clear()")
        # `iter` gives the oldest first: a dict keeps the order of insertion.
        return edits.before(file, event.statement, f"while len({held}) >= {_KEPT}:{inner}.pop(next(iter({held})))")
    return ()


def keyed_weakly(file: SourceFile, finding: Finding) -> Edits:
    """A dict that is keyed by tensors made one whose entries go with their tensors."""
    names = [part.strip(".") for part in (finding.holder.path if finding.holder is not None else ())]
    if not names or file.dotted(ast.Name("torch")) != "torch":
        return ()
    bound = list(_bound(file, names[-1]))
    # All that is ever bound to the name must be such a dict.
    return [edits.replace(file, value, _WEAK) for value in bound if value] if all(map(_is_empty_dict, bound)) else ()


def _is_named(finding: Finding, name: str) -> bool:
    """Whether the holder, or what it is a part of, goes by a name."""
    path = finding.holder.path if finding.holder is not None else []
    return any(name in part.replace(":", ".").replace(" ", "").split(".") for part in path)


def _bound(file: SourceFile, name: str) -> Iterator[ast.expr | None]:
    """What is bound to a name, or to an attribute by that name, in a file; None where that is not written down."""
    for node in walk(file.tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            whole = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets_of(node):
                if isinstance(target, (ast.Name, ast.Attribute)) and terminal(target) == name:
                    # `a, held = f()`: a part, of which nothing is written down.
                    yield node.value if target in whole else None


def _is_empty_dict(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    called = isinstance(value, ast.Call) and not value.args and not value.keywords
    return called and ((is_dict(value) and terminal(value) != "defaultdict") or terminal(value) in _EMPTY)


def _is_memo(file: SourceFile, holder: ast.expr) -> bool:
    """Whether a dict is only asked for keys that are looked for first, or were just put in."""
    bound = list(_bound(file, terminal(holder)))
    if not bound or not all(map(_is_empty_dict, bound)):
        return False
    parents = parents_in(file.tree)
    alike = [n for n in walk(file.tree) if n.__class__ is holder.__class__ and terminal(n) == terminal(holder)]
    uses = [n for n in alike if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)]
    looked_for = [_looked_for(n, parents) for n in uses]
    # A dict that nobody looks into before is no memo: what it has may be its only copy.
    return any(looked_for) and all(
        a or _can_do_without(file, n, parents) for n, a in zip(uses, looked_for, strict=True)
    )


def _looked_for(use: ast.expr, parents: Parents) -> bool:
    """`key in held`, `held.get(key)`, and `held[key]` in a `try` that handles KeyError."""
    parent = parents[id(use)]
    if isinstance(parent, ast.Compare):
        return use in parent.comparators and isinstance(parent.ops[0], (ast.In, ast.NotIn))
    if isinstance(parent, ast.Attribute):
        return parent.attr == "get" and isinstance(parents[id(parent)], ast.Call)
    if not isinstance(parent, ast.Subscript) or not isinstance(parent.ctx, ast.Load):
        return False
    around: ast.AST = parent
    while id(around) in parents:
        below, around = around, parents[id(around)]
        # In the handler itself nothing is caught.
        if isinstance(around, ast.Try) and below in around.body:
            return any("KeyError" in ast.unparse(h.type) for h in around.handlers if h.type is not None)
    return False


def _can_do_without(file: SourceFile, use: ast.expr, parents: Parents) -> bool:
    """Whether a use changes nothing that a reader needs, or reads what its function has looked for or put in."""
    parent = parents[id(use)]
    if isinstance(parent, ast.Attribute):
        return parent.attr == "clear"
    if isinstance(parent, ast.Call):
        return terminal(parent) == "len"
    if not isinstance(parent, ast.Subscript) or isinstance(parent.ctx, ast.Del):
        return False
    if isinstance(parent.ctx, ast.Store):
        return isinstance(parents[id(parent)], ast.Assign)
    held, key = ast.unparse(use), ast.unparse(parent.slice)
    within = walk(file.unit_at(parent.lineno).node)
    return any(
        (isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and ast.unparse(n) == f"{held}[{key}]")
        or (isinstance(n, ast.Compare) and ast.unparse(n) in (f"{key} in {held}", f"{key} not in {held}"))
        for n in within
    )
