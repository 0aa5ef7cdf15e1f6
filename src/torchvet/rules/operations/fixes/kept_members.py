"""An edit for archives whose members are read again for each item: all are read once, where the archives are opened."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, walk
from torchvet.source.model.expressions import parents_in

_COPIES = frozenset(["copy", "astype", "sum", "mean", "max", "min", "std", "item", "tolist", "tobytes"])
"""Methods whose result shares no memory with the array."""
_OF_SHAPE = frozenset(["shape", "ndim", "size", "dtype", "nbytes"])
_OF_KEYS = frozenset(["len", "list", "sorted", "set", "tuple", "enumerate"])
"""Functions that an archive and a dict give their keys to."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

_Parents = dict[int, ast.AST]


class _Unsure(Exception):
    """Something is done with an archive that may be different with a dict."""


class _Opened(NamedTuple):
    call: ast.Call
    within: type[ast.AST] | None
    """The list or dict that has an archive for each element."""


def kept_members(file: SourceFile, finding: Finding) -> Edits:
    """`dict(np.load(name))` for `np.load(name)` in what the finding's statement reads members of, and `.copy()` where
    the file reads a member and would hand out a part of what is kept now: each read has given an array of its own.
    Nothing where anything else is done with the archives."""
    line = finding.location.line if finding.location is not None else None
    unit = unit_of(file, finding)
    if unit is None or line is None:
        return ()
    parents = parents_in(file.tree)
    keyed = [node for node in walk(unit.node) if isinstance(node, ast.Subscript) and _key(node)]
    holders = {_holder(node.value) for node in keyed if _on(parents, node, line)} - {""}
    opened = _opened(file, holder := holders.pop()) if len(holders) == 1 else None
    if opened is None:
        return ()
    try:
        reads = list(_reads(file, parents, holder, opened.within))
    except _Unsure:
        return ()
    kept = edits.replace(file, opened.call, f"dict({file.segment(opened.call)})")
    return [kept, *(edit for node in reads for edit in _copied(file, node, parents))]


def _on(parents: _Parents, node: ast.AST, line: int) -> bool:
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


def _opened(file: SourceFile, holder: str) -> _Opened | None:
    """The one call of `np.load` that makes what a holder has, bound once in the file: alone or in a comprehension."""
    bound = [node for node in walk(file.tree) if _binds(node, holder)]
    above = parents_in(file.tree).get(id(bound[0])) if len(bound) == 1 else None
    value = above.value if isinstance(above, (ast.Assign, ast.AnnAssign)) else None
    within = type(value) if isinstance(value, (ast.ListComp, ast.DictComp)) else None
    if isinstance(value, (ast.ListComp, ast.DictComp)):
        value = value.elt if isinstance(value, ast.ListComp) else value.value
    loads = isinstance(value, ast.Call) and file.dotted(value.func) == "numpy.load"
    # With `mmap_mode` the file may be none of these.
    plain = isinstance(value, ast.Call) and loads and len(value.args) == 1 and not value.keywords
    return _Opened(value, within) if plain and isinstance(value, ast.Call) else None


def _binds(node: ast.AST, holder: str) -> bool:
    if isinstance(node, ast.arg):
        return node.arg == holder
    if not isinstance(node, (ast.Name, ast.Attribute)) or isinstance(node.ctx, ast.Load):
        return False
    return node.attr == holder.removeprefix("self.") if isinstance(node, ast.Attribute) else node.id == holder


def _reads(file: SourceFile, parents: _Parents, holder: str, within: type[ast.AST] | None) -> Iterator[ast.expr]:
    """All that the file reads of the archives."""
    for node in walk(file.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        name = f"self.{node.attr}" if isinstance(node, ast.Attribute) else node.id
        if name != holder:
            continue
        # Another object's attribute of this name may be the same one.
        if isinstance(node, ast.Attribute) and _holder(node) != holder:
            raise _Unsure
        yield from _read_of_one(parents, node) if within is None else _read_of_each(parents, node, within)


def _read_of_one(parents: _Parents, node: ast.expr) -> Iterator[ast.expr]:
    """What an archive is read for."""
    above = parents.get(id(node))
    if isinstance(above, ast.Subscript) and above.value is node:
        # An archive knows its members by the names of their files, too.
        if isinstance(above.slice, ast.Slice) or _key(above).endswith(".npy") or _is_written(parents, above):
            raise _Unsure
        yield above
    elif not _asks_for_keys(above, node) and not (
        isinstance(above, (ast.For, ast.comprehension)) and above.iter is node
    ):
        raise _Unsure


def _is_written(parents: _Parents, node: ast.AST) -> bool:
    """Whether a subscript, or one of it, is assigned to."""
    written = False
    while isinstance(node, ast.Subscript):
        written = written or not isinstance(node.ctx, ast.Load)
        node = parents[id(node)]
    return written


def _asks_for_keys(above: ast.AST | None, node: ast.expr) -> bool:
    if isinstance(above, ast.Compare):
        return above.left is not node and all(isinstance(one, (ast.In, ast.NotIn)) for one in above.ops)
    if isinstance(above, ast.Call):
        return isinstance(above.func, ast.Name) and above.func.id in _OF_KEYS
    return isinstance(above, ast.Attribute) and above.attr == "keys"


def _read_of_each(parents: _Parents, node: ast.AST, within: type[ast.AST]) -> Iterator[ast.expr]:
    """What the archives of a list or dict are read for."""
    above = parents.get(id(node))
    if isinstance(above, ast.Subscript) and above.value is node:
        if not isinstance(parents.get(id(above)), ast.Subscript):
            raise _Unsure
        yield from _read_of_one(parents, above)
        return
    if within is ast.DictComp and isinstance(above, ast.Attribute) and above.attr == "values":
        node, above = (call := parents[id(above)]), parents.get(id(call))
    elif within is ast.DictComp and isinstance(above, ast.comprehension):
        raise _Unsure
    if isinstance(above, ast.comprehension) and above.iter is node:
        yield from _read_in_turn(parents, above)
    elif not (isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "len"):
        raise _Unsure


def _read_in_turn(parents: _Parents, turns: ast.comprehension) -> Iterator[ast.expr]:
    whole = parents.get(id(turns))
    if not isinstance(turns.target, ast.Name) or not isinstance(whole, _COMPREHENSIONS):
        raise _Unsure
    for one in walk(whole):
        if isinstance(one, ast.Name) and one.id == turns.target.id and one is not turns.target:
            yield from _read_of_one(parents, one)


def _copied(file: SourceFile, node: ast.expr, parents: _Parents) -> Edits:
    """`.copy()` behind a read, with all its indices, where what follows does not copy by itself."""
    above = parents.get(id(node))
    while isinstance(above, ast.Subscript) and above.value is node:
        node, above = above, parents.get(id(above))
    called = parents.get(id(above)) if above is not None else None
    if isinstance(above, ast.Attribute) and above.attr in _OF_SHAPE:
        return []
    method = above.attr if isinstance(above, ast.Attribute) and isinstance(called, ast.Call) else ""
    if method in _COPIES and not (isinstance(called, ast.Call) and method == "astype" and called.keywords):
        return []
    if isinstance(above, ast.Call) and file.dotted(above.func) in ("torch.tensor", "float", "int", "len"):
        return []
    return [edits.called_on(file, node, "copy()")]
