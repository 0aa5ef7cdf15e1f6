"""What statements do to a name: store into it, take out of it, make it anew. Who is meant is decided later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torchvet.source import syntax
from torchvet.source.program.scopes import Placed, Scope
from torchvet.source.syntax import Base
from torchvet.source.text import name_set
from torchvet.source.walking import Context

StoreKind = Literal[
    "append", "extend", "insert", "add", "put", "item", "assign", "augmented", "setattr", "update", "setdefault", "call"
]
RemovalKind = Literal[
    "pop", "popleft", "clear", "del", "slice", "fresh", "maxlen", "modulo", "len-guard", "remove", "get"
]

STORE_METHODS: dict[str, StoreKind] = {
    "append": "append", "appendleft": "append", "extend": "extend", "extendleft": "extend", "insert": "insert",
    "add": "add", "put": "put", "put_nowait": "put", "update": "update", "setdefault": "setdefault",
    # In both tables: it puts one in and takes one out.
    "__setitem__": "item", "heappush": "append", "heappushpop": "append",
}  # fmt: skip
REMOVAL_METHODS: dict[str, RemovalKind] = {
    # `reset()` of a meter empties it.
    "pop": "pop", "popitem": "pop", "popleft": "popleft", "clear": "clear", "cache_clear": "clear", "reset": "clear",
    "remove": "remove", "discard": "remove", "difference_update": "remove", "__delitem__": "del", "heappop": "pop",
    "heappushpop": "pop", "heapreplace": "pop", "get_nowait": "get",
}  # fmt: skip
_HEAP = {"heappush", "heappushpop", "heappop", "heapreplace"}
_ONLY_AS_STATEMENT = {"add", "update", "insert", "reset", "remove"}
"""Methods that tensors, optimizers or data frames have too, with a result that is used."""
_READS = name_set("""
    sort reverse copy index count keys start close join backward to cuda cpu train eval step zero_grad
    load_state_dict print save flush task_done zero_ requires_grad_ detach_ share_memory_ apply
    retain_grad set_description set_postfix remove_hook wait item tolist split format write seek exists parse_args
    get add_argument plot show
""")
"""Methods that keep nothing of what they are given."""
_UNUSED_RESULT = (ast.Expr, ast.Lambda, ast.Await, ast.BoolOp, ast.IfExp)
"""What stands around a call that is made for its effect."""


@dataclass(frozen=True, eq=False)
class Mutation(Placed):
    """One effect of one statement on `base`. Exactly one of `store` and `removal` is set; `fresh` marks the latter's
    kind where a value replaces another and adds nothing. `value` is the stored expression, `keys` the literal keys.
    """

    base: Base
    keys: tuple[str | None, ...] = ()
    store: StoreKind | None = None
    removal: RemovalKind | None = None
    value: ast.expr | None = None

    @property
    def rebinds(self) -> bool:
        """Whether the name itself is bound to something else, so that other names of the object see nothing of it."""
        # `maxlen` here is `x = deque(maxlen=n)`.
        if self.store in ("assign", "setattr") or self.removal in ("fresh", "maxlen"):
            return True
        return self.removal in ("slice", "del") and isinstance(self.node, (ast.Assign, ast.Delete)) and not self.keys

    @property
    def adds(self) -> bool:
        """Whether it makes a container longer."""
        # `x += [y]` extends; `x += y` may add numbers.
        if isinstance(self.node, ast.AugAssign) and isinstance(self.value, (ast.List, ast.ListComp, ast.Tuple)):
            return True
        return self.store in ("append", "extend", "insert", "add", "put", "update", "setdefault")


class MutationReader:
    """Reads mutations off single nodes, in a scope and what is around them."""

    def __init__(self, scope: Scope, context: Context) -> None:
        self.scope = scope
        self.context = context

    def read(self, node: ast.AST, parent: ast.AST | None) -> Iterator[Mutation]:
        """The mutations of this node itself, not of those below it."""
        if isinstance(node, ast.AugAssign):
            yield from self._found(*syntax.peel(node.target), node, store="augmented", value=node.value)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                yield from self._found(*syntax.peel(target), node, removal="del")
        elif isinstance(node, ast.Call):
            yield from self._call(node, parent)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            for target, value, _ in syntax.bindings(node):
                yield from self._bind(target, value, node, "assign")

    def _found(
        self, base: Base | None, keys: tuple[str | None, ...], node: ast.expr | ast.stmt, **what: Any
    ) -> Iterator[Mutation]:
        if base is not None:
            yield Mutation(node, self.scope, self.context, base, keys, **what)

    def _bind(self, base: ast.expr, value: ast.expr, node: ast.expr | ast.stmt, kind: StoreKind) -> Iterator[Mutation]:
        if isinstance(base, ast.Subscript):
            yield from self._item(base, value, node)
        elif not isinstance(base, (ast.Name, ast.Attribute)):
            return
        # Before `is_fresh`, as `deque(maxlen=5)` is both.
        elif syntax.limit(value):
            yield from self._found(base, (), node, removal="maxlen", value=value)
        elif syntax.is_fresh(value):
            yield from self._found(base, (), node, removal="fresh", value=value)
        else:
            cut = _cuts(value, base)
            if cut:
                yield from self._found(base, (), node, removal="slice", value=value)
            # `x = x[-n:]` only cuts; `x = x[-n:] + [y]` cuts and stores.
            if not (cut and isinstance(value, ast.Subscript)):
                yield from self._found(base, (), node, store=kind, value=value)

    def _item(self, target: ast.Subscript, value: ast.expr, node: ast.expr | ast.stmt) -> Iterator[Mutation]:
        base, keys = syntax.peel(target)
        if isinstance(target.slice, ast.Slice):
            if syntax.ident(getattr(target.slice.lower, "func", None)) != "len":  # `x[len(x):] = y` adds at the end
                yield from self._found(base, keys, node, removal="slice", value=value)
        # `x[i % n] = y`: a ring, which stores as well.
        elif any(syntax.remainders(target.slice)):
            yield from self._found(base, keys, node, removal="modulo", value=value)
        if not syntax.is_fresh(value):
            yield from self._found(base, keys, node, store="item", value=value)
        # `x[:] = []` was told as a slice already.
        elif not isinstance(target.slice, ast.Slice):
            yield from self._found(base, keys, node, removal="fresh", value=value)

    def _call(self, call: ast.Call, parent: ast.AST | None) -> Iterator[Mutation]:
        name = syntax.ident(call.func)
        if name in ("setattr", "__setattr__", "register_buffer"):
            yield from self._setattr(call, name)
        # Functions: the heap is their first argument and not what stands before the dot.
        elif name in _HEAP and call.args:
            yield from self._method(call, name, call.args[0], call.args[1:], parent)
        elif isinstance(call.func, ast.Attribute):
            yield from self._method(call, name, call.func.value, call.args, parent)

    def _method(
        self, call: ast.Call, name: str, on: ast.expr, args: list[ast.expr], parent: ast.AST | None
    ) -> Iterator[Mutation]:
        base, keys = syntax.peel(on)
        alone = _is_for_effect(call, parent)
        # `x.add(y)` of a tensor gives a new one; only where the result is dropped does it change a container.
        if name in _ONLY_AS_STATEMENT and not alone:
            return
        given = [*args, *(k.value for k in call.keywords)]
        # A method may do both.
        store, removal = STORE_METHODS.get(name), _removal(name, args)
        if removal is not None:
            yield from self._found(base, keys, call, removal=removal)
        if store is not None and given:
            key, value = _stored(name, args, given)
            yield from self._found(base, (*keys, *key), call, store=store, value=value)
        # An unknown method that is given something and returns nothing may keep it: `meter.observe(loss)`.
        elif store is None and removal is None and given and alone and name not in _READS:
            # torch's way to name what works in place.
            kind: StoreKind = "augmented" if name.endswith("_") and not name.endswith("__") else "call"
            yield from self._found(base, keys, call, store=kind, value=_kept(given))

    def _setattr(self, call: ast.Call, name: str) -> Iterator[Mutation]:
        args = call.args
        if name != "setattr" and isinstance(call.func, ast.Attribute):
            receiver = call.func.value
            on_object = isinstance(receiver, ast.Name) and receiver.id == "object"
            # `object.__setattr__(self, name, value)` has its object among the arguments.
            args = args if name == "__setattr__" and on_object else [receiver, *args]
        if len(args) >= 3:
            key = args[1]
            # A computed name may be any attribute: it counts for the object's `__dict__`.
            text = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else "__dict__"
            yield from self._bind(syntax.attribute(args[0], text, call), args[2], call, "setattr")


def _is_for_effect(call: ast.Call, parent: ast.AST | None) -> bool:
    """Whether a call is made for its effect, and not for what it returns."""
    if isinstance(parent, ast.ListComp):
        # `[x.append(y) for y in ys]`: made for its effect although its results are collected.
        return parent.elt is call
    return isinstance(parent, _UNUSED_RESULT)


def _removal(name: str, args: list[ast.expr]) -> RemovalKind | None:
    # `get` of a queue may be told to wait; a dictionary's has a key.
    if name == "get" and all(isinstance(a, ast.Constant) and isinstance(a.value, bool) for a in args):
        return "get"
    return REMOVAL_METHODS.get(name)


def _kept(given: list[ast.expr]) -> ast.expr:
    """What a method keeps, if it does: a message or a key may stand before it."""
    return next((g for g in given if not isinstance(g, ast.Constant)), given[0])


def _stored(name: str, args: list[ast.expr], given: list[ast.expr]) -> tuple[tuple[str | None, ...], ast.expr]:
    """The key under which a method stores, where it takes one, and what it stores."""
    keyed = name in ("__setitem__", "setdefault")
    second = (keyed or name == "insert") and len(given) > 1
    key = (syntax.literal(args[0]) if args else None,) if keyed or (name == "put" and len(args) > 2) else ()
    return key, given[1] if second else given[0]


def _cuts(value: ast.expr, base: Base) -> bool:
    """Whether a value takes a slice of `base`: `x[-n:]`, `x[1:] + [y]`, `torch.cat([x[1:], y])`."""
    for node in ast.walk(value):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            inner, _ = syntax.peel(node.value)
            # `x[:]` copies and `x[::2]` thins out, but of these only a bound keeps a length.
            bounded = node.slice.lower is not None or node.slice.upper is not None
            if bounded and inner is not None and syntax.same(inner, base):
                return True
    return False
