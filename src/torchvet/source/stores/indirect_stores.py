"""Holders that no statement stores into by name: cached functions, objects that hooks are registered on, and
attributes that are set by a name that is passed on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.source import syntax
from torchvet.source.holder import HolderName
from torchvet.source.program.module import CallSite
from torchvet.source.program.mutations import RemovalKind, StoreKind
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.stores.aliases import Use
from torchvet.source.stores.answers import Removal, Store, removed, stored
from torchvet.source.stores.name_resolution import Asked

_CACHES = {"lru_cache", "cache", "cached", "memoize", "cachedmethod"}


def stores(project: Project, asked: Asked) -> list[Store]:
    """The decorator of a cached function, or the registrations of hooks on an object, best first."""
    if asked.name.special == "cache":
        return [stored(d, function, "call", None, False) for function, d in _cached(project, asked)]
    # The registry of `weakref.finalize` keeps arguments until the object dies.
    if [part.name for part in asked.name.parts] == ["weakref", "finalize"]:
        return list(_finalizers(project))
    return [_called(s, s.node.args[0] if s.node.args else None) for s in _registrations(project, asked)]


def _called(site: CallSite, value: ast.expr | None, kind: StoreKind = "call") -> Store:
    return stored(site.node, site.scope, kind, value, site.again)


def set_by_name(project: Project, asked: Asked) -> list[Store]:
    """`setattr(self, name, value)` in a function that is called with the attribute's name, or in a loop over names."""
    found: list[Store] = []
    for site in project.calls("setattr", asked.first) if not asked.name.terminal.free else ():
        # A literal name was read as a plain attribute already.
        key = site.node.args[1] if len(site.node.args) == 3 else None
        if isinstance(key, ast.Name) and asked.name.terminal.name in _names_passed(project, site, key.id):
            found.append(_called(site, site.node.args[2], "setattr"))
    return sorted(found, key=lambda s: not s.in_loop)


def _names_passed(project: Project, site: CallSite, variable: str) -> set[str]:
    """The texts that a variable of a call's function may stand for: a parameter's, or a loop's over texts."""
    function = site.scope.function()
    given = [value for _, value in project.arguments(function, variable)] if function is not None else []
    for one in site.file.loop_variables.get(variable, ()):
        # Another loop may use the same variable for something else.
        if site.loop is not None and one.loop is not None and site.loop.within(one.loop):
            given += syntax.parts(one.node) if isinstance(one.node, (ast.Tuple, ast.List)) else []
    return {v.value for v in given if isinstance(v, ast.Constant) and isinstance(v.value, str)}


def removals(project: Project, asked: Asked) -> Iterator[Removal]:
    """What empties a cache or limits it; where hooks' handles are removed."""
    if asked.name.special == "cache":
        for function, decorator in _cached(project, asked):
            if _limited(decorator):
                yield Removal(function.file.path, decorator.lineno, "maxlen", False)
        yield from _calls(project, "cache_clear", "clear", asked.name.terminal.name)
    # `handle.remove()`: by file only, as handles are kept under any name.
    if asked.name.hooked:
        registering = {site.file.path for site in _registrations(project, asked)}
        yield from (r for r in _calls(project, "remove", "remove", None) if r.path in registering)


def binds_anew(use: Use) -> bool:
    """Whether a statement gives a new object to a variable of its own function, and adds to none."""
    mutation = use.mutation
    own = isinstance(mutation.base, ast.Name) and mutation.scope.resolve(mutation.base.id) is mutation.scope
    return mutation.store == "assign" and own


def _cached(project: Project, asked: Asked) -> list[tuple[Scope, ast.expr]]:
    found, parts = [], asked.name.parts
    name = parts[-1].name
    for module in project.containing(name, asked.first):
        for function in module.functions(name):
            for decorator in function.decorators:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if syntax.ident(called) in _CACHES:
                    found.append((function, decorator))
    # Methods of one name in several classes: the class that the holder's name shows goes first.
    owner = parts[-2].name if len(parts) > 1 else ""
    classes = {owner} | project.classes_of(owner)
    return sorted(found, key=lambda f: f[0].parent is None or f[0].parent.name not in classes)


def _limited(decorator: ast.expr) -> bool:
    """`lru_cache` keeps 128 results unless `maxsize` says otherwise; `cache` and `maxsize=None` keep all."""
    if not isinstance(decorator, ast.Call):
        return syntax.ident(decorator) == "lru_cache"
    if syntax.ident(decorator.func) != "lru_cache":
        return False
    size = syntax.argument(decorator, "maxsize", 0)
    # A size that is computed is taken for a limit.
    return size is None or not (isinstance(size, ast.Constant) and size.value is None)


def _finalizers(project: Project) -> Iterator[Store]:
    """Calls of `weakref.finalize` that give more than what to call."""
    for site in project.calls("finalize"):
        # Behind the object and the function: what is kept until the end.
        given = [*site.node.args[2:], *(k.value for k in site.node.keywords)]
        if given:
            yield _called(site, given[-1])


def _registrations(project: Project, asked: Asked) -> list[CallSite]:
    """The calls that register hooks, of the kind that a name's table has where there are such, those on what its hooks
    are registered on first."""
    found: list[CallSite] = []
    fitting: list[CallSite] = []
    for module in project.containing("register_", asked.first) if asked.name.hooked else ():
        for called, sites in module.calls.items():
            if called.startswith("register_") and called.endswith("_hook"):
                found += sites
                fitting += sites if _goes_into(called, asked.name.table) else ()
    # Where no kind fits the table (a later torch's), any registration may be it.
    return sorted(fitting or found, key=lambda site: _closeness(site, asked.name), reverse=True)


def _goes_into(called: str, table: str) -> bool:
    """Whether a method's hooks stand in a table: those of `register_forward_pre_hook` in `_forward_pre_hooks`."""
    kind = called.removeprefix("register_").removesuffix("hook").removeprefix("module_").removeprefix("full_")
    # A tensor's own have the name of a module's backward hooks.
    return f"_{kind or 'backward_'}hooks" == table or (bool(kind) and table.endswith(f"_{kind}hooks"))


def _closeness(site: CallSite, name: HolderName) -> tuple[bool, ...]:
    # The object's own name counts first; a function that removes its hooks again keeps none of them.
    chain = syntax.dotted(site.node.func).split(".")[:-1]
    close = bool(chain) and chain[-1].removesuffix("[]") == name.hooked
    # Tuples of bools compare in this order of importance.
    return close, not _is_undone(site), site.again, name.owner in chain


def _is_undone(site: CallSite) -> bool:
    """Whether the function that registers removes hooks too, by their handles."""
    function = site.scope.function()
    removing = (other for other in site.file.calls.get("remove", ()) if other.scope.function() is function)
    return function is not None and any(not r.node.args and syntax.receiver(r.node) is not None for r in removing)


def _calls(project: Project, method: str, kind: RemovalKind, on: str | None) -> Iterator[Removal]:
    for site in project.calls(method):
        receiver = syntax.receiver(site.node)
        # `list.remove(x)` has an argument, a handle's `remove()` has none.
        if receiver is not None and not site.node.args and on in (None, syntax.ident(receiver)):
            yield removed(site, kind, site.loop is not None)
