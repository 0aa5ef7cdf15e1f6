"""What statements do to a name: store into it, take out of it, make it anew. Who is meant is decided later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torchvet.source import syntax
from torchvet.source.scopes import Loop, Scope
from torchvet.source.syntax import Base

StoreKind = Literal[
    "append", "extend", "insert", "add", "put", "item", "assign", "augmented", "setattr", "update", "setdefault", "call"
]
RemovalKind = Literal[
    "pop", "popleft", "clear", "del", "slice", "fresh", "maxlen", "modulo", "len-guard", "remove", "get"
]  # fmt: skip

STORE_METHODS: dict[str, StoreKind] = {
    "append": "append", "appendleft": "append", "extend": "extend", "extendleft": "extend", "insert": "insert",
    "add": "add", "put": "put", "put_nowait": "put", "update": "update", "setdefault": "setdefault",
    "__setitem__": "item", "heappush": "append", "heappushpop": "append",
}  # fmt: skip
REMOVAL_METHODS: dict[str, RemovalKind] = {
    "pop": "pop", "popitem": "pop", "popleft": "popleft", "clear": "clear", "cache_clear": "clear", "reset": "clear",
    "remove": "remove", "discard": "remove", "difference_update": "remove", "__delitem__": "del", "heappop": "pop",
    "heappushpop": "pop", "heapreplace": "pop", "get_nowait": "get",
}  # fmt: skip
_HEAP = {"heappush", "heappushpop", "heappop", "heapreplace"}
_ONLY_AS_STATEMENT = {"add", "update", "insert", "reset", "remove"}
"""Methods that tensors, optimizers or data frames have too, with a result that is used."""
_READS = {
    "sort", "reverse", "copy", "index", "count", "keys", "start", "close", "join", "backward", "to", "cuda", "cpu",
    "train", "eval", "step", "zero_grad", "load_state_dict", "print", "info", "debug", "save", "flush", "task_done",
    "zero_", "requires_grad_", "detach_", "share_memory_", "apply", "retain_grad", "set_description", "set_postfix",
    "remove_hook", "wait", "item", "tolist", "split", "format", "write", "seek", "exists", "parse_args", "get",
    "add_argument", "plot", "show",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Touch:
    """One effect of one statement on `base`. Exactly one of `store` and `removal` is set; `fresh` marks the latter's
    kind where a value replaces another and adds nothing. `value` is the stored expression, `keys` the literal keys.
    """

    base: Base
    scope: Scope
    node: ast.expr | ast.stmt
    loop: Loop | None
    keys: tuple[str | None, ...] = ()
    store: StoreKind | None = None
    removal: RemovalKind | None = None
    value: ast.expr | None = None
    limited: bool = False

    @property
    def rebinds(self) -> bool:
        """Whether the name itself is bound to something else, so that other names of the object see nothing of it."""
        if self.store in ("assign", "setattr") or self.removal in ("fresh", "maxlen"):
            return True
        return self.removal in ("slice", "del") and isinstance(self.node, (ast.Assign, ast.Delete)) and not self.keys


Made = Iterator[Touch]


class Toucher:
    """Reads touches off single nodes, in a scope and a loop."""

    def __init__(self, scope: Scope, loop: Loop | None) -> None:
        self.scope = scope
        self.loop = loop

    def read(self, node: ast.AST, parent: ast.AST | None) -> Made:
        """The touches of this node itself, not of those below it."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from self._assign(target, node.value, node)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield from self._assign(node.target, node.value, node)
        elif isinstance(node, ast.AugAssign):
            base, keys = syntax.peel(node.target)
            if base is not None:
                yield self._touch(base, node, keys, store="augmented", value=node.value)
        elif isinstance(node, ast.Delete):
            yield from self._delete(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node, parent)

    def _touch(self, base: Base, node: ast.expr | ast.stmt, keys: tuple[str | None, ...] = (), *,
               store: StoreKind | None = None, removal: RemovalKind | None = None, value: ast.expr | None = None,
               limited: bool = False) -> Touch:  # fmt: skip
        return Touch(base, self.scope, node, self.loop, keys, store, removal, value, limited)

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.expr | ast.stmt) -> Made:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            matched = len(parts) == len(target.elts) and not any(isinstance(e, ast.Starred) for e in target.elts)
            for index, element in enumerate(target.elts):
                yield from self._assign(element, parts[index] if matched else value, node)
        elif isinstance(target, ast.Starred):
            yield from self._assign(target.value, value, node)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            yield from self._bind(target, value, node, "assign")
        elif isinstance(target, ast.Subscript):
            yield from self._item(target, value, node)

    def _bind(self, base: Base, value: ast.expr, node: ast.expr | ast.stmt, kind: StoreKind) -> Made:
        if syntax.limit(value):
            yield self._touch(base, node, removal="maxlen", value=value, limited=True)
            return
        if syntax.is_fresh(value):
            yield self._touch(base, node, removal="fresh", value=value)
            return
        cut = _cuts(value, base)
        if cut:
            yield self._touch(base, node, removal="slice", value=value)
        if not (cut and isinstance(value, ast.Subscript)):
            yield self._touch(base, node, store=kind, value=value)

    def _item(self, target: ast.Subscript, value: ast.expr, node: ast.expr | ast.stmt) -> Made:
        base, keys = syntax.peel(target)
        if base is None:
            return
        if isinstance(target.slice, ast.Slice):
            whole = target.slice.lower is None or not _is_len(target.slice.lower)
            if whole:
                yield self._touch(base, node, keys, removal="slice", value=value)
        elif any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(target.slice)):
            yield self._touch(base, node, keys, removal="modulo", value=value)
        if syntax.is_fresh(value):
            if not isinstance(target.slice, ast.Slice):
                yield self._touch(base, node, keys, removal="fresh", value=value)
        else:
            yield self._touch(base, node, keys, store="item", value=value)

    def _delete(self, node: ast.Delete) -> Made:
        for target in node.targets:
            base, keys = syntax.peel(target)
            if base is not None:
                yield self._touch(base, node, keys, removal="del")

    def _call(self, call: ast.Call, parent: ast.AST | None) -> Made:
        name = syntax.ident(call.func)
        if name in ("setattr", "__setattr__", "register_buffer"):
            yield from self._setattr(call, name)
        elif name in _HEAP and call.args:
            yield from self._method(call, name, call.args[0], call.args[1:], parent)
        elif isinstance(call.func, ast.Attribute):
            yield from self._method(call, name, call.func.value, call.args, parent)

    def _method(self, call: ast.Call, name: str, on: ast.expr, args: list[ast.expr], parent: ast.AST | None) -> Made:
        base, keys = syntax.peel(on)
        if base is None:
            return
        alone = isinstance(parent, (ast.Expr, ast.Lambda, ast.Await, ast.BoolOp, ast.IfExp, ast.ListComp))
        if name in _ONLY_AS_STATEMENT and not alone:
            return
        given = [*args, *(k.value for k in call.keywords)]
        store, removal = STORE_METHODS.get(name), REMOVAL_METHODS.get(name)
        if name == "get" and all(isinstance(a, ast.Constant) and isinstance(a.value, bool) for a in args):
            removal = "get"
        if removal is not None:
            yield self._touch(base, call, keys, removal=removal)
        if store is not None and given:
            if name in ("__setitem__", "setdefault") or (name == "put" and len(args) > 2):
                keys = (*keys, syntax.literal(args[0]) if args else None)
            value = given[1] if name in ("insert", "setdefault", "__setitem__") and len(given) > 1 else given[0]
            yield self._touch(base, call, keys, store=store, value=value)
        elif store is None and removal is None and given and alone and name not in _READS:
            kind: StoreKind = "augmented" if name.endswith("_") and not name.endswith("__") else "call"
            yield self._touch(base, call, keys, store=kind, value=given[0])

    def _setattr(self, call: ast.Call, name: str) -> Made:
        args = call.args
        if name != "setattr" and isinstance(call.func, ast.Attribute):
            receiver = call.func.value
            on_object = isinstance(receiver, ast.Name) and receiver.id == "object"
            args = args if name == "__setattr__" and on_object else [receiver, *args]
        if len(args) < 3:
            return
        key = args[1]
        text = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else "__dict__"
        yield from self._bind(syntax.attribute(args[0], text, call), args[2], call, "setattr")


def method_kind(name: str) -> StoreKind | None:
    """What a bound method stores when something else calls it."""
    return STORE_METHODS.get(name)


def _cuts(value: ast.expr, base: Base) -> bool:
    """Whether a value takes a slice of `base`: `x[-n:]`, `x[1:] + [y]`, `torch.cat([x[1:], y])`."""
    for node in ast.walk(value):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            inner, _ = syntax.peel(node.value)
            bounded = node.slice.lower is not None or node.slice.upper is not None
            if bounded and inner is not None and syntax.same(inner, base):
                return True
    return False


def _is_len(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and syntax.ident(node.func) == "len"
