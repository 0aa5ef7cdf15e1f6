"""An edit for archives whose members are read again for each item: all are read once, where the archives are opened."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, walk
from torchvet.source.model.expressions import parents_in

_OF_ARCHIVES = frozenset(["files", "f", "zip", "fid", "close", "__enter__", "allow_pickle", "max_header_size"])
"""Attributes that an archive has and a dict has not."""
_COPIES = frozenset(["copy", "astype", "sum", "mean", "max", "min", "std", "item", "tolist", "tobytes"])
"""Methods whose result shares no memory with the array."""


def kept_members(file: SourceFile, finding: Finding) -> Edits:
    """`dict(np.load(name))` for `np.load(name)` in what the finding's statement reads members of, and `.copy()` where
    it would hand out a part of what is kept now: each read has given an array of its own until now."""
    unit, line = unit_of(file, finding), finding.location.line if finding.location is not None else None
    if unit is None or line is None or any(_of_archive(node) for node in walk(file.tree)):
        return ()
    parents = parents_in(unit.node)
    reads = [node for node in _with_keys(unit.node) if _on(parents, node, line) and _holder(node.value)]
    opened = _opened_for(file, reads)
    if opened is None:
        return ()
    kept = edits.replace(file, opened, f"dict({file.segment(opened)})")
    return [kept, *(edit for node in reads for edit in _copied(file, node, parents))]


def _opened_for(file: SourceFile, reads: list[ast.Subscript]) -> ast.Call | None:
    """The call that opens the archives of one statement's reads, where nothing else of the file reads these members:
    the same array would be there as well."""
    keys, holders = {_key(node) for node in reads}, {_holder(node.value) for node in reads}
    if len(holders) != 1 or sum(_key(node) in keys for node in _with_keys(file.tree)) > len(keys):
        return None
    return _opened(file, holders.pop())


def _with_keys(tree: ast.AST) -> list[ast.Subscript]:
    """What a string stands in the brackets of."""
    return [node for node in walk(tree) if isinstance(node, ast.Subscript) and _key(node)]


def _of_archive(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _OF_ARCHIVES


def _on(parents: dict[int, ast.AST], node: ast.AST, line: int) -> bool:
    """Whether a node is in the statement that begins on a line."""
    while not isinstance(node, ast.stmt):
        above = parents.get(id(node))
        if above is None:
            return False
        node = above
    return node.lineno == line


def _key(node: ast.Subscript) -> str:
    return node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else ""


def _holder(node: ast.expr) -> str:
    """The name, or the attribute of `self`, that holds an archive, or the list or dict of archives that one is from."""
    node = node.value if isinstance(node, ast.Subscript) else node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _opened(file: SourceFile, holder: str) -> ast.Call | None:
    """The one call of `np.load` that makes what a holder has, bound once in the file: alone or in a comprehension."""
    bound = [
        node
        for node in walk(file.tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.withitem, ast.NamedExpr))
        and any(file.segment(target) == holder for target in _targets(node))
    ]
    value = bound[0].value if len(bound) == 1 and isinstance(bound[0], (ast.Assign, ast.AnnAssign)) else None
    if isinstance(value, (ast.ListComp, ast.DictComp)):
        value = value.elt if isinstance(value, ast.ListComp) else value.value
    loads = isinstance(value, ast.Call) and file.dotted(value.func) == "numpy.load"
    # With `mmap_mode` the file may be none of these.
    return value if isinstance(value, ast.Call) and loads and len(value.args) == 1 and not value.keywords else None


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [one for target in node.targets for one in walk(target) if isinstance(one, (ast.Name, ast.Attribute))]
    one = node.optional_vars if isinstance(node, ast.withitem) else getattr(node, "target", None)
    return [each for each in walk(one) if isinstance(each, (ast.Name, ast.Attribute))] if one is not None else []


def _copied(file: SourceFile, node: ast.expr, parents: dict[int, ast.AST]) -> Edits:
    """`.copy()` behind a read, with all its indices, where what follows does not copy by itself."""
    above = parents.get(id(node))
    while isinstance(above, ast.Subscript) and above.value is node:
        node, above = above, parents.get(id(above))
    called = parents.get(id(above)) if above is not None else None
    method = above.attr if isinstance(above, ast.Attribute) and isinstance(called, ast.Call) else ""
    if method in _COPIES and not (isinstance(called, ast.Call) and method == "astype" and called.keywords):
        return []
    if isinstance(above, ast.Call) and file.dotted(above.func) in ("torch.tensor", "float", "int", "len"):
        return []
    return [edits.called_on(file, node, "copy()")]
