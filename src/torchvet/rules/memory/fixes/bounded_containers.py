"""Edits for a container that only its last elements are read of, or that nothing reads: how long it has to be is in how
it is used."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from torchvet.rules.kit import Edit, Edits, Finding, Iterable, SourceFile
from torchvet.rules.memory._sizes import number
from torchvet.rules.memory.fixes.stored_values import stored_at
from torchvet.rules.shared.training_loops import without_statement
from torchvet.source.model import Event, blocks, edits, is_call, parents_in, reads_of, receiver, terminal, walk

if TYPE_CHECKING:
    from torchvet.rules.memory._stores import Stored

_HARMLESS = {"detach", "clone", "cpu", "float", "half", "sigmoid", "softmax", "argmax", "mean", "sum", "squeeze", "to"}
"""What may be left uncalled: none of them does anything but make its result."""

Parents = dict[int, ast.AST]


class Uses(NamedTuple):
    """How a container is used in a file: what it starts as, and how far back it is read (0: never)."""

    begun: list[ast.expr]
    reach: int


def bounded(file: SourceFile, finding: Finding) -> Edits:
    """`deque(maxlen=n)` in the place of a list of which no more than the last n are read; the line that stores taken
    out where nothing reads the list at all."""
    for kept in stored_at(file, finding):
        call = kept.event.node
        if not is_call(call, "append") or len(call.args) != 1:
            continue
        on = receiver(call)
        lists = isinstance(on, ast.Subscript)
        holder = on.value if isinstance(on, ast.Subscript) else on
        uses = _uses(file, holder, lists)
        if uses is None:
            continue
        # Never read: then the container is not needed at all.
        if uses.reach:
            return _windows(file, uses, lists)
        return without_statement(file, kept.event.statement) if _may_go(file, kept) else ()
    return ()


def _uses(file: SourceFile, holder: ast.expr | None, lists: bool) -> Uses | None:
    """All uses of a container by that name in the file; None where one may need more than its last elements."""
    if not isinstance(holder, (ast.Name, ast.Attribute)):
        return None
    parents = parents_in(file.tree)
    bound, others = _named_like(file, holder)
    # A variable and an attribute of one name are two things.
    begun = [begins(file, parents[id(node)], lists) for node in bound if node.__class__ is holder.__class__]
    reading = _of_lists if lists else read
    reach = _farthest(reading(node, parents) for node in others if node.__class__ is holder.__class__)
    made = [value for value in begun if value is not None]
    # One beginning that is not understood may be another list.
    return Uses(made, reach) if made and len(made) == len(begun) and reach is not None else None


def _named_like(file: SourceFile, holder: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
    """The variables and attributes by the last name of a container: where they are bound, and where they are used."""
    alike = [n for n in walk(file.tree) if isinstance(n, (ast.Name, ast.Attribute)) and terminal(n) == terminal(holder)]
    return [n for n in alike if isinstance(n.ctx, ast.Store)], [n for n in alike if not isinstance(n.ctx, ast.Store)]


def _farthest(reaches: Iterable[int | None]) -> int | None:
    """The farthest of several reads; None where one of them is not known."""
    known = list(reaches)
    return max((reach for reach in known if reach is not None), default=0) if None not in known else None


def begins(file: SourceFile, statement: ast.AST, lists: bool) -> ast.expr | None:
    """The empty list, or the empty dict of lists, that a plain assignment binds."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    value = statement.value
    empty = _is_dict_of_lists(file, value) if lists else _is_empty_list(value)
    return value if empty else None


def _is_dict_of_lists(file: SourceFile, value: ast.expr) -> bool:
    called = isinstance(value, ast.Call) and file.dotted(value.func) == "collections.defaultdict"
    given = value.args if isinstance(value, ast.Call) and not value.keywords else []
    return called and len(given) == 1 and terminal(given[0]) == "list"


def _is_empty_list(value: ast.expr) -> bool:
    if isinstance(value, ast.List):
        return not value.elts
    return is_call(value, "list") and not value.args and not value.keywords


def read(node: ast.AST, parents: Parents) -> int | None:
    """How far back a use reads a list from its end: 0 for one that reads nothing, None for what is not known."""
    parent = parents[id(node)]
    if isinstance(parent, ast.Attribute) and parent.attr in ("append", "clear"):
        call = parents[id(parent)]
        return 0 if isinstance(call, ast.Call) and isinstance(parents[id(call)], ast.Expr) else None
    if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
        index = number(parent.slice)
        # `x[0]` needs the first element.
        return -index if index is not None and index < 0 else None
    asked = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is node
    # `if not x:` asks for one element at the most.
    asked = asked or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))
    return 1 if asked else None


def _of_lists(node: ast.AST, parents: Parents) -> int | None:
    """The same for a dict of lists: `held[name].append(x)`, `held[name][-1]`, and loops over `held.items()`."""
    parent = parents[id(node)]
    if isinstance(parent, ast.Subscript) and parent.value is node:
        return read(parent, parents) if isinstance(parent.ctx, ast.Load) else None
    if not isinstance(parent, ast.Attribute) or parent.attr not in ("items", "values"):
        return None
    call = parents[id(parent)]
    loop = parents[id(call)]
    if not isinstance(loop, (ast.For, ast.comprehension)) or loop.iter is not call:
        return None
    target: ast.expr | None = loop.target
    if parent.attr == "items":
        target = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
    if not isinstance(target, ast.Name):
        return None
    within = loop if isinstance(loop, ast.For) else parents[id(loop)]
    return _farthest(read(one, parents) for one in reads_of(within, target.id))


def _windows(file: SourceFile, uses: Uses, lists: bool) -> list[Edit]:
    """The containers made with a length, and the import that this needs."""
    names = {what: name for name, what in file.imports.names.items()}
    known = names.get("collections.deque", "")
    made = f"{known or names.get('collections', 'collections') + '.deque'}(maxlen={uses.reach})"
    changed = [
        edits.replace(file, value.args[0], f"lambda: {made}")
        if lists and isinstance(value, ast.Call)
        else edits.replace(file, value, made)
        for value in uses.begun
    ]
    # The import's edit stands first in the file.
    return changed if known or "collections" in names else [*blocks.importing(file, "collections"), *changed]


def _may_go(file: SourceFile, kept: Stored) -> bool:
    """Whether a line that stores can be left out: it calls nothing that does more than make its result, and its block
    has others."""
    statement = kept.event.statement
    if not isinstance(kept.event.parent, ast.Expr):
        return False
    calls = [n for n in walk(kept.value) if isinstance(n, (ast.Call, ast.Await, ast.Yield, ast.NamedExpr))]
    if any(not isinstance(c, ast.Call) or terminal(c) not in _HARMLESS for c in calls):
        return False
    # An empty block is no Python.
    return len(blocks.block_of(file.tree, statement)) > 1


def trimmed(file: SourceFile, finding: Finding) -> Edits:
    """`del saved[:-n]` after the line that appends, where the list is read by `saved[-n:]` alone."""
    for kept in stored_at(file, finding):
        call = kept.event.node
        if not is_call(call, "append") or len(call.args) != 1:
            continue
        on = receiver(call)
        length = _length(file, on) if isinstance(on, (ast.Name, ast.Attribute)) else None
        if on is not None and length is not None and _is_fixed(file, length, on, kept.event):
            return edits.after(file, kept.event.statement, f"del {file.segment(on)}[:-{file.segment(length)}]")
    return ()


def _length(file: SourceFile, holder: ast.expr) -> ast.expr | None:
    """How many of a list's last elements its slices read; None where they differ, or anything else may need more."""
    parents = parents_in(file.tree)
    bound, others = _named_like(file, holder)
    # Bound to anything but an empty list, it may be another list, which others read whole.
    fresh = all(begins(file, parents[id(node)], lists=False) is not None for node in bound)
    slices = [(node, _of_slice(node, parents[id(node)])) for node in others]
    reach = _farthest(read(node, parents) for node, length in slices if length is None)
    lengths = {ast.unparse(length): length for _, length in slices if length is not None}
    kinds = set(map(type, (*bound, *others)))
    if not fresh or reach is None or len(kinds) != 1 or len(lengths) != 1:
        return None
    (first,) = lengths.values()
    if isinstance(first, ast.Constant):
        # Other reads must not go back further than the slice does.
        return first if isinstance(first.value, int) and first.value >= max(reach, 1) else None
    return first if reach <= 1 else None


def _of_slice(node: ast.expr, parent: ast.AST) -> ast.expr | None:
    """The `n` of `saved[-n:]`."""
    if not isinstance(parent, ast.Subscript) or parent.value is not node or not isinstance(parent.ctx, ast.Load):
        return None
    part = parent.slice
    if not isinstance(part, ast.Slice) or part.upper is not None or part.step is not None:
        return None
    lower = part.lower
    return lower.operand if isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub) else None


def _is_fixed(file: SourceFile, length: ast.expr, holder: ast.expr, event: Event) -> bool:
    """Whether a length is the same wherever and whenever it is read: a number, a constant of the module, or an
    attribute beside the list that only `__init__` binds."""
    if isinstance(length, ast.Constant):
        return True
    bound = [
        n
        for n in walk(file.tree)
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and terminal(n) == terminal(length)
    ]
    if len(bound) != 1:
        return False
    unit = file.unit_at(bound[0].lineno)
    if isinstance(length, ast.Name):
        # A constant by the custom of names: nobody binds it later.
        return unit.is_module and length.id.isupper()
    beside = isinstance(length, ast.Attribute) and isinstance(holder, ast.Attribute)
    # Both on `self`, in the method that appends.
    same = beside and ast.unparse(length.value) == ast.unparse(holder.value) == event.unit.self_name()  # type: ignore[attr-defined]
    return same and unit.name == "__init__" and unit.owner is event.unit.method_class()
