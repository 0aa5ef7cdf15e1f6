"""From what hung on an earlier pass's graph when a backward failed to the name that carried it there."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from torchvet.rules.kit import Iterator, Recording, Sequence, SourceFile, Store, records
from torchvet.rules.memory._lasting import outermost_loop
from torchvet.source.model import Event, is_attribute, is_call, is_name, targets_of, terminal, walk

_CUTTING = frozenset(("detach", "data", "item", "tolist", "shape", "size", "dtype", "device", "dim", "append", "numpy"))
"""What may be asked of a name without its graph going anywhere."""
_NUMBERS = frozenset(("float", "int", "len", "isinstance", "id"))
_MOST = 3


@dataclass(frozen=True)
class Carrier:
    """A name that carries a graph into the next pass, with the line that binds it. `once`: that line runs before the
    loop, and never again."""

    name: records.memory.CarriedName
    store: Store
    once: bool = False


def carriers(recording: Recording, record: records.memory.CarriedGraph) -> list[Carrier]:
    """The names to blame: what was bound anew from its own last value; else what an earlier pass has made, and this one
    has read; else what was made once, before the loop."""
    found = list(_bound(recording, record.names))
    anew = [c for c in found if _goes_on(recording, c)]
    # By the tensor's number: one tensor may have several names.
    numbers = {c.name.number for c in anew}
    kept = [c for c in found if c.name.old and c.name.number not in numbers]
    # An attribute is bound by a method, whose loop is elsewhere.
    again = [c for c in kept if c.store.in_loop or c.name.kind == "attribute"]
    bound = [c for c in again if _is_bound_by(c.store)]
    # From the surest to the least sure: what binds itself, what is bound again, what is only stored, what was
    # made once.
    return _distinct(anew + bound or again or [replace(c, once=True) for c in kept])


def _distinct(found: list[Carrier]) -> list[Carrier]:
    """The first few: of one tensor, and of one name in one line, only one."""
    # Reversed, so that of one tensor the first carrier stays; and back at the end.
    tensors = {c.name.number: c for c in reversed(found)}
    return list({(c.store.path, c.store.line, _identifier(c)): c for c in tensors.values()}.values())[::-1][:_MOST]


def _identifier(carrier: Carrier) -> str:
    """`states` of `model.states['a']`."""
    return carrier.name.name.partition("[")[0].rpartition(".")[2]


def _bound(recording: Recording, names: Sequence[records.memory.CarriedName]) -> Iterator[Carrier]:
    for name in names:
        stores = recording.index.stores(name.name, name.scope, name.place.path, name.files)
        if stores:
            yield Carrier(name, stores[0])


def _is_bound_by(store: Store) -> bool:
    return store.kind in ("assign", "augmented", "item", "setattr")


def _goes_on(recording: Recording, carrier: Carrier) -> bool:
    """Whether its line binds it to what it was bound to in the pass before, or to what was made of that."""
    file = recording.model(carrier.store.path) if _is_bound_by(carrier.store) else None
    if file is None:
        return False
    wanted = _identifier(carrier)
    for event in file.unit_at(carrier.store.line).events:
        target = next((t for t in targets_of(event.node) if terminal(_root(t)) == wanted), None)
        # By line: the store has been found in the text by a model of its own.
        if event.line == carrier.store.line and target is not None:
            return _read_before(file, event, _root(target))
    return False


def _root(target: ast.expr) -> ast.expr:
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _read_before(file: SourceFile, event: Event, target: ast.expr) -> bool:
    """Whether a pass reads a name before it binds it, so that it reads what the pass before has left."""
    # Of an attribute no order is known across methods: any use outside of a cut counts.
    if isinstance(target, ast.Attribute):
        return any(map(_is_use, _uses(file.tree, target.attr, attribute=True)))
    loop = outermost_loop(event)
    outside = terminal(target) in event.unit.outer_names
    # Without a loop a pass is a call, which keeps only what it declares `global` or `nonlocal`.
    body = getattr(loop.node if loop is not None else event.unit.node if outside else None, "body", [])
    return _first(body, terminal(target)) == "read"


def _first(block: Sequence[ast.AST], name: str) -> str:
    """What is done to a name first where a block of code runs: it is `read`, or `bound`; empty where it may be neither.
    A loop is taken to run."""
    for one in block:
        done = _done(one, name)
        if done:
            return done
    return ""


def _done(node: ast.AST, name: str) -> str:
    # Its body runs elsewhere.
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return ""
    if isinstance(node, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try)):
        return _done_by_block(node, name)
    if any(map(_is_use, _uses(node, name))):
        return "read"
    return "bound" if any(terminal(t) == name for t in targets_of(node)) else ""


def _done_by_block(node: ast.AST, name: str) -> str:
    heads = [getattr(node, field, None) for field in ("test", "iter")]
    heads += [item.context_expr for item in getattr(node, "items", ())]
    head = _first([one for one in heads if one is not None], name)
    if head or isinstance(node, (ast.With, ast.AsyncWith)):
        return head or _first(node.body, name)  # type: ignore[attr-defined]
    arms = [_first(getattr(node, "body", []), name), _first(getattr(node, "orelse", []), name)]
    arms += [_first(handler.body, name) for handler in getattr(node, "handlers", ())]
    if "read" in arms:
        return "read"
    # A loop is taken to run; of an `if` both arms must bind.
    return "bound" if arms[0] == "bound" and (not isinstance(node, ast.If) or arms[1] == "bound") else ""


def _uses(tree: ast.AST, name: str, attribute: bool = False) -> Iterator[list[ast.AST]]:
    """What is around each place where a name is read, the nearest last."""
    waiting: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    while waiting:
        node, parents = waiting.pop()
        if attribute:
            hit = is_attribute(node, name) and isinstance(node.ctx, ast.Load)
        else:
            hit = is_name(node, name) and isinstance(node.ctx, ast.Load)
        # `x += y` reads `x`, though its context is a Store.
        augmented = isinstance(node, ast.AugAssign) and terminal(_root(node.target)) == name
        if hit or augmented:
            yield parents
        # Three levels are all that `_is_use` looks at.
        inner = [*parents[-2:], node]
        waiting += [(child, inner) for child in reversed(list(ast.iter_child_nodes(node)))]


def _is_use(parents: list[ast.AST]) -> bool:
    """Whether the graph goes where a name is read: not by way of `.detach()`, `.item()` or `float(…)`."""
    around = parents[-1] if parents else None
    if isinstance(around, ast.Attribute):
        return around.attr not in _CUTTING
    if isinstance(around, ast.Compare):
        return False
    if isinstance(around, ast.comprehension):
        return not any(isinstance(n, ast.Attribute) and n.attr in _CUTTING for n in walk(parents[-2]))
    return not (is_call(around, *_NUMBERS))
