"""Holders that no statement stores into by name: cached functions, objects that hooks are registered on, and
attributes that are set by a name that is passed on."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchvet.source import syntax
from torchvet.source.follow import Seen
from torchvet.source.holder import HolderName
from torchvet.source.module import CallSite, Module
from torchvet.source.project import Project
from torchvet.source.scopes import Scope
from torchvet.source.touches import RemovalKind, StoreKind

_CACHES = {"lru_cache", "cache", "cached", "memoize", "cachedmethod"}


@dataclass(frozen=True, eq=False)
class SpecialStore:
    """A decorator that caches, a call that registers a hook, or a `setattr`."""

    module: Module
    node: ast.expr
    scope: Scope
    value: ast.expr | None
    in_loop: bool
    kind: StoreKind = "call"


def stores(project: Project, name: HolderName, first: Sequence[str]) -> list[SpecialStore]:
    """The decorator of a cached function, or the registrations of hooks on an object, best first."""
    if name.special == "cache":
        return [SpecialStore(m, d, f, None, False) for m, f, d in _cached(project, name, first)]
    if [part.name for part in name.parts] == ["weakref", "finalize"]:
        return list(_finalizers(project))
    return _registrations(project, name, first) if name.hooked else []


def set_by_name(project: Project, name: HolderName, first: Sequence[str]) -> list[SpecialStore]:
    """`setattr(self, name, value)` in a function that is called with the attribute's name, or in a loop over names."""
    wanted = name.terminal.name
    found: list[SpecialStore] = []
    for module in project.containing("setattr", first) if not name.terminal.free else ():
        for site in module.calls.get("setattr", ()):
            key = site.node.args[1] if len(site.node.args) == 3 else None
            if isinstance(key, ast.Name) and wanted in _names_passed(project, module, site, key.id):
                again = site.loop is not None or project.is_hot(site.scope.function())
                found.append(SpecialStore(module, site.node, site.scope, site.node.args[2], again, "setattr"))
    return sorted(found, key=lambda s: not s.in_loop)


def _names_passed(project: Project, module: Module, site: CallSite, variable: str) -> set[str]:
    """The texts that a variable of a call's function may stand for: a parameter's, or a loop's over texts."""
    function, line = site.scope.function(), site.node.lineno
    given = [value for _, _, value in project.arguments(function, variable)] if function is not None else []
    loops = [n for n in ast.walk(module.tree) if isinstance(n, ast.For)] if site.loop is not None else []
    for loop in loops:
        around = loop.lineno < line <= (loop.end_lineno or line) and syntax.ident(loop.target) == variable
        given += loop.iter.elts if around and isinstance(loop.iter, (ast.Tuple, ast.List)) else []
    return {v.value for v in given if isinstance(v, ast.Constant) and isinstance(v.value, str)}


def removals(project: Project, name: HolderName, first: Sequence[str]) -> Iterator[tuple[str, int, RemovalKind, bool]]:
    """What empties a cache or limits it; where hooks' handles are removed."""
    if name.special == "cache":
        for module, _, decorator in _cached(project, name, first):
            if _limited(decorator):
                yield module.path, decorator.lineno, "maxlen", False
        yield from _calls(project, "cache_clear", "clear", name.terminal.name)
    if name.hooked:
        registering = {s.module.path for s in _registrations(project, name, first)}
        for found in _calls(project, "remove", "remove", None):
            if found[0] in registering:
                yield found


def binds_anew(seen: Seen) -> bool:
    """Whether a statement gives a new object to a variable of its own function, and adds to none."""
    touch = seen.touch
    own = isinstance(touch.base, ast.Name) and touch.scope.resolve(touch.base.id) is touch.scope
    return touch.store == "assign" and own


def _cached(project: Project, name: HolderName, first: Sequence[str]) -> list[tuple[Module, Scope, ast.expr]]:
    found = []
    for module in project.containing(name.terminal.name, first):
        for function in module.functions(name.terminal.name):
            assert isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for decorator in function.node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if syntax.ident(called) in _CACHES:
                    found.append((module, function, decorator))
    owner = name.parts[-2].name if len(name.parts) > 1 else ""
    classes = {owner} | project.classes_of(owner)
    return sorted(found, key=lambda f: f[1].parent is None or f[1].parent.name not in classes)


def _limited(decorator: ast.expr) -> bool:
    """`lru_cache` keeps 128 results unless told otherwise; `cache` and `maxsize=None` keep all."""
    if not isinstance(decorator, ast.Call):
        return syntax.ident(decorator) == "lru_cache"
    if syntax.ident(decorator.func) != "lru_cache":
        return False
    sizes = [*decorator.args[:1], *(k.value for k in decorator.keywords if k.arg == "maxsize")]
    return not sizes or not (isinstance(sizes[0], ast.Constant) and sizes[0].value is None)


def _finalizers(project: Project) -> Iterator[SpecialStore]:
    """Calls of `weakref.finalize` that give more than what to call."""
    for module in project.containing("finalize"):
        for site in module.calls.get("finalize", ()):
            given = [*site.node.args[2:], *(k.value for k in site.node.keywords)]
            if given:
                again = site.loop is not None or project.is_hot(site.scope.function())
                yield SpecialStore(module, site.node, site.scope, given[-1], again)


def _registrations(project: Project, name: HolderName, first: Sequence[str]) -> list[SpecialStore]:
    found: list[tuple[tuple[bool, ...], SpecialStore]] = []
    for module in project.containing("register_", first):
        for called, sites in module.calls.items():
            if not (called.startswith("register_") and called.endswith("_hook")):
                continue
            for site in sites:
                found.append((_closeness(project, site, name, module), _registration(project, site, module)))
    found.sort(key=lambda pair: pair[0], reverse=True)
    return [one for _, one in found]


def _closeness(project: Project, site: CallSite, name: HolderName, module: Module) -> tuple[bool, ...]:
    chain = syntax.dotted(site.node.func).split(".")[:-1]
    again = site.loop is not None or project.is_hot(site.scope.function())
    close = bool(chain) and chain[-1].removesuffix("[]") == name.hooked
    return close, not _is_undone(site, module), again, name.owner in chain


def _is_undone(site: CallSite, module: Module) -> bool:
    """Whether the function that registers removes hooks too, by their handles."""
    function = site.scope.function()
    return function is not None and any(
        other.scope.function() is function and not other.node.args and isinstance(other.node.func, ast.Attribute)
        for other in module.calls.get("remove", ())
    )


def _registration(project: Project, site: CallSite, module: Module) -> SpecialStore:
    again = site.loop is not None or project.is_hot(site.scope.function())
    return SpecialStore(module, site.node, site.scope, site.node.args[0] if site.node.args else None, again)


def _calls(
    project: Project, method: str, kind: RemovalKind, on: str | None
) -> Iterator[tuple[str, int, RemovalKind, bool]]:
    for module in project.containing(method):
        for site in module.calls.get(method, ()):
            func = site.node.func
            if isinstance(func, ast.Attribute) and not site.node.args and on in (None, syntax.ident(func.value)):
                yield module.path, site.node.lineno, kind, site.loop is not None
